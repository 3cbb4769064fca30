//! A response's body on its way: since when its client has taken nothing of it.
//!
//! Pieces wait within hyper for the client's window (RFC 9113 5.2), where neither the handler nor
//! the socket shows it. hyper takes bytes from a piece as it writes them, and drops the piece after
//! its last.

use std::cell::Cell;
use std::io::IoSlice;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::super::activity::Activity;
use super::frames::Frames;

pin_project! {
    /// See the module's head.
    pub(super) struct Outgoing<B> {
        #[pin]
        body: B,
        pieces: Rc<Pieces>,
    }
}

/// Those of one response that are not sent yet.
struct Pieces {
    count: Cell<usize>,
    stream: Arc<Activity>,
    frames: Rc<Frames>,
}

/// A piece of a body, which notes that it is sent.
pub(super) struct Piece<D> {
    data: D,
    pieces: Rc<Pieces>,
}

impl<B> Outgoing<B> {
    pub(super) fn new(body: B, stream: &Arc<Activity>, frames: &Rc<Frames>) -> Self {
        Self {
            body,
            pieces: Rc::new(Pieces {
                count: Cell::new(0),
                stream: Arc::clone(stream),
                frames: Rc::clone(frames),
            }),
        }
    }
}

impl<B: Body> Body for Outgoing<B> {
    type Data = Piece<B::Data>;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let this = self.project();
        let pieces = this.pieces;
        let frame = this.body.poll_frame(cx);
        frame.map_ok(|frame| frame.map_data(|data| Piece::new(data, pieces)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<D> Piece<D> {
    fn new(data: D, pieces: &Rc<Pieces>) -> Self {
        pieces.count.set(pieces.count.get() + 1);
        pieces.stream.write_blocked();
        Self {
            data,
            pieces: Rc::clone(pieces),
        }
    }

    fn has_sent(&self, bytes: usize) {
        if bytes > 0 {
            self.pieces.frames.wrote_data();
            self.pieces.stream.has_written();
            self.pieces.stream.write_blocked();
        }
    }
}

impl<D> Drop for Piece<D> {
    fn drop(&mut self) {
        self.pieces.count.set(self.pieces.count.get() - 1);
        if self.pieces.count.get() == 0 {
            self.pieces.stream.has_written();
        }
    }
}

impl<D: Buf> Buf for Piece<D> {
    fn remaining(&self) -> usize {
        self.data.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.data.chunk()
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        self.data.chunks_vectored(slices)
    }

    fn advance(&mut self, bytes: usize) {
        self.data.advance(bytes);
        self.has_sent(bytes);
    }

    fn copy_to_bytes(&mut self, bytes: usize) -> Bytes {
        self.has_sent(bytes);
        self.data.copy_to_bytes(bytes)
    }
}
