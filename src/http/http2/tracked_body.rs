//! Tracks since when the client has taken no bytes of a response's body.
//!
//! Pieces wait inside hyper for the client's window (RFC 9113 5.2). Neither the handler nor the
//! socket shows that. hyper takes bytes from a piece as it writes them, and drops the piece after
//! its last byte.

use std::cell::Cell;
use std::io::IoSlice;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};

use crate::error::BoxError;
use crate::http::http2::budget::{ResponseBudget, Waiting};
use crate::http::http2::kept_bodies::KeptBodies;
use crate::http::http2::response::StreamResponse;
use crate::http::registry::state::ConnState;

/// A body is polled while no more than so many of its bytes are unsent, so that small pieces are
/// sent together.
const SMALL: usize = 16 * 1024;

/// Once the client has taken a part of the last piece, a body is polled while no more than so many
/// of its bytes are unsent, so that the next piece is ready when the last one is sent.
const LARGE: usize = 64 * 1024;

/// The memory that hyper and h2 use for a piece besides its bytes.
const OVERHEAD: usize = 256;

/// A response's body whose pieces are tracked.
pub(crate) struct TrackedBody {
    body: StreamResponse,
    pieces: Rc<Pieces>,
    kept: Rc<KeptBodies>,
}

/// The pieces of one response that are not sent yet.
pub(crate) struct Pieces {
    /// Their bytes, [`OVERHEAD`] included.
    unsent: Cell<usize>,
    last: Cell<Last>,
    wait: Cell<Wait>,
    waker: Cell<Option<Waker>>,
    stream: Arc<ConnState>,
    budget: Rc<ResponseBudget>,
}

/// The state of the last piece.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Last {
    /// No byte was sent since the piece came.
    Whole,
    Begun,
}

/// The condition that the body waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wait {
    /// Not for a limit.
    None,
    /// Until more of its own pieces is sent.
    Own,
    /// Until the connection is below the limits of its budget.
    Budget,
}

/// A piece of a body, which counts the bytes that are sent.
pub(crate) struct Piece {
    data: Bytes,
    /// In bytes, [`OVERHEAD`] included.
    size: usize,
    pieces: Rc<Pieces>,
}

impl TrackedBody {
    pub(crate) fn new(
        body: StreamResponse,
        stream: &Arc<ConnState>,
        budget: &Rc<ResponseBudget>,
        kept: &Rc<KeptBodies>,
    ) -> Self {
        Self {
            body,
            kept: Rc::clone(kept),
            pieces: Rc::new(Pieces {
                unsent: Cell::new(0),
                last: Cell::new(Last::Whole),
                wait: Cell::new(Wait::None),
                waker: Cell::default(),
                stream: Arc::clone(stream),
                budget: Rc::clone(budget),
            }),
        }
    }
}

impl Body for TrackedBody {
    type Data = Piece;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let Self { body, pieces, .. } = self.get_mut();
        ready!(pieces.poll_limits(cx));
        let frame = body.as_mut().poll_frame(cx);
        frame.map_ok(|frame| frame.map_data(|data| Piece::new(data, pieces)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for TrackedBody {
    fn drop(&mut self) {
        if let Some(body) = self.body.as_mut().take_kept() {
            self.kept.keep(body);
        }
    }
}

impl Pieces {
    fn poll_limits(self: &Rc<Self>, cx: &Context<'_>) -> Poll<()> {
        let wait = match (self.may_follow(), self.budget.is_below_limits()) {
            (true, true) => {
                self.wait.set(Wait::None);
                return Poll::Ready(());
            }
            (false, _) => Wait::Own,
            (true, false) => Wait::Budget,
        };
        self.waker.set(Some(cx.waker().clone()));
        if self.wait.replace(wait) != wait && wait == Wait::Budget {
            let response: Weak<Self> = Rc::downgrade(self);
            self.budget.wait(response);
        }
        Poll::Pending
    }

    /// Whether the client has taken enough for another piece.
    fn may_follow(&self) -> bool {
        let unsent = self.unsent.get();
        unsent <= SMALL || (unsent <= LARGE && self.last.get() == Last::Begun)
    }

    fn wake_if(&self, wait: Wait) {
        if self.wait.get() == wait
            && let Some(waker) = self.waker.take()
        {
            self.wait.set(Wait::None);
            waker.wake();
        }
    }

    fn begin(&self, bytes: usize) {
        self.unsent.set(self.unsent.get() + bytes);
        self.last.set(Last::Whole);
        self.stream.write_blocked();
        self.budget.begin(bytes);
    }

    /// The client takes so many bytes.
    fn send(&self, bytes: usize) {
        if bytes > 0 {
            self.budget.frames.wrote_data();
            self.stream.has_written(bytes);
            self.stream.write_blocked();
            self.last.set(Last::Begun);
            self.subtract(bytes);
        }
    }

    /// So many bytes less are unsent.
    fn subtract(&self, bytes: usize) {
        self.unsent.set(self.unsent.get() - bytes);
        if self.may_follow() {
            self.wake_if(Wait::Own);
        }
    }
}

impl Waiting for Pieces {
    fn waits(&self) -> bool {
        self.wait.get() == Wait::Budget
    }

    fn wake(&self) {
        self.wake_if(Wait::Budget);
    }
}

impl Piece {
    fn new(data: Bytes, pieces: &Rc<Pieces>) -> Self {
        let size = data.remaining() + OVERHEAD;
        pieces.begin(size);
        Self {
            data,
            size,
            pieces: Rc::clone(pieces),
        }
    }

    /// The client takes so many bytes, which are no longer in `data`.
    fn send(&self, bytes: usize) {
        self.pieces.send(bytes);
        if bytes > 0 && self.data.is_empty() {
            self.pieces.budget.frames.wrote_piece();
        }
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.pieces.budget.end(self.size);
        self.pieces.subtract(self.data.len() + OVERHEAD);
        if self.pieces.unsent.get() == 0 {
            self.pieces.stream.has_written_all();
        }
    }
}

impl Buf for Piece {
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
        self.send(bytes);
    }

    fn copy_to_bytes(&mut self, bytes: usize) -> Bytes {
        let taken = self.data.copy_to_bytes(bytes);
        self.send(bytes);
        taken
    }
}
