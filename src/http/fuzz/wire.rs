//! A socket whose client has already sent everything but the end, and takes all responses.

use std::io;
use std::mem;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::address::{Address, Peer};
use crate::http::{Closed, ConnectionInfo, Socket};

/// The pieces in which bytes are received and sent.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pieces {
    /// All at once.
    Whole,
    /// Bytes are received one by one, and sent at once.
    Bytes,
    /// Pieces of random length in both directions, from this seed.
    Random(u64),
}

/// The server's end of the connection.
pub(super) struct Wire {
    unread: Vec<u8>,
    at: usize,
    /// The end of the piece that has come.
    available: usize,
    end_was_read: bool,
    pieces: Pieces,
    is_full: bool,
    client: Client,
}

/// The client's end of the connection.
#[derive(Clone, Default)]
pub(super) struct Client(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    has_ended: bool,
    received: Vec<u8>,
}

impl Client {
    /// Sends the end of file, and returns how many bytes have come before.
    pub(super) fn end(&self) -> usize {
        let mut state = self.state();
        state.has_ended = true;
        state.received.len()
    }

    pub(super) fn take(&self) -> Vec<u8> {
        mem::take(&mut self.state().received)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("one thread")
    }
}

impl Wire {
    pub(super) fn new(bytes: &[u8], pieces: Pieces) -> (Self, Client) {
        let client = Client::default();
        let wire = Self {
            unread: bytes.to_vec(),
            at: 0,
            available: 0,
            end_was_read: false,
            pieces,
            is_full: false,
            client: client.clone(),
        };
        (wire, client)
    }

    /// Ready if bytes or the end of file have come. If not, the next piece comes in the next round,
    /// as with an event loop.
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.at < self.available || self.end_was_read {
            return Poll::Ready(());
        }
        let left = self.unread.len() - self.at;
        let is_end = left == 0;
        if is_end && !self.client.state().has_ended {
            return Poll::Pending;
        }
        let piece = match &mut self.pieces {
            Pieces::Whole => left,
            Pieces::Bytes => 1,
            Pieces::Random(seed) => 1 + draw(seed, 40),
        };
        self.available = self.at + piece.min(left);
        self.end_was_read = is_end;
        if matches!(self.pieces, Pieces::Whole) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

/// A pseudo-random number less than `below`.
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
        self.at < self.available
    }

    fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.poll_piece(cx)
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
        ready!(self.poll_piece(cx));
        let end = self.available.min(self.at + buf.remaining());
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
        let mut len = buf.len();
        if let Pieces::Random(seed) = &mut self.pieces {
            len = len.min(16 + draw(seed, 64));
            self.is_full = !self.is_full;
            if self.is_full {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
        self.client.state().received.extend_from_slice(&buf[..len]);
        Poll::Ready(Ok(len))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
