//! The response to a request in HTTP/2, whatever service makes it.
//!
//! hyper and h2 are generic in the service and its bodies. With a type for all of them they are
//! compiled once: they would be 0.3 MB of a binary for each service and each kind of socket.

use std::mem;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use http::response::Parts;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::service::Service;
use pin_project_lite::pin_project;

use crate::error::BoxError;
use crate::http::exchange::body::ResponseBody;
use crate::http::exchange::service::{Guarded, Handler, ResponseFuture};
use crate::http::exchange::unread::KeptBody;
use crate::http::registry::list::Registry;
use crate::http::registry::state::ConnState;

/// A user's service.
pub(crate) trait StreamHandler {
    /// Calls it behind the limits and rules, for a request on this stream.
    fn call(
        self: Rc<Self>,
        request: http::Request<Incoming>,
        registry: &Rc<Registry>,
        stream: &Arc<ConnState>,
    ) -> StreamResponse;
}

/// A response that a service makes: first its head, then its body. One allocation has both.
pub(crate) type StreamResponse = Pin<Box<dyn Respond>>;

/// See [`StreamResponse`].
pub(crate) trait Respond {
    /// Polled until it is ready, before the other functions are called.
    fn poll_head(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Parts>;

    /// As [`Body::poll_frame`].
    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>>;

    /// Takes the rest of the request's body that nothing has read.
    fn take_kept(self: Pin<&mut Self>) -> Option<KeptBody>;

    /// As [`Body::is_end_stream`].
    fn is_end_stream(&self) -> bool;

    /// As [`Body::size_hint`].
    fn size_hint(&self) -> SizeHint;
}

/// A response with a body of so many zeros.
pub(crate) fn zeros(length: usize) -> StreamResponse {
    Box::pin(Zeros(length))
}

struct Zeros(usize);

impl Respond for Zeros {
    fn poll_head(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Parts> {
        Poll::Ready(http::Response::new(()).into_parts().0)
    }

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let length = mem::take(&mut self.0);
        let data = (length > 0).then(|| vec![0; length].into());
        Poll::Ready(data.map(|data| Ok(Frame::data(data))))
    }

    fn take_kept(self: Pin<&mut Self>) -> Option<KeptBody> {
        None
    }

    fn is_end_stream(&self) -> bool {
        self.0 == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0 as u64)
    }
}

pin_project! {
    #[project = ResponsePinned]
    enum Response<F, B> {
        Head { #[pin] future: ResponseFuture<F, B> },
        Body { #[pin] body: ResponseBody<B> },
    }
}

impl<S: Handler> StreamHandler for S {
    fn call(
        self: Rc<Self>,
        request: http::Request<Incoming>,
        registry: &Rc<Registry>,
        stream: &Arc<ConnState>,
    ) -> StreamResponse {
        let service = Guarded {
            inner: self,
            registry: Rc::clone(registry),
            state: Arc::clone(stream),
        };
        Box::pin(Response::Head {
            future: service.call(request),
        })
    }
}

impl<F, B, E> Respond for Response<F, B>
where
    F: Future<Output = Result<http::Response<B>, E>>,
    E: Into<BoxError>,
    B: Body<Error: Into<BoxError>>,
{
    fn poll_head(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Parts> {
        let ResponsePinned::Head { mut future } = self.as_mut().project() else {
            unreachable!("polled after its head");
        };
        let Poll::Ready(Ok(response)) = future.as_mut().poll(cx) else {
            discard(future.kept(), cx);
            return Poll::Pending;
        };
        let (head, body) = response.into_parts();
        self.set(Self::Body { body });
        Poll::Ready(head)
    }

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let ResponsePinned::Body { mut body } = self.project() else {
            return Poll::Ready(None);
        };
        // Data that are bytes are not copied.
        let bytes = |mut data: B::Data| data.copy_to_bytes(data.remaining());
        let frame = body.as_mut().poll_frame(cx);
        if frame.is_pending() {
            discard(body.kept().as_ref(), cx);
        }
        frame.map_ok(|frame| frame.map_data(bytes))
    }

    fn take_kept(self: Pin<&mut Self>) -> Option<KeptBody> {
        match self.project() {
            ResponsePinned::Head { .. } => None,
            ResponsePinned::Body { body } => body.kept().take(),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Head { .. } => false,
            Self::Body { body } => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Head { .. } => SizeHint::default(),
            Self::Body { body } => body.size_hint(),
        }
    }
}

/// Makes room for other uploads of the connection while the response is not complete.
fn discard(kept: Option<&KeptBody>, cx: &mut Context<'_>) {
    if let Some(kept) = kept {
        // A body that has ended is left as it is until the response is complete.
        let _: Poll<()> = kept.poll_discard(cx);
    }
}
