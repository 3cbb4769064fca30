//! The stream as hyper uses it. hyper's HTTP/2 connection does not return its stream, and the
//! server writes a GOAWAY after hyper has ended. A connection that has rested reads a replay first.

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use hyper::rt::{Read, ReadBufCursor, Write};

use crate::http::conn::socket::Socket;
use crate::http::conn::stream::Stream;
use crate::http::http2::frames::Frames;

/// The stream of any socket. So hyper and h2, a large part of a binary, are compiled once.
pub(crate) type AnyStream = Stream<dyn Socket>;

/// The stream as hyper uses it. Only hyper reads and writes while it serves the connection.
pub(crate) struct HyperStream {
    pub(crate) stream: Rc<RefCell<AnyStream>>,
    pub(crate) frames: Rc<Frames>,
}

impl HyperStream {
    fn note_written(
        &self,
        bufs: &[IoSlice<'_>],
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(count)) = written {
            self.frames.wrote(bufs, count);
        }
        written
    }
}

/// Reads input for a connection that goes away. Ready with how much of it may be read. What has
/// come is in it before the acknowledgement.
fn poll_before_acknowledgement(
    stream: &mut AnyStream,
    frames: &Frames,
    cx: &mut Context<'_>,
) -> Poll<io::Result<usize>> {
    loop {
        let count = frames.hold_acknowledgement(stream.input());
        if count > 0 {
            return Poll::Ready(Ok(count));
        }
        match stream.poll_fill(cx)? {
            Poll::Ready(0) => return Poll::Ready(Ok(usize::MAX)),
            Poll::Ready(_) => {}
            Poll::Pending => match frames.held_acknowledgement() {
                Some(frame) => stream.input().extend_from_slice(&frame),
                None => return Poll::Pending,
            },
        }
    }
}

/// Reads input for a connection that is to move. Ready with how much of the input may be read; the
/// rest begins with a new stream.
fn poll_before_new_stream(
    stream: &mut AnyStream,
    frames: &Frames,
    cx: &mut Context<'_>,
) -> Poll<io::Result<usize>> {
    loop {
        let count = frames.admit(stream.input());
        if count > 0 {
            return Poll::Ready(Ok(count));
        }
        if frames.are_full(stream.input()) {
            // The connection is polled when a stream ends, or when it stays.
            return Poll::Pending;
        }
        if ready!(stream.poll_fill(cx))? == 0 {
            frames.release_new_streams(stream.input());
            return Poll::Ready(Ok(usize::MAX));
        }
    }
}

impl Read for HyperStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { stream, frames } = &*self;
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
        let mut max = usize::MAX;
        if frames.goes_away() {
            max = ready!(poll_before_acknowledgement(&mut stream, frames, cx))?;
        } else if frames.new_streams_wait() {
            max = ready!(poll_before_new_stream(&mut stream, frames, cx))?;
        }
        if !frames.new_streams_wait() && !stream.input().is_empty() {
            max = max.min(frames.admit(stream.input()));
        }
        if max == 0 {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        ready!(stream.poll_read_seen(cx, buf, max, |bytes| frames.read(bytes)))?;
        Poll::Ready(match frames.are_exceeded() {
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
        if self.frames.is_replaying() {
            return Poll::Ready(Ok(buf.len()));
        }
        let written = Pin::new(&mut *self.stream.borrow_mut()).poll_write(cx, buf);
        self.note_written(&[IoSlice::new(buf)], written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.frames.is_replaying() {
            return Poll::Ready(Ok(bufs.iter().map(|buf| buf.len()).sum()));
        }
        let written = Pin::new(&mut *self.stream.borrow_mut()).poll_write_vectored(cx, bufs);
        self.note_written(bufs, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.borrow().is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.frames.is_replaying() {
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut *self.stream.borrow_mut()).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.stream.borrow_mut()).poll_shutdown(cx)
    }
}
