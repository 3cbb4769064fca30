//! Tracks since when the client has taken no bytes of a response's body.
//!
//! Pieces wait inside hyper for the client's window (RFC 9113 5.2). Neither the handler nor the
//! socket shows that. hyper takes bytes from a piece as it writes them, and drops the piece after
//! its last byte.

use std::cell::Cell;
use std::io::IoSlice;
use std::mem;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::http::http2::budget::{ResponseBudget, Waiting};
use crate::http::registry::state::ConnState;

/// A body is polled while no more than so many of its bytes are unsent, so that small pieces are
/// sent together.
const SMALL: usize = 16 * 1024;

/// Once the client has taken a part of the last piece, a body is polled while no more than so many
/// of its bytes are unsent, so that the next piece is ready when the last one is sent.
const LARGE: usize = 64 * 1024;

/// A part of a body of zeros.
static ZEROS: [u8; 4096] = [0; 4096];

/// The memory that hyper and h2 use for a piece besides its bytes.
const OVERHEAD: usize = 256;

pin_project! {
    /// A response's body whose pieces are tracked.
    pub(crate) struct TrackedBody<B> {
        // `None` in a replay: the body is so many zeros, and no client gets them.
        #[pin]
        body: Option<B>,
        zeros: usize,
        pieces: Rc<Pieces>,
    }
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
pub(crate) struct Piece<D> {
    data: Data<D>,
    /// In bytes, [`OVERHEAD`] included.
    size: usize,
    /// The part of `size` that is not sent.
    left: usize,
    pieces: Rc<Pieces>,
}

/// The bytes of a piece.
enum Data<D> {
    Of(D),
    Zeros(usize),
}

impl<B> TrackedBody<B> {
    pub(crate) fn new(body: B, stream: &Arc<ConnState>, budget: &Rc<ResponseBudget>) -> Self {
        Self::of(Some(body), 0, stream, budget)
    }

    /// A body of so many zeros.
    pub(crate) fn zeros(
        zeros: usize,
        stream: &Arc<ConnState>,
        budget: &Rc<ResponseBudget>,
    ) -> Self {
        Self::of(None, zeros, stream, budget)
    }

    fn of(
        body: Option<B>,
        zeros: usize,
        stream: &Arc<ConnState>,
        budget: &Rc<ResponseBudget>,
    ) -> Self {
        Self {
            body,
            zeros,
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

impl<B: Body> Body for TrackedBody<B> {
    type Data = Piece<B::Data>;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let this = self.project();
        let pieces = this.pieces;
        ready!(pieces.poll_limits(cx));
        let Some(body) = this.body.as_pin_mut() else {
            let data = match mem::take(this.zeros) {
                0 => return Poll::Ready(None),
                zeros => Data::Zeros(zeros),
            };
            return Poll::Ready(Some(Ok(Frame::data(Piece::new(data, pieces)))));
        };
        let frame = body.poll_frame(cx);
        frame.map_ok(|frame| frame.map_data(|data| Piece::new(Data::Of(data), pieces)))
    }

    fn is_end_stream(&self) -> bool {
        match &self.body {
            Some(body) => body.is_end_stream(),
            None => self.zeros == 0,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.body {
            Some(body) => body.size_hint(),
            None => SizeHint::with_exact(self.zeros as u64),
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
    /// Does nothing if the body waits for something else.
    fn wake(&self) {
        self.wake_if(Wait::Budget);
    }
}

impl<D: Buf> Piece<D> {
    fn new(data: Data<D>, pieces: &Rc<Pieces>) -> Self {
        let size = data.remaining() + OVERHEAD;
        pieces.begin(size);
        Self {
            data,
            size,
            left: size,
            pieces: Rc::clone(pieces),
        }
    }
}

impl<D> Piece<D> {
    fn send(&mut self, bytes: usize) {
        self.left -= bytes;
        self.pieces.send(bytes);
    }
}

impl<D> Drop for Piece<D> {
    fn drop(&mut self) {
        self.pieces.budget.end(self.size);
        self.pieces.subtract(self.left);
        if self.pieces.unsent.get() == 0 {
            self.pieces.stream.has_written_all();
        }
    }
}

impl<D: Buf> Buf for Data<D> {
    fn remaining(&self) -> usize {
        match self {
            Self::Of(data) => data.remaining(),
            Self::Zeros(left) => *left,
        }
    }

    fn chunk(&self) -> &[u8] {
        match self {
            Self::Of(data) => data.chunk(),
            Self::Zeros(left) => &ZEROS[..ZEROS.len().min(*left)],
        }
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        match self {
            Self::Of(data) => data.chunks_vectored(slices),
            Self::Zeros(_) => match slices {
                [first, ..] if self.has_remaining() => {
                    *first = IoSlice::new(self.chunk());
                    1
                }
                _ => 0,
            },
        }
    }

    fn advance(&mut self, bytes: usize) {
        match self {
            Self::Of(data) => data.advance(bytes),
            Self::Zeros(left) => *left -= bytes,
        }
    }

    fn copy_to_bytes(&mut self, bytes: usize) -> Bytes {
        match self {
            Self::Of(data) => data.copy_to_bytes(bytes),
            Self::Zeros(left) => {
                *left -= bytes;
                vec![0; bytes].into()
            }
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
        self.send(bytes);
    }

    fn copy_to_bytes(&mut self, bytes: usize) -> Bytes {
        self.send(bytes);
        self.data.copy_to_bytes(bytes)
    }
}
