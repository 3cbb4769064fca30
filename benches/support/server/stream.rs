//! A tokio stream as hyper sees it.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use hyper::rt::ReadBufCursor;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What hyper reads from and writes to.
pub(super) struct HyperStream<S> {
    stream: S,
    /// Where bytes land before hyper gets them: the only way into its buffer without `unsafe`.
    /// Holds any request of the benches, and copying those is nothing beside receiving them.
    landing: [u8; 1024],
}

impl<S> HyperStream<S> {
    pub(super) fn new(stream: S) -> Self {
        Self {
            stream,
            landing: [0; 1024],
        }
    }
}

impl<S: AsyncRead + Unpin> hyper::rt::Read for HyperStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { stream, landing } = &mut *self;
        let room = buffer.remaining().min(landing.len());
        let mut landing = ReadBuf::new(&mut landing[..room]);
        ready!(Pin::new(stream).poll_read(cx, &mut landing))?;
        buffer.put_slice(landing.filled());
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> hyper::rt::Write for HyperStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bytes)
    }
}
