//! The stream as hyper uses it. hyper's HTTP/2 connection does not return its stream, and the
//! server writes a GOAWAY after hyper has ended. A connection that has rested reads a replay first.

use std::cell::{Cell, RefCell};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use hyper::rt::{Read, ReadBufCursor, Write};

use crate::http::conn::socket::Socket;
use crate::http::conn::stream::Stream;
use crate::http::http2::budget::ResponseBudget;
use crate::http::http2::frames::{Admitted, Frames};

/// The stream of any socket. So hyper and h2, a large part of a binary, are compiled once.
pub(crate) type AnyStream = Stream<dyn Socket>;

/// The stream as hyper uses it. Only hyper reads and writes while it serves the connection.
pub(crate) struct HyperStream {
    stream: Rc<RefCell<AnyStream>>,
    budget: Rc<ResponseBudget>,
    /// How many bytes that the stream holds back are counted in the budget.
    held: Cell<usize>,
}

impl HyperStream {
    pub(crate) fn new(stream: &Rc<RefCell<AnyStream>>, budget: &Rc<ResponseBudget>) -> Self {
        Self {
            stream: Rc::clone(stream),
            budget: Rc::clone(budget),
            held: Cell::new(0),
        }
    }

    fn count_held(&self, held: usize) {
        self.budget.begin(held);
        self.budget.end(self.held.replace(held));
    }

    /// The client has taken bytes. If reading has waited for that, the next poll reads.
    fn go_on_reading(&self, cx: &Context<'_>) {
        if self.budget.frames.unanswered.end() {
            cx.waker().wake_by_ref();
        }
    }
}

/// Reads input that [`Frames`] must see first. Ready with how much of it h2 may read.
fn poll_admitted(
    stream: &mut AnyStream,
    frames: &Frames,
    cx: &mut Context<'_>,
) -> Poll<io::Result<Admitted>> {
    loop {
        match frames.admit(stream.input()) {
            Admitted::Bytes(0) => {}
            admitted => return Poll::Ready(Ok(admitted)),
        }
        if frames.are_full(stream.input()) {
            // The connection is polled when a stream ends, or when it stays.
            return Poll::Pending;
        }
        match stream.poll_fill(cx)? {
            Poll::Ready(0) => {
                frames.release_new_streams(stream.input());
                return Poll::Ready(Ok(match frames.admit(stream.input()) {
                    // A part of a frame, and the end.
                    Admitted::Bytes(0) => Admitted::Bytes(usize::MAX),
                    admitted => admitted,
                }));
            }
            Poll::Ready(_) => {}
            Poll::Pending => match frames.held_acknowledgement() {
                Some(frame) => stream.input().extend_from_slice(&frame),
                None => return Poll::Pending,
            },
        }
    }
}

impl Read for HyperStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { stream, budget, .. } = &*self;
        let frames = &budget.frames;
        if let Some(replay) = frames.read_replay(buf.remaining()) {
            if replay.is_empty() {
                // The connection is polled again when the replay is over.
                return Poll::Pending;
            }
            buf.put_slice(&replay);
            return Poll::Ready(Ok(()));
        }
        if frames.are_many() {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let mut stream = stream.borrow_mut();
        if frames.unanswered.are_many() && stream.is_write_blocked() {
            return Poll::Pending;
        }
        let admitted = if frames.hold_input() {
            ready!(poll_admitted(&mut stream, frames, cx))?
        } else if stream.input().is_empty() {
            Admitted::Bytes(usize::MAX)
        } else {
            frames.admit(stream.input())
        };
        let Admitted::Bytes(max) = admitted else {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        };
        ready!(stream.poll_read_seen(cx, buf, max, |bytes| frames.read(bytes)))?;
        Poll::Ready(match frames.credits.are_exceeded() {
            true => Err(io::Error::other("frames without a request")),
            false => Ok(()),
        })
    }
}

impl Write for HyperStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.budget.frames.is_replaying() {
            return Poll::Ready(Ok(bufs.iter().map(|buf| buf.len()).sum()));
        }
        let mut stream = self.stream.borrow_mut();
        let written = match self.budget.is_worker_full() {
            true => Pin::new(&mut *stream).poll_write_vectored(cx, bufs),
            false => stream.poll_write_frames(cx, bufs),
        };
        self.count_held(stream.held_len());
        if let Poll::Ready(Ok(count)) = written {
            self.budget.frames.wrote(bufs, count);
            self.go_on_reading(cx);
        }
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.borrow().is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.budget.frames.is_replaying() {
            return Poll::Ready(Ok(()));
        }
        let mut stream = self.stream.borrow_mut();
        let flushed = Pin::new(&mut *stream).poll_flush(cx);
        self.count_held(stream.held_len());
        if let Poll::Ready(Ok(())) = flushed {
            // Other connections can use the buffer, which may be large.
            stream.release();
            self.go_on_reading(cx);
        }
        flushed
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.stream.borrow_mut()).poll_shutdown(cx)
    }
}

impl Drop for HyperStream {
    fn drop(&mut self) {
        self.count_held(0);
    }
}
