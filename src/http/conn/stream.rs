//! The stream that a protocol reads and writes: the socket of the connection. It writes into the
//! connection's state when bytes move.
//!
//! It also gathers the responses to pipelined requests into one send(2). Without that, 16 POST
//! requests at once need 4.0 times the CPU time (3.6 to 4.4 in five rounds), and one at a time as
//! much as with it (1.01). hyper's own `pipeline_flush` cannot be used for that: it writes
//! nothing while its read buffer holds bytes, not even on shutdown. So it loses the 400 for bytes
//! that are no request, the 431 for a head that is too long, and every response before a
//! `Connection: close` in the middle of a pipeline. And it holds a response back for ever if the
//! client ends its request with one line break too many.
//!
//! Here written bytes are held back only if hyper's last read returned bytes, because hyper's
//! buffer may then hold more requests, and if no write is blocked. Held bytes are sent with the
//! first write or flush after a read that returned nothing, with a flush that follows no write, or
//! when they are more than 16 KiB. If hyper makes none of these calls, the connection's task polls
//! hyper again before it sleeps, by [`ConnState::holds_back`].
//!
//! Long frames of HTTP/2 are gathered too, until h2 has no other, or as many as a segment has.
//!
//! This concerns hyper only. Plain requests are answered without hyper: their responses are written
//! into the held bytes, and the same code flushes them.

mod for_hyper;
mod pieces;
mod progress;

use std::cell::Cell;
use std::io;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use hyper::rt;
use tokio::io::ReadBuf;

use crate::http::conn::preface::Preface;
use crate::http::conn::socket::{Closed, Socket};
use crate::http::registry::member::Member;
use crate::http::registry::state::{ConnState, Stage};
use crate::pool::Buffer;
use crate::stats::{Count, WorkerStats};

/// Limit of held back bytes: some hundred small responses. Above it, one more send(2) is a small
/// part of the work.
const HOLD_BACK: usize = 16 * 1024;

/// Limit of bytes per read: the size that hyper's read buffer may grow to.
pub(crate) const READ_AT_ONCE: usize = 64 * 1024;

thread_local! {
    /// Reads from the socket go here first. hyper's buffer is uninitialised memory, which only
    /// `unsafe` code can read(2) into; a copy from here is cheaper than clearing that buffer each
    /// time.
    static READ_BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// The socket of a connection, as a protocol reads and writes it.
pub(crate) struct Stream<I: ?Sized> {
    drop_notice: DropNotice,
    stats: WorkerStats,
    preface: Preface,
    /// The bytes that were received and not parsed. A protocol parses them in this buffer, or reads
    /// them from the stream.
    input: BytesMut,
    /// Bytes that are held back. While hyper serves HTTP/1, the buffer stays until the stream ends:
    /// a client that pipelines needs it again at once.
    held: Option<Buffer>,
    last_read: LastRead,
    last_call: LastCall,
    gathers: Gathers,
    /// How many bytes were unacknowledged when a write was pending last.
    unacknowledged: usize,
    /// The last field, so that HTTP/2 can take a stream of any socket as a `Stream<dyn Socket>`.
    io: I,
}

/// When written bytes are held back, to be sent with the next ones.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gathers {
    /// If there may be more requests to respond to.
    Pipelined,
    /// Always: after its last response the protocol may have to write an end.
    All,
}

/// Result of hyper's last read. After bytes, another request may be in hyper's buffer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LastRead {
    Bytes,
    Nothing,
    /// The end of file, or an error.
    End,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum LastCall {
    Write,
    /// A write of a long frame of HTTP/2. h2 flushes after each, and once more after the last.
    Frame,
    Flush,
    /// A shutdown, before which the stream did not have to linger.
    End,
}

impl<I> Stream<I> {
    /// The stream of this connection over its socket.
    pub(crate) fn of_member(member: &Member, io: I) -> Self {
        let Member {
            registry, state, ..
        } = member;
        let preface = Preface::expected(&registry.http, state);
        Self::new(io, Arc::clone(state), registry.counters.stats(), preface)
    }

    /// The stream of a connection on which another server spoke HTTP/2, with the bytes which that
    /// server read and did not process.
    pub(crate) fn of_http2(member: &Member, io: I, read_ahead: Bytes) -> Self {
        Self {
            preface: Preface::Whole,
            input: read_ahead.into(),
            ..Self::of_member(member, io)
        }
    }

    pub(crate) fn new(io: I, state: Arc<ConnState>, stats: WorkerStats, preface: Preface) -> Self {
        state.begin_stream();
        Self {
            drop_notice: DropNotice(state),
            stats,
            preface,
            input: BytesMut::new(),
            held: None,
            last_read: LastRead::Nothing,
            last_call: LastCall::Flush,
            gathers: Gathers::Pipelined,
            unacknowledged: 0,
            io,
        }
    }

    /// The socket, and the bytes that were received and not parsed. The stream must hold nothing
    /// back.
    pub(crate) fn into_parts(self) -> (I, Bytes) {
        (self.io, self.input.freeze())
    }
}

impl<I: ?Sized> Stream<I> {
    /// The bytes that were received and not parsed.
    #[inline]
    pub(crate) fn input(&mut self) -> &mut BytesMut {
        &mut self.input
    }

    /// Takes the first bytes of the connection, which were received while it rested.
    pub(crate) fn begin_with(&mut self, input: BytesMut) {
        self.state().has_read();
        self.count(input.len(), Count::BytesIn, Count::TunnelBytesIn);
        if self.preface.check(&input).is_some() {
            self.input = input;
        }
    }

    /// Whether the input has no byte of a request: only line breaks, of which old clients send one
    /// or two between requests (RFC 9112 2.2).
    pub(crate) fn is_between_requests(&self) -> bool {
        let mut bytes = self.input.iter();
        bytes.all(|byte| matches!(byte, b'\r' | b'\n'))
    }

    /// Adds bytes before the input.
    pub(crate) fn put_back(&mut self, bytes: Bytes) {
        if !bytes.is_empty() {
            let later = mem::replace(&mut self.input, bytes.into());
            self.input.extend_from_slice(&later);
        }
    }

    /// Whether the first bytes of the connection were the preface of HTTP/2.
    pub(crate) fn begins_http2(&self) -> bool {
        self.preface == Preface::Whole
    }

    fn state(&self) -> &ConnState {
        &self.drop_notice.0
    }

    /// The socket itself, for the lingering close.
    pub(crate) fn io(&mut self) -> &mut I {
        &mut self.io
    }

    /// As [`Socket::has_unread`].
    pub(crate) fn has_unread(&self) -> bool
    where
        I: Socket,
    {
        self.io.has_unread()
    }

    /// Whether a reset could drop bytes before the client has them. close(2) resets the connection
    /// if there are unread bytes. The kernel resets it if bytes come after close(2). It has then
    /// nothing left to drop if the client's kernel has all. What was sent may be lost on the way.
    pub(crate) fn must_linger(&self) -> bool
    where
        I: Socket,
    {
        self.last_read != LastRead::End
            && self.last_call != LastCall::End
            && (self.io.has_unread() || self.io.unacknowledged() > 0)
    }

    fn holds_back(&self) -> bool {
        let is_wanted = self.last_read == LastRead::Bytes
            || self.last_call == LastCall::Frame
            || self.gathers == Gathers::All;
        // While a write is blocked, each call tries to send. Else hyper could stop with held bytes
        // and without a waker, and the connection's task would not know that no write is pending.
        is_wanted && self.state().may_hold() && self.state().write_blocked_since().is_none()
    }

    #[cfg(feature = "http2")]
    pub(crate) fn set_gathers(&mut self, gathers: Gathers) {
        self.gathers = gathers;
    }

    /// How many bytes are held back.
    #[inline]
    pub(crate) fn held_len(&self) -> usize {
        self.held.as_ref().map_or(0, Buf::remaining)
    }

    /// Buffer for responses that the next flush sends.
    #[inline]
    pub(crate) fn held(&mut self) -> &mut Buffer {
        self.last_call = LastCall::Flush;
        self.held.get_or_insert_with(Buffer::take)
    }

    /// Call this after bytes were added to [`Stream::held`].
    #[inline]
    pub(crate) fn note_held(&self) {
        self.drop_notice.0.set_held_back(self.held_len());
    }

    /// Holds these bytes back too.
    pub(crate) fn hold(&mut self, bytes: &[u8]) {
        self.held().extend_from_slice(bytes);
        self.note_held();
    }

    /// Replaces the last `from` in the held back bytes by `to`, if there is one.
    pub(crate) fn amend(&mut self, from: &[u8], to: &[u8]) {
        if let Some(held) = &mut self.held {
            let mut places = held.as_slice().windows(from.len());
            if let Some(at) = places.rposition(|bytes| bytes == from) {
                let rest = held.as_slice()[at + from.len()..].to_vec();
                held.truncate(at);
                held.extend_from_slice(to);
                held.extend_from_slice(&rest);
            }
        }
    }

    /// Whether the last read was the end of file, or an error.
    #[cfg(feature = "http2")]
    pub(crate) fn has_ended(&self) -> bool {
        self.last_read == LastRead::End
    }

    /// Whether a write waits for the client.
    #[cfg(feature = "http2")]
    pub(crate) fn is_write_blocked(&self) -> bool {
        self.state().write_blocked_since().is_some()
    }

    /// Gives up the buffer for held back bytes, if it is empty.
    #[inline]
    pub(crate) fn release(&mut self) {
        self.held = self.held.take().filter(Buf::has_remaining);
    }

    /// Whether more than [`HOLD_BACK`] bytes are held back.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.held_len() > HOLD_BACK
    }

    /// Counts bytes. Once an upgrade is asked for, nothing is held back and the stream may go to
    /// another thread. It goes in the same poll of the connection's task in which the stage becomes
    /// `Upgraded`. The worker counts no other bytes in between.
    fn count(&self, bytes: usize, direct: Count, after_upgrade: Count) {
        let bytes = bytes as u64;
        if self.state().may_hold() {
            self.stats.add(direct, bytes);
        } else if self.state().stage() == Stage::Upgraded {
            self.stats.add_shared(after_upgrade, bytes);
        } else {
            self.stats.add_shared(direct, bytes);
        }
    }

    fn check_cut(&self) -> io::Result<()> {
        match self.state().is_cut() {
            true => Err(io::ErrorKind::ConnectionAborted.into()),
            false => Ok(()),
        }
    }

    /// Fails if the client has gone, which ends the request and its response. While a handler
    /// works, or the body of its response is silent, hyper reads nothing and flushes each time it
    /// is polled. So a flush calls this when the registry asks for it.
    fn check_client(&self) -> io::Result<()>
    where
        I: Socket,
    {
        let left = match self.io.closed() {
            Closed::Nothing => false,
            // The client may still read. But most such clients have gone, and only a write that is
            // refused would show that.
            Closed::Sending => {
                matches!(self.state().stage(), Stage::Handling | Stage::Responding)
            }
            Closed::Everything => true,
        };
        match left {
            true => Err(io::ErrorKind::ConnectionReset.into()),
            false => Ok(()),
        }
    }
}

impl<I: Socket + ?Sized> Stream<I> {
    /// Sends the held back bytes.
    pub(crate) fn poll_send_held(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_send_by(cx, |io, cx, bytes| Pin::new(io).poll_write(cx, bytes))
    }

    fn poll_send_by(
        &mut self,
        cx: &mut Context<'_>,
        write: impl Fn(&mut I, &mut Context<'_>, &[u8]) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<()>> {
        while let Some(held) = self.held.as_mut().filter(|held| held.has_remaining()) {
            let written = write(&mut self.io, cx, held.as_slice());
            if let Poll::Ready(Ok(count)) = written {
                held.advance(count);
                self.drop_notice.0.set_held_back(held.remaining());
            }
            if ready!(self.note_write(cx, written))? == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
        }
        Poll::Ready(Ok(()))
    }

    /// As a flush, but it uses nothing of the task's budget. The caller must yield to other tasks
    /// by itself.
    #[inline]
    pub(crate) fn poll_flush_unconstrained(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        self.check_cut()?;
        ready!(self.poll_send_by(cx, I::poll_write_unconstrained))?;
        rt::Write::poll_flush(Pin::new(self), cx)
    }

    /// Sends the held back bytes and ends the stream.
    pub(crate) fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.io.is_bare() {
            // Bytes that are sent before the end of file have the write timeout.
            ready!(rt::Write::poll_flush(Pin::new(self), cx))?;
        }
        self.poll_send_last(cx)
    }
}

impl<I: Socket + ?Sized> Stream<I> {
    /// Reads at most `max` bytes from the socket and passes them to `put`, with the input. Returns
    /// how many; zero is the end of file.
    #[inline]
    fn poll_read_with(
        &mut self,
        cx: &mut Context<'_>,
        max: usize,
        mut put: impl FnMut(&mut BytesMut, &[u8]),
        read: impl FnOnce(&mut I, &mut Context<'_>, &mut ReadBuf<'_>) -> Poll<io::Result<()>>,
    ) -> Poll<io::Result<usize>> {
        self.check_cut()?;
        let mut buffer = READ_BUFFER.take();
        buffer.resize(READ_AT_ONCE, 0);
        let max = max.min(READ_AT_ONCE) - self.preface.withheld();
        let mut read_buf = ReadBuf::new(&mut buffer[..max]);
        let mut passed = Some(0);
        let read = read(&mut self.io, cx, &mut read_buf).map_ok(|()| {
            let read = read_buf.filled();
            passed = self.preface.check(read).map(|before| {
                put(&mut self.input, before);
                put(&mut self.input, read);
                before.len() + read.len()
            });
            read.len()
        });
        READ_BUFFER.set(buffer);
        self.last_read = match read {
            Poll::Ready(Ok(1..)) => LastRead::Bytes,
            Poll::Ready(_) => LastRead::End,
            Poll::Pending => LastRead::Nothing,
        };
        match read {
            Poll::Ready(Ok(bytes @ 1..)) => {
                self.state().has_read();
                self.count(bytes, Count::BytesIn, Count::TunnelBytesIn);
            }
            Poll::Pending => {
                self.state().park_read(cx.waker());
                if self.io.has_part() {
                    self.state().has_read();
                }
            }
            Poll::Ready(_) => {}
        }
        match passed {
            Some(passed) => read.map_ok(|_| passed),
            None => {
                // All bytes are withheld, and to return zero would be the end of file.
                cx.waker().wake_by_ref();
                Poll::Pending
            }
        }
    }

    /// As [`Socket::is_bare`].
    pub(crate) fn is_bare(&self) -> bool {
        self.io.is_bare()
    }

    /// As [`Socket::poll_readable`].
    pub(crate) fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.state().is_cut() {
            ready!(self.io.poll_readable(cx));
        }
        Poll::Ready(())
    }

    /// Reads bytes from the socket and appends them to the input, which holds less than
    /// [`READ_AT_ONCE`]. Returns how many; zero is the end of file. It uses nothing of the task's
    /// budget: the caller must yield to other tasks by itself.
    pub(crate) fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let max = READ_AT_ONCE - self.input.len();
        let put = |input: &mut BytesMut, bytes: &[u8]| input.extend_from_slice(bytes);
        self.poll_read_with(cx, max, put, I::poll_read_unconstrained)
    }
}

/// Its drop is the end of the stream. A task may wait for that after an upgrade.
struct DropNotice(Arc<ConnState>);

impl Drop for DropNotice {
    fn drop(&mut self) {
        self.0.end_stream();
    }
}
