//! The stream that HTTP sees: the connection's socket, noting each byte that moves.
//!
//! It also gathers the answers of pipelined requests into one send(2), which is worth a factor of
//! six to a client that pipelines. hyper's own `pipeline_flush` cannot be used for that: it writes
//! nothing as long as its read buffer holds anything, not even on shutdown. So it loses the 400
//! for bytes that are no request, the 431 for a head too long, every answer that a
//! `Connection: close` in mid-pipeline follows, and holds an answer back for ever from a client
//! that ends its request with one line break too many.
//!
//! Here written bytes are held back only if hyper's last read brought some, so that more requests
//! may be waiting in its buffer. They leave with the first write or flush after a read that brought
//! nothing, with a flush after no write, or when they are many. Should hyper do none of that, the
//! connection's task sees to it before it sleeps, by [`ConnState::holds_back`].
//!
//! All that is about hyper. Plain requests are answered into the held bytes, and whoever does that
//! flushes them.

mod for_hyper;

use std::cell::Cell;
use std::io;
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

/// As many bytes as are held back for more: some hundred small answers. Beyond, one more send(2) is
/// a small part of the work.
const HOLD_BACK: usize = 16 * 1024;

/// As many bytes as are read at once, at the most: the size that hyper's read buffer may grow to.
pub(crate) const READ_AT_ONCE: usize = 64 * 1024;

thread_local! {
    /// Where socket bytes land first. hyper's buffer is uninitialised memory, which only `unsafe`
    /// code can read(2) into; a copy from here is cheaper than clearing that buffer each time.
    static LANDING: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// See the module's head.
pub(crate) struct Stream<I> {
    io: I,
    drop_notice: DropNotice,
    stats: WorkerStats,
    preface: Preface,
    /// Read before, and not understood yet.
    ahead: Bytes,
    /// What is held back. For hyper the buffer stays until the stream ends: whoever pipelines needs
    /// it again at once.
    held: Option<Buffer>,
    last_read: LastRead,
    last_call: LastCall,
}

/// What hyper's last read brought: after bytes there may be another request in its buffer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LastRead {
    Bytes,
    Nothing,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum LastCall {
    Write,
    Flush,
}

impl<I> Stream<I> {
    /// What hyper sees of this connection's socket.
    pub(crate) fn of_member(member: &Member, io: I) -> Self {
        let Member {
            registry, state, ..
        } = member;
        let preface = Preface::expected(&registry.http, state);
        Self::new(io, Arc::clone(state), registry.counters.stats(), preface)
    }

    pub(crate) fn new(io: I, state: Arc<ConnState>, stats: WorkerStats, preface: Preface) -> Self {
        state.begin_stream();
        Self {
            io,
            drop_notice: DropNotice(state),
            stats,
            preface,
            ahead: Bytes::new(),
            held: None,
            last_read: LastRead::Nothing,
            last_call: LastCall::Flush,
        }
    }

    /// The socket, and what was read from it and not understood. Nothing may be held back.
    pub(crate) fn into_parts(self) -> (I, Bytes) {
        (self.io, self.ahead)
    }

    /// The next reads bring these bytes, before others that were put back.
    pub(crate) fn put_back(&mut self, read_ahead: Bytes) {
        self.ahead = match (self.ahead.is_empty(), read_ahead.is_empty()) {
            (true, _) => read_ahead,
            (false, true) => return,
            (false, false) => [&read_ahead[..], &self.ahead[..]].concat().into(),
        };
    }

    /// What was put back.
    pub(crate) fn read_ahead(&self) -> &[u8] {
        &self.ahead
    }

    /// Whether the first bytes of the connection were the preface of HTTP/2.
    pub(crate) fn begins_http2(&self) -> bool {
        self.preface == Preface::Whole
    }

    fn state(&self) -> &ConnState {
        &self.drop_notice.0
    }

    /// The socket itself, for our own last words.
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

    fn holds_back(&self) -> bool {
        self.last_read == LastRead::Bytes && self.state().may_hold()
    }

    #[inline]
    fn held_len(&self) -> usize {
        self.held.as_ref().map_or(0, Buf::remaining)
    }

    /// Where answers are put together that are sent with the next flush.
    #[inline]
    pub(crate) fn held(&mut self) -> &mut Buffer {
        self.last_call = LastCall::Flush;
        self.held.get_or_insert_with(Buffer::take)
    }

    /// To be called when one was.
    #[inline]
    pub(crate) fn note_held(&self) {
        self.drop_notice.0.set_held_back(self.held_len());
    }

    /// Replaces `from` by `to` where it stands last in what is held back, if it does.
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

    /// Gives the room for them away, if it is empty.
    #[inline]
    pub(crate) fn release(&mut self) {
        self.held = self.held.take().filter(Buf::has_remaining);
    }

    /// Whether as much is held as may be.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.held_len() > HOLD_BACK
    }

    /// An upgrade gives the stream away, perhaps to another thread; nothing is held back from then
    /// on.
    fn count(&self, bytes: usize, direct: Count, after_upgrade: Count) {
        if self.state().may_hold() {
            self.stats.add(direct, bytes as u64);
        } else {
            self.stats.add_shared(after_upgrade, bytes as u64);
        }
    }

    fn check_cut(&self) -> io::Result<()> {
        match self.state().is_cut() {
            true => Err(io::ErrorKind::ConnectionAborted.into()),
            false => Ok(()),
        }
    }

    /// While a handler works, or the body of its answer is silent, hyper flushes each time it is
    /// polled and reads nothing. So this is where the registry's question is answered whether the
    /// client is still there: one that has left has no use for the answer, and the error ends both.
    fn look(&self) -> io::Result<()>
    where
        I: Socket,
    {
        let left = match self.io.closed() {
            Closed::Nothing => false,
            // It may still read, but most have left, and only bytes that are refused would tell.
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

impl<I: Socket> Stream<I> {
    /// Sends what is held back.
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

    /// A flush for somebody who leaves others their turn unasked.
    #[inline]
    pub(crate) fn poll_flush_unconstrained(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        self.check_cut()?;
        ready!(self.poll_send_by(cx, I::poll_write_unconstrained))?;
        rt::Write::poll_flush(Pin::new(self), cx)
    }

    /// Sends what is held back, and ends the stream.
    pub(crate) fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.io.is_bare() {
            // What has to leave before has a deadline of its own.
            ready!(rt::Write::poll_flush(Pin::new(self), cx))?;
        }
        rt::Write::poll_shutdown(Pin::new(self), cx)
    }

    fn note_write(
        &mut self,
        cx: &Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        match written {
            Poll::Pending => self.note_blocked(cx),
            Poll::Ready(Ok(bytes @ 1..)) => {
                self.state().has_written(bytes);
                self.count(bytes, Count::BytesOut, Count::TunnelBytesOut);
            }
            Poll::Ready(_) => {}
        }
        written
    }

    /// A write or a flush is pending. The client has taken some all the same, if bytes have left.
    fn note_blocked(&mut self, cx: &Context<'_>) {
        let sent = self.io.take_sent();
        if sent > 0 {
            self.state().has_written(sent);
        }
        self.state().write_blocked();
        self.state().park_write(cx.waker());
    }
}

impl<I: Socket> Stream<I> {
    /// Reads at most `room` bytes, and says how many `put` was given: none is the end of file.
    #[inline]
    fn poll_bring(
        &mut self,
        cx: &mut Context<'_>,
        room: usize,
        mut put: impl FnMut(&[u8]),
        read: impl FnOnce(&mut I, &mut Context<'_>, &mut ReadBuf<'_>) -> Poll<io::Result<()>>,
    ) -> Poll<io::Result<usize>> {
        self.check_cut()?;
        if !self.ahead.is_empty() {
            let len = self.ahead.len().min(room);
            put(&self.ahead.split_to(len));
            self.last_read = LastRead::Bytes;
            self.state().has_read();
            return Poll::Ready(Ok(len));
        }
        let mut landing = LANDING.take();
        landing.resize(READ_AT_ONCE, 0);
        let room = room.min(READ_AT_ONCE) - self.preface.kept();
        let mut landed = ReadBuf::new(&mut landing[..room]);
        let mut brought = Some(0);
        let read = read(&mut self.io, cx, &mut landed).map_ok(|()| {
            let read = landed.filled();
            brought = self.preface.judge(read).map(|before| {
                put(before);
                put(read);
                before.len() + read.len()
            });
            read.len()
        });
        LANDING.set(landing);
        self.last_read = match read {
            Poll::Ready(Ok(1..)) => LastRead::Bytes,
            _ => LastRead::Nothing,
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
        match brought {
            Some(brought) => read.map_ok(|_| brought),
            None => {
                // Nothing to be read yet, and that would be the end of file.
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
        if self.ahead.is_empty() && !self.state().is_cut() {
            ready!(self.io.poll_readable(cx));
        }
        Poll::Ready(())
    }

    /// Reads what has come, behind what is there, which is less than [`READ_AT_ONCE`]. Says how
    /// much that is; none is the end of file. It is for somebody who leaves others their turn
    /// unasked.
    pub(crate) fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        input: &mut BytesMut,
    ) -> Poll<io::Result<usize>> {
        let room = READ_AT_ONCE - input.len();
        let put = |bytes: &[u8]| input.extend_from_slice(bytes);
        self.poll_bring(cx, room, put, I::poll_read_unconstrained)
    }
}

/// The stream's end, for whoever waits for it after an upgrade.
struct DropNotice(Arc<ConnState>);

impl Drop for DropNotice {
    fn drop(&mut self) {
        self.0.end_stream();
    }
}
