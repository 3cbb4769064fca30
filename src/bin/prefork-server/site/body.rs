//! The body type of all responses.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;
use prefork_server::files::FileBody;
use prefork_server::{BoxError, Piece};

/// The body of a response. `B` is the body of the request, which an echo sends back as it arrives.
pub(crate) enum ResponseBody<B> {
    /// Bytes in memory.
    Full(Full<Bytes>),
    /// The body of the request.
    Echo(B),
    /// A file or a part of one.
    File(FileBody),
}

impl<B> ResponseBody<B> {
    /// No body at all.
    pub(super) fn empty() -> Self {
        Self::Full(Full::default())
    }
}

impl<B> Body for ResponseBody<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    type Data = Piece;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Piece>, BoxError>>> {
        match self.get_mut() {
            Self::Full(body) => pieces(Pin::new(body).poll_frame(cx)),
            Self::Echo(body) => pieces(Pin::new(body).poll_frame(cx)),
            Self::File(body) => Pin::new(body).poll_frame(cx).map_err(Into::into),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Full(body) => body.is_end_stream(),
            Self::Echo(body) => body.is_end_stream(),
            Self::File(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Full(body) => body.size_hint(),
            Self::Echo(body) => body.size_hint(),
            Self::File(body) => body.size_hint(),
        }
    }
}

fn pieces<E: Into<BoxError>>(
    polled: Poll<Option<Result<Frame<Bytes>, E>>>,
) -> Poll<Option<Result<Frame<Piece>, BoxError>>> {
    let polled = polled.map_ok(|frame| frame.map_data(Piece::from));
    polled.map_err(Into::into)
}
