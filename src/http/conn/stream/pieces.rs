//! The stream as plain responses use it: pieces that are too long to be held back are sent from
//! where they are.

use std::fs::File;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Buf;

use crate::http::conn::socket::Socket;
use crate::http::conn::stream::Stream;
use crate::pool::Buffer;

impl<I: Socket + ?Sized> Stream<I> {
    /// As [`Socket::sends_files`].
    #[inline]
    pub(crate) fn sends_files(&self) -> bool {
        self.io.sends_files()
    }

    /// Sends the held back bytes, and with them the chunk, which is not empty. Returns how many of
    /// the chunk's bytes were sent, at least one.
    pub(crate) fn poll_send_chunk(
        &mut self,
        cx: &mut Context<'_>,
        chunk: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check_cut()?;
        loop {
            let held = self.held.as_ref().map_or(&[][..], Buffer::as_slice);
            let held_len = held.len();
            let io = Pin::new(&mut self.io);
            let written = match held_len {
                0 => io.poll_write(cx, chunk),
                _ => io.poll_write_vectored(cx, &[IoSlice::new(held), IoSlice::new(chunk)]),
            };
            if let Poll::Ready(Ok(written)) = written {
                self.advance_held(written.min(held_len));
            }
            match ready!(self.note_write(cx, written))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written if written > held_len => return Poll::Ready(Ok(written - held_len)),
                _ => {}
            }
        }
    }

    /// Sends the held back bytes, and then at most `length` bytes of the file, from the position
    /// `at` on. Returns how many of the file's bytes were sent. Zero: the file ends before.
    pub(crate) fn poll_send_file(
        &mut self,
        cx: &mut Context<'_>,
        file: &File,
        at: u64,
        length: usize,
    ) -> Poll<io::Result<usize>> {
        self.check_cut()?;
        ready!(self.poll_send_by(cx, I::poll_write_before_file))?;
        self.release();
        let sent = self.io.poll_send_file(cx, file, at, length);
        self.note_write(cx, sent)
    }

    fn advance_held(&mut self, count: usize) {
        if let Some(held) = &mut self.held {
            held.advance(count);
            self.drop_notice.0.set_held_back(held.remaining());
        }
        self.release();
    }
}
