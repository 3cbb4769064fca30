//! A body of several pieces.

use std::collections::VecDeque;
use std::task::ready;

use http_body::{Frame, SizeHint};

use super::*;

/// A body of these pieces. At an empty piece it waits for the gate. At the piece `fail` it fails.
pub(super) struct Pieces {
    left: VecDeque<&'static str>,
    /// The length that `size_hint` returns. It may be wrong.
    length: Option<u64>,
    gate: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl Pieces {
    pub(super) fn new(length: Option<u64>, pieces: &[&'static str]) -> Self {
        Self::gated(length, pieces, Arc::default())
    }

    pub(super) fn gated(length: Option<u64>, pieces: &[&'static str], gate: Arc<Notify>) -> Self {
        Self {
            left: pieces.iter().copied().collect(),
            length,
            gate: Box::pin(async move { gate.notified().await }),
        }
    }
}

impl http_body::Body for Pieces {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if self.left.front() == Some(&"") {
            ready!(self.gate.as_mut().poll(cx));
            self.left.pop_front();
        }
        Poll::Ready(match self.left.pop_front() {
            Some("fail") => Some(Err("on request".into())),
            piece => piece.map(|piece| Ok(Frame::data(piece.into()))),
        })
    }

    fn is_end_stream(&self) -> bool {
        self.left.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        self.length.map_or_else(SizeHint::new, SizeHint::with_exact)
    }
}
