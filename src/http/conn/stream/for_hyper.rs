//! The stream as hyper uses it: reads go into hyper's buffer, and written bytes are held back,
//! gathered, or sent.

use std::cell::Cell;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use hyper::rt;
use tokio::io::ReadBuf;

use crate::http::conn::socket::Socket;
use crate::http::conn::stream::{HOLD_BACK, LastCall, LastRead, Stream};
use crate::http::registry::state::Stage;
use crate::pool::Buffer;

/// Up to this many bytes, a head and a body are copied into one buffer. send(2) of one buffer costs
/// less than writev(2) of two, by more than the copy.
const FLATTEN: usize = 2 * 1024;

/// A frame of HTTP/2 from this length on waits for the next one.
#[cfg(feature = "http2")]
const FRAME: usize = 2 * 1024;

/// Limit of frames that wait. With what TLS adds they fit into a segment of the loopback device.
#[cfg(feature = "http2")]
const FRAMES_MAX: usize = 63 * 1024;

thread_local! {
    /// Buffer for that copy.
    static FLAT: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

impl<I: Socket + ?Sized> Stream<I> {
    /// Whether hyper may write its own response to bytes that are no head: see `poll_shutdown`. If
    /// they came with the request before, the stage is `Idle`. It is also `Idle` after a response
    /// to a request whose body nobody has read. Then hyper may read nothing more, and each flush
    /// could wait for more.
    fn is_between_heads(&self) -> bool {
        matches!(self.state().stage(), Stage::Head | Stage::Idle) && !self.state().is_body_open()
    }

    /// Sends the held back bytes and the end of file. The stream is dropped right after it.
    pub(super) fn poll_send_last(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check_cut()?;
        // The client that asks for the end sends nothing more. Another one may have sent requests
        // before the last response says that the connection ends.
        let lingers = self.must_linger() || self.may_send_more();
        if !lingers {
            self.last_call = LastCall::End;
        }
        if lingers || !self.io.is_bare() || self.state().stage() == Stage::Upgraded {
            ready!(self.poll_send_held(cx))?;
            let shut = Pin::new(&mut self.io).poll_shutdown(cx);
            if shut.is_pending() && self.state().stage() == Stage::Idle {
                // TLS sends its own end first. The connection must not rest before.
                self.state().enter(Stage::Closing);
            }
            return shut;
        }
        // One system call is enough for both.
        self.poll_send_by(cx, I::poll_write_last)
    }

    fn may_send_more(&self) -> bool {
        self.last_read != LastRead::End && self.state().ends_after_response()
    }

    /// Writes these bytes, or holds them back. At most `max` bytes are held back.
    fn poll_write_or_hold(
        &mut self,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
        max: usize,
    ) -> Poll<io::Result<usize>> {
        self.check_cut()?;
        let len = bufs.iter().map(|buf| buf.len()).sum::<usize>();
        if self.held_len() + len > max {
            ready!(self.poll_send_held(cx))?;
        }
        if (self.holds_back() || self.held_len() > 0) && len <= max {
            return self.poll_gather(cx, bufs);
        }
        let written = match bufs {
            [buf] => Pin::new(&mut self.io).poll_write(cx, buf),
            _ if len <= FLATTEN => self.poll_write_flat(cx, bufs),
            _ => Pin::new(&mut self.io).poll_write_vectored(cx, bufs),
        };
        self.note_write(cx, written)
    }

    /// As `poll_write_vectored`. A long frame waits for the next one. h2 passes its payload apart;
    /// short frames come in one piece.
    #[cfg(feature = "http2")]
    pub(crate) fn poll_write_frames(
        &mut self,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let is_long = bufs.iter().map(|buf| buf.len()).sum::<usize>() >= FRAME;
        self.last_call = match is_long && bufs.len() > 1 {
            true => LastCall::Frame,
            false => LastCall::Write,
        };
        self.poll_write_or_hold(cx, bufs, FRAMES_MAX)
    }

    /// Holds these bytes back too. Sends all held bytes, unless there is a reason to wait for more.
    /// If they cannot be sent now, the next flush reports that.
    fn poll_gather(
        &mut self,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let held = self.held.get_or_insert_with(Buffer::take);
        let before = held.remaining();
        bufs.iter().for_each(|buf| held.extend_from_slice(buf));
        let len = held.remaining() - before;
        self.drop_notice.0.set_held_back(held.remaining());
        if !self.holds_back()
            && let Poll::Ready(sent) = self.poll_send_held(cx)
        {
            sent?;
        }
        Poll::Ready(Ok(len))
    }

    fn poll_write_flat(
        &mut self,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut flat = FLAT.take();
        flat.clear();
        bufs.iter().for_each(|buf| flat.extend_from_slice(buf));
        let written = Pin::new(&mut self.io).poll_write(cx, &flat);
        FLAT.set(flat);
        written
    }
}

impl<I: Socket + ?Sized> Stream<I> {
    /// Reads at most `max` bytes of the input, or from the socket, and passes the bytes to `see`.
    pub(crate) fn poll_read_seen(
        &mut self,
        cx: &mut Context<'_>,
        mut buf: rt::ReadBufCursor<'_>,
        max: usize,
        mut see: impl FnMut(&[u8]),
    ) -> Poll<io::Result<()>> {
        let max = buf.remaining().min(max);
        let mut put = |bytes: &[u8]| {
            buf.put_slice(bytes);
            see(bytes);
        };
        if !self.input.is_empty() {
            self.check_cut()?;
            put(&self.input.split_to(self.input.len().min(max)));
            if self.input.is_empty() {
                self.input = BytesMut::new();
            }
            self.last_read = LastRead::Bytes;
            self.state().has_read();
            return Poll::Ready(Ok(()));
        }
        let read = |io: &mut I, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>| {
            Pin::new(io).poll_read(cx, buf)
        };
        self.poll_read_with(cx, max, |_, bytes| put(bytes), read)
            .map_ok(drop)
    }
}

impl<I: Socket + ?Sized> rt::Read for Stream<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: rt::ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        self.poll_read_seen(cx, buf, usize::MAX, |_| {})
    }
}

impl<I: Socket + ?Sized> rt::Write for Stream<I> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.last_call = LastCall::Write;
        self.poll_write_or_hold(cx, &[IoSlice::new(buf)], HOLD_BACK)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.last_call = LastCall::Write;
        self.poll_write_or_hold(cx, bufs, HOLD_BACK)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        this.check_cut()?;
        if matches!(this.last_call, LastCall::Write | LastCall::Frame) && this.holds_back() {
            if this.last_call == LastCall::Frame || !this.is_between_heads() {
                this.last_call = LastCall::Flush;
            }
            return Poll::Ready(Ok(()));
        }
        this.last_call = LastCall::Flush;
        ready!(this.poll_send_held(cx))?;
        let flushed = Pin::new(&mut this.io).poll_flush(cx);
        // A TLS stream accepts more bytes than the kernel takes, and sends the rest when it is
        // flushed.
        if flushed.is_pending() {
            this.note_blocked(cx);
        } else {
            this.note_all_written();
        }
        ready!(flushed)?;
        // Not earlier: bytes that are being sent have the write timeout.
        if this.state().is_client_check_due() {
            this.check_client()?;
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        this.check_cut()?;
        if this.is_between_heads() && this.held_len() > 0 {
            // hyper may have responded to bytes that are no head. The connection's task examines
            // that response before it sends it and ends the stream.
            return Poll::Ready(Ok(()));
        }
        this.poll_send_last(cx)
    }
}
