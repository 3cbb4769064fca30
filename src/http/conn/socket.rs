//! What connections are made of.

use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf, Ready};

use crate::http::info::ConnectionInfo;

/// A stream that carries HTTP. It may have to say other things first: see [`Socket::poll_open`].
pub(crate) trait Socket: AsyncRead + AsyncWrite + Unpin + Send + 'static {
    /// Whether bytes have come that nobody has read. This asks the kernel (recv(2), `MSG_PEEK`):
    /// the runtime learns of them only when its event loop goes round.
    fn has_unread(&self) -> bool;

    /// Ready when a read would not have to wait: for bytes, the end of file, or an error. Nothing
    /// is read, and no buffer is needed. Once it was ready it may be so again in vain.
    fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<()>;

    /// What the client has closed, as far as the runtime has heard. Nothing is read.
    fn closed(&self) -> Closed;

    /// How many bytes have left for the client since this was asked last, if any can while a
    /// write or a flush is pending: TLS takes more than the kernel does, and sends it little by
    /// little.
    fn take_sent(&mut self) -> usize {
        0
    }

    /// Whether bytes have come that no read has brought yet, since this was asked last: a record of
    /// TLS comes in several segments.
    fn has_part(&mut self) -> bool {
        false
    }

    /// Whether there is nothing between it and the kernel: close(2) tells the client as much as a
    /// shutdown would, and a read that finds little has found all there is, be it an error.
    fn is_bare(&self) -> bool {
        false
    }

    /// As `poll_read`, for somebody who leaves others their turn unasked: it takes nothing of the
    /// task's budget (see [`tokio::task::coop`]).
    fn poll_read_unconstrained(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(self).poll_read(cx, buf)
    }

    /// As `poll_write`, for the same.
    fn poll_write_unconstrained(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(self).poll_write(cx, bytes)
    }

    /// Writes bytes behind which there is nothing but the end of file, and that with them if they
    /// can leave together. Of a bare socket: close(2) comes right after.
    fn poll_write_last(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(self).poll_write(cx, bytes)
    }

    /// Does what comes before HTTP, if anything does, and says which HTTP it is to be. Polled until
    /// it is ready, before any byte is read or written; it has the deadline of a request's head.
    fn poll_open(&mut self, _cx: &mut Context<'_>) -> Poll<io::Result<Version>> {
        Poll::Ready(Ok(Version::Http1))
    }

    /// Whether it has been idle in somebody else's hands, so that what comes is not its beginning.
    fn was_idle(&self) -> bool {
        false
    }

    /// Whose it is, with what was learnt of the client when it opened.
    fn info(&self) -> ConnectionInfo;
}

/// How much of a connection the client has closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Closed {
    /// It may still send.
    Nothing,
    /// It has said its last word (shutdown(2), `SHUT_WR`), or closed altogether: from here the two
    /// look alike. It may still read.
    Sending,
    /// It is gone: the connection was reset.
    Everything,
}

impl Closed {
    /// What a runtime's stream is to be asked about. Being writable is the usual state, so that
    /// there is an answer without waiting.
    pub(crate) const INTEREST: Interest = Interest::READABLE.add(Interest::WRITABLE);

    /// From what a stream of the runtime is ready for at this moment.
    pub(crate) fn of(ready: impl Future<Output = io::Result<Ready>>) -> Self {
        let mut now = Context::from_waker(Waker::noop());
        match pin!(ready).poll(&mut now) {
            Poll::Ready(Ok(ready)) if ready.is_write_closed() => Self::Everything,
            Poll::Ready(Ok(ready)) if ready.is_read_closed() => Self::Sending,
            Poll::Ready(Ok(_)) | Poll::Pending => Self::Nothing,
            // The runtime is at its end.
            Poll::Ready(Err(_)) => Self::Everything,
        }
    }
}

/// What a connection speaks from its first byte on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    /// HTTP/1.1 or HTTP/1.0, unless the first bytes say otherwise.
    Http1,
    /// HTTP/2, as was agreed on: the client's preface comes first. To be said only where
    /// [`Http::speaks_http2`](crate::Http::speaks_http2).
    Http2,
}
