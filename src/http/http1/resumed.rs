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
use crate::http::exchange::service::{Guarded, Handler, ResponseFuture};

/// See the module's head.
pub(crate) struct Resumed<S: Handler> {
    guarded: Guarded<S>,
    /// To the first request that hyper reads.
    answer: Cell<Option<Response<ResponseBody<S::Body>>>>,
}

impl<S: Handler> Resumed<S> {
    pub(crate) fn new(
        guarded: Guarded<S>,
        answer: Option<Response<ResponseBody<S::Body>>>,
    ) -> Self {
        Self {
            guarded,
            answer: Cell::new(answer),
        }
    }
}

impl<S> Service<http::Request<Incoming>> for Resumed<S>
where
    S: Handler,
{
    type Response = Response<ResponseBody<S::Body>>;
    type Error = Infallible;
    type Future = ResponseOrHandler<S::Future, S::Body>;

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
