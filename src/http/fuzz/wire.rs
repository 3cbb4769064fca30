//! A client's end that has said everything already, and reads whatever it is told.

use std::io;
use std::mem;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::address::{Address, Peer};
use crate::http::{Closed, ConnectionInfo, Socket};

/// In which pieces bytes come and answers go.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pieces {
    /// All at once.
    Whole,
    /// Byte by byte, and answers whole.
    Bytes,
    /// By chance, in both directions.
    Random(u64),
}

/// What the server sees of it.
pub(super) struct Wire {
    unread: Vec<u8>,
    at: usize,
    /// The end of the piece that has come.
    come: usize,
    end_was_read: bool,
    pieces: Pieces,
    full: bool,
    answers: Answers,
}

/// All that the server has sent.
#[derive(Clone, Default)]
pub(super) struct Answers(Arc<Mutex<Vec<u8>>>);

impl Answers {
    pub(super) fn take(&self) -> Vec<u8> {
        mem::take(&mut self.0.lock().expect("one thread"))
    }
}

impl Wire {
    pub(super) fn new(bytes: &[u8], pieces: Pieces) -> (Self, Answers) {
        let answers = Answers::default();
        let wire = Self {
            unread: bytes.to_vec(),
            at: 0,
            come: 0,
            end_was_read: false,
            pieces,
            full: false,
            answers: answers.clone(),
        };
        (wire, answers)
    }

    /// Whether something has come, be it the end of file. If not, it comes in the next round, as it
    /// does when the event loop goes there.
    fn poll_come(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.at < self.come || self.end_was_read {
            return Poll::Ready(());
        }
        let left = self.unread.len() - self.at;
        let is_end = left == 0;
        let piece = match &mut self.pieces {
            Pieces::Whole => left,
            Pieces::Bytes => 1,
            Pieces::Random(seed) => 1 + draw(seed, 40),
        };
        self.come = self.at + piece.min(left);
        self.end_was_read = is_end;
        if matches!(self.pieces, Pieces::Whole) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

/// Less than `below`.
fn draw(seed: &mut u64, below: usize) -> usize {
    *seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
    (*seed >> 33) as usize % below
}

impl Socket for Wire {
    fn info(&self) -> ConnectionInfo {
        let address: SocketAddr = ([127, 0, 0, 1], 1).into();
        ConnectionInfo::new(Peer::Tcp(address), Address::Tcp(address))
    }

    fn has_unread(&self) -> bool {
        self.at < self.come
    }

    fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.poll_come(cx)
    }

    fn is_bare(&self) -> bool {
        true
    }

    fn closed(&self) -> Closed {
        match self.end_was_read {
            true => Closed::Sending,
            false => Closed::Nothing,
        }
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.poll_come(cx));
        let end = self.come.min(self.at + buf.remaining());
        buf.put_slice(&self.unread[self.at..end]);
        self.at = end;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut room = buf.len();
        if let Pieces::Random(seed) = &mut self.pieces {
            room = room.min(16 + draw(seed, 64));
            self.full = !self.full;
            if self.full {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
        let mut answers = self.answers.0.lock().expect("one thread");
        answers.extend_from_slice(&buf[..room]);
        Poll::Ready(Ok(room))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
