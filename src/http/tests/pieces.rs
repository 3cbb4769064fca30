//! A body that comes in pieces.

use std::collections::VecDeque;
use std::task::ready;

use http_body::{Frame, SizeHint};
use tokio::sync::Notify;

use super::*;

/// A body of these pieces, which says that it is so long. Before an empty one it waits.
pub(super) struct Pieces {
    left: VecDeque<&'static str>,
    said: Option<u64>,
    gate: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl Pieces {
    pub(super) fn new(said: Option<u64>, pieces: &[&'static str]) -> Self {
        Self::gated(said, pieces, Arc::default())
    }

    pub(super) fn gated(said: Option<u64>, pieces: &[&'static str], gate: Arc<Notify>) -> Self {
        Self {
            left: pieces.iter().copied().collect(),
            said,
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
        self.said.map_or_else(SizeHint::new, SizeHint::with_exact)
    }
}
