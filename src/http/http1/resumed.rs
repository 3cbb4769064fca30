//! The service that hyper calls on an HTTP/1 connection. If hyper takes over a request whose
//! handler has already responded, the service returns that response first.

use std::cell::Cell;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::Response;
use http_body::Body;
use hyper::body::Incoming;
use hyper::service::Service;
use pin_project_lite::pin_project;

use crate::error::BoxError;
use crate::http::exchange::body::ResponseBody;
use crate::http::exchange::service::{Guarded, Handler, ResponseFuture};

/// The guarded service of a connection, perhaps with the response to its first request.
pub(crate) struct Resumed<S: Handler> {
    guarded: Guarded<S>,
    /// The response to the first request that hyper reads. The handler has already made it.
    response: Cell<Option<Response<ResponseBody<S::Body>>>>,
}

impl<S: Handler> Resumed<S> {
    pub(crate) fn new(
        guarded: Guarded<S>,
        response: Option<Response<ResponseBody<S::Body>>>,
    ) -> Self {
        Self {
            guarded,
            response: Cell::new(response),
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
        match self.response.take() {
            Some(response) => ResponseOrHandler::Ready {
                body: request.into_body(),
                response: Some(response),
            },
            None => ResponseOrHandler::Pending {
                response: self.guarded.call(request),
            },
        }
    }
}

pin_project! {
    /// A response, or the future of one.
    #[project = ResponsePinned]
    pub(crate) enum ResponseOrHandler<F, B> {
        Ready {
            // The request's body, which the handler has already read.
            body: Incoming,
            response: Option<Response<ResponseBody<B>>>,
        },
        Pending { #[pin] response: ResponseFuture<F, B> },
    }
}

impl<F, B, E> Future for ResponseOrHandler<F, B>
where
    F: Future<Output = Result<Response<B>, E>>,
    B: Body,
    E: Into<BoxError>,
{
    type Output = Result<Response<ResponseBody<B>>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project() {
            ResponsePinned::Ready { body, response } => {
                // If a part of it were left, hyper would end the connection.
                while let Some(Ok(_)) = ready!(Pin::new(&mut *body).poll_frame(cx)) {}
                Poll::Ready(Ok(response.take().expect("polled after its response")))
            }
            ResponsePinned::Pending { response } => response.poll(cx),
        }
    }
}
