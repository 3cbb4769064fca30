//! The stream notes whether the client takes what is written.

use std::io;
use std::mem;
use std::task::{Context, Poll};

use crate::http::conn::socket::Socket;
use crate::http::conn::stream::Stream;
use crate::stats::Count;

impl<I: Socket + ?Sized> Stream<I> {
    pub(super) fn note_write(
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

    /// The socket has taken all there is. A write that had to wait for the client does not wait any
    /// more.
    pub(crate) fn note_all_written(&self) {
        if self.state().write_blocked_since().is_some() {
            self.state().has_written_all();
        }
    }

    /// A write or a flush is pending. Bytes that were sent or acknowledged meanwhile are progress
    /// of the client.
    pub(super) fn note_blocked(&mut self, cx: &Context<'_>) {
        let sent = self.io.take_sent() + self.take_acknowledged();
        if sent > 0 {
            self.state().has_written(sent);
        }
        self.state().write_blocked();
        self.state().park_write(cx.waker());
    }

    /// Number of bytes that the client's kernel has taken of those that were written, since the
    /// write began to wait. The socket is not writable before a third of its buffer is free, which
    /// can be more than a megabyte. A slow network may need minutes for that.
    fn take_acknowledged(&mut self) -> usize {
        let now = self.io.unacknowledged();
        let before = mem::replace(&mut self.unacknowledged, now);
        match self.state().write_blocked_since() {
            Some(_) => before.saturating_sub(now),
            None => 0,
        }
    }
}
