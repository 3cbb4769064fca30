//! The interface that connections need of a socket.

use std::fs::File;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf, Ready};

use crate::http::info::ConnectionInfo;
use crate::http::registry::state::Stage;
use crate::moved::Moved;

/// A byte stream that carries HTTP. Something else may come first, such as a TLS handshake:
/// [`Socket::poll_open`] does that.
pub(crate) trait Socket: AsyncRead + AsyncWrite + Unpin + Send + 'static {
    /// Whether the kernel has bytes that were not read yet (recv(2), `MSG_PEEK`). The runtime
    /// learns of such bytes only at the next turn of its event loop.
    fn has_unread(&self) -> bool;

    /// Number of bytes that were written and that have not arrived at the client's kernel, as far
    /// as this one knows. The end of file counts as one. Zero if the kernel does not tell.
    fn unacknowledged(&self) -> usize {
        0
    }

    /// Passes the first bytes to `put`, if they can be read before the runtime waits for them. They
    /// do not come again. Called before each [`Socket::poll_readable`] of a connection that rests.
    fn read_first(&mut self, _put: impl FnOnce(&[u8]))
    where
        Self: Sized,
    {
    }

    /// Ready when a read does not have to wait for bytes, the end of file, or an error. It reads
    /// nothing and needs no buffer. After it was ready once, it may be ready again although a read
    /// would wait.
    fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<()>;

    /// What the client has closed, as far as the runtime knows. It reads nothing.
    fn closed(&self) -> Closed;

    /// Number of bytes that were sent to the client since the last call while a write or a flush
    /// was pending: a TLS stream accepts more bytes than the kernel takes, and sends them in parts.
    /// Always 0 for a socket that cannot do that.
    fn take_sent(&mut self) -> usize {
        0
    }

    /// Whether bytes have come since the last call that no read has returned yet: a TLS record
    /// comes in several segments.
    fn has_part(&mut self) -> bool {
        false
    }

    /// Whether the socket is the kernel's own, without a layer such as TLS. Then close(2) tells the
    /// client as much as a shutdown does. And a read that returns an error, or less than there is
    /// space for, leaves nothing to read.
    fn is_bare(&self) -> bool {
        false
    }

    /// As `poll_read`, but it uses nothing of the task's budget (see [`tokio::task::coop`]). The
    /// caller must yield to other tasks by itself.
    fn poll_read_unconstrained(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(self).poll_read(cx, buf)
    }

    /// As `poll_write`, but it uses nothing of the task's budget. The caller must yield to other
    /// tasks by itself.
    fn poll_write_unconstrained(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(self).poll_write(cx, bytes)
    }

    /// Whether the socket sends parts of files by itself ([`Socket::poll_send_file`]).
    fn sends_files(&self) -> bool {
        false
    }

    /// As `poll_write_unconstrained`, for bytes that a part of a file follows at once. The kernel
    /// may hold them until the part comes, so that both share a segment.
    fn poll_write_before_file(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_unconstrained(cx, bytes)
    }

    /// Sends at most `length` bytes of the file, from the position `at` on. It uses nothing of the
    /// task's budget. Zero: the file ends before. An error of the kind `InvalidData` is the file's.
    /// Called only if [`Socket::sends_files`].
    fn poll_send_file(
        &mut self,
        _cx: &mut Context<'_>,
        _file: &File,
        _at: u64,
        _length: usize,
    ) -> Poll<io::Result<usize>> {
        Poll::Ready(Err(io::ErrorKind::Unsupported.into()))
    }

    /// Writes the last bytes of the connection, and sends the end of file together with them if it
    /// can. Called on a bare socket only; close(2) comes right after.
    fn poll_write_last(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(self).poll_write(cx, bytes)
    }

    /// Does what comes before HTTP, such as a TLS handshake, and returns the version of HTTP to
    /// serve. Polled until it is ready, before any byte is read or written. The header timeout
    /// limits it.
    fn poll_open(&mut self, _cx: &mut Context<'_>) -> Poll<io::Result<Version>> {
        Poll::Ready(Ok(Version::Http1))
    }

    /// The stage of the connection while [`Socket::poll_open`] is pending.
    fn open_stage(&self) -> Stage {
        Stage::Unopened
    }

    /// Whether another server handed the connection over while it was idle, so that the next bytes
    /// need not be its first.
    fn was_idle(&self) -> bool {
        false
    }

    /// Takes what another server knew of the connection, if that server spoke TLS on it.
    fn take_tls(&mut self) -> Option<Moved> {
        None
    }

    /// Takes what another server knew of the connection, if that server spoke HTTP/2 on it. The
    /// bytes that the other server read do not come again.
    fn take_http2(&mut self) -> Option<Moved> {
        None
    }

    /// The addresses of the connection, and what was learned about the client while it opened.
    fn info(&self) -> ConnectionInfo;
}

/// How much of a connection the client has closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Closed {
    /// The client may still send.
    Nothing,
    /// The client has closed its sending side (shutdown(2), `SHUT_WR`) or the whole connection; the
    /// server cannot tell which. The client may still read.
    Sending,
    /// The connection was reset.
    Everything,
}

impl Closed {
    /// Readiness to ask the runtime's stream for. A stream is writable most of the time, so that
    /// the runtime replies at once.
    pub(crate) const INTEREST: Interest = Interest::READABLE.add(Interest::WRITABLE);

    /// From the present readiness of the runtime's stream.
    pub(crate) fn of(ready: impl Future<Output = io::Result<Ready>>) -> Self {
        let mut now = Context::from_waker(Waker::noop());
        match pin!(ready).poll(&mut now) {
            Poll::Ready(Ok(ready)) if ready.is_write_closed() => Self::Everything,
            Poll::Ready(Ok(ready)) if ready.is_read_closed() => Self::Sending,
            Poll::Ready(Ok(_)) | Poll::Pending => Self::Nothing,
            // The runtime is shutting down.
            Poll::Ready(Err(_)) => Self::Everything,
        }
    }
}

/// The version of HTTP that a connection begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    /// HTTP/1.1 or HTTP/1.0, or HTTP/2 if the first bytes are its preface.
    Http1,
    /// HTTP/2, as agreed on while the connection opened: the client's preface comes first. Returned
    /// only if [`Http::speaks_http2`](crate::Http::speaks_http2).
    Http2,
}
