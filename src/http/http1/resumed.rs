//! The service as hyper gets it, which may have to begin in the middle: with a request that was
//! served without hyper and whose answer is not plain.

use std::cell::Cell;
use std::convert::Infallible;
use std::error::Error;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::Response;
use hyper::body::Incoming;
use hyper::service::Service;
use pin_project_lite::pin_project;

use crate::http::exchange::body::ResponseBody;
use crate::http::exchange::message::Request;
use crate::http::exchange::service::{Guarded, ResponseFuture};

/// See the module's head.
pub(crate) struct Resumed<S, B> {
    guarded: Guarded<S>,
    /// To the first request that hyper reads.
    answer: Cell<Option<Response<ResponseBody<B>>>>,
}

impl<S, B> Resumed<S, B> {
    pub(crate) fn new(guarded: Guarded<S>, answer: Option<Response<ResponseBody<B>>>) -> Self {
        Self {
            guarded,
            answer: Cell::new(answer),
        }
    }
}

impl<S, B> Service<http::Request<Incoming>> for Resumed<S, B>
where
    S: Service<Request, Response = Response<B>>,
    S::Error: Into<Box<dyn Error + Send + Sync>>,
    B: http_body::Body,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    type Response = Response<ResponseBody<B>>;
    type Error = Infallible;
    type Future = ResponseOrHandler<S::Future, B>;

    fn call(&self, request: http::Request<Incoming>) -> Self::Future {
        match self.answer.take() {
            Some(answer) => ResponseOrHandler::Given {
                answer: Some(answer),
            },
            None => ResponseOrHandler::Asked {
                answer: self.guarded.call(request),
            },
        }
    }
}

pin_project! {
    /// An answer that is there already, or in the making.
    #[project = ReplyPinned]
    pub(crate) enum ResponseOrHandler<F, B> {
        Given { answer: Option<Response<ResponseBody<B>>> },
        Asked { #[pin] answer: ResponseFuture<F, B> },
    }
}

impl<F, B, E> Future for ResponseOrHandler<F, B>
where
    F: Future<Output = Result<Response<B>, E>>,
    E: Into<Box<dyn Error + Send + Sync>>,
{
    type Output = Result<Response<ResponseBody<B>>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project() {
            ReplyPinned::Given { answer } => {
                Poll::Ready(Ok(answer.take().expect("an answer is asked for once")))
            }
            ReplyPinned::Asked { answer } => answer.poll(cx),
        }
    }
}
