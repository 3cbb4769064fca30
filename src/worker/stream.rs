//! The stream of a connection: a socket of the runtime's, sooner or later.
//!
//! To wait for a socket the runtime has to know it, which is epoll_ctl(2) twice, an event, and one
//! more way through the scheduler. A connection that lives for one request seldom has to wait: its
//! request is there when it is accepted, and its answer fits into the kernel's buffer. So the
//! runtime hears of a new TCP connection when there is something to wait for: after one look at
//! what has come, and one write.

use std::cell::RefCell;
use std::io::{self, IoSlice, Read, Write};
use std::mem;
use std::net;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use nix::errno::Errno;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{MsgFlags, Shutdown, recv, send, shutdown};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

use crate::http::Closed;

/// As many bytes as the first look takes: most requests are smaller.
const GLANCE: usize = 2048;

thread_local! {
    /// Cleared once, not for each connection.
    static GLANCED: RefCell<[u8; GLANCE]> = const { RefCell::new([0; GLANCE]) };
}

/// See the module's head.
#[derive(Debug)]
pub(crate) enum Stream {
    New(New),
    Tcp(TcpStream),
    Unix(UnixStream),
    /// The runtime could not take it (epoll_ctl(2): no memory, no watches left), and closed it.
    Lost,
}

/// A socket that the runtime does not know.
#[derive(Debug)]
pub(crate) struct New {
    /// Non-blocking.
    socket: net::TcpStream,
    looked: Once,
    written: Once,
}

/// What is done without the runtime is done once: reading or writing on and on it would not let
/// other connections have their turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Once {
    NotYet,
    Done,
}

impl Once {
    /// Whether it is still to be done; from now on it is not.
    fn begin(&mut self) -> bool {
        mem::replace(self, Self::Done) == Self::NotYet
    }
}

/// Calls one method of whichever stream the runtime knows.
macro_rules! each {
    ($this:expr, $stream:ident => $call:expr) => {
        match $this.known()? {
            Known::Tcp($stream) => $call,
            Known::Unix($stream) => $call,
        }
    };
}

impl Stream {
    /// Of a non-blocking socket. This needs no runtime yet; whatever may have to wait does.
    pub(crate) fn new(socket: net::TcpStream) -> Self {
        Self::New(New {
            socket,
            looked: Once::NotYet,
            written: Once::NotYet,
        })
    }

    /// What has come on a new connection already; only the first call looks.
    pub(crate) fn glance(&mut self) -> Option<Bytes> {
        self.look(GLANCE, Bytes::copy_from_slice)
    }

    fn look<T>(&mut self, room: usize, take: impl FnOnce(&[u8]) -> T) -> Option<T> {
        let Self::New(New { socket, looked, .. }) = self else {
            return None;
        };
        if !looked.begin() {
            return None;
        }
        GLANCED.with_borrow_mut(|bytes| {
            match socket.read(&mut bytes[..room.min(GLANCE)]) {
                Ok(len @ 1..) => Some(take(&bytes[..len])),
                // The end of file comes again, and an error leaves the end of file behind.
                Ok(0) | Err(_) => None,
            }
        })
    }

    /// Whether bytes have come that nobody has read. Asks the kernel.
    pub(crate) fn has_unread(&self) -> bool {
        !matches!(self, Self::Lost)
            && recv(self.as_fd().as_raw_fd(), &mut [0], MsgFlags::MSG_PEEK) == Ok(1)
    }

    pub(crate) fn poll_read_ready(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self, stream => stream.poll_read_ready(cx))
    }

    /// As [`TcpStream::try_io`], after [`poll_read_ready`](Self::poll_read_ready).
    pub(crate) fn try_io<T>(
        &self,
        interest: Interest,
        act: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<T> {
        match self {
            Self::Tcp(stream) => stream.try_io(interest, act),
            Self::Unix(stream) => stream.try_io(interest, act),
            Self::New(_) => Err(io::ErrorKind::WouldBlock.into()),
            Self::Lost => Err(lost()),
        }
    }

    pub(crate) fn closed(&self) -> Closed {
        match self {
            Self::Tcp(stream) => Closed::of(stream.ready(Closed::INTEREST)),
            Self::Unix(stream) => Closed::of(stream.ready(Closed::INTEREST)),
            Self::New(new) => new.closed(),
            Self::Lost => Closed::Everything,
        }
    }

    /// As a read that takes nothing of the task's budget.
    #[inline]
    pub(crate) fn poll_read_unconstrained(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Self::Tcp(stream) = self {
            let room = buf.initialize_unfilled();
            let mut read = None;
            let outcome = stream.try_io(Interest::READABLE, || {
                let count = recv(stream.as_raw_fd(), room, MsgFlags::empty())?;
                read = Some(count);
                // Whoever reads little has read all, and the next has to wait. This tells it.
                match (1..room.len()).contains(&count) {
                    true => Err(io::ErrorKind::WouldBlock.into()),
                    false => Ok(()),
                }
            });
            if let Some(count) = read {
                buf.advance(count);
                return Poll::Ready(Ok(()));
            }
            if let Err(error) = outcome
                && error.kind() != io::ErrorKind::WouldBlock
            {
                return Poll::Ready(Err(error));
            }
        }
        Pin::new(self).poll_read(cx, buf)
    }

    /// As a write that takes nothing of the task's budget, and does not ask the runtime whether
    /// there is room: there is, nearly always.
    #[inline]
    pub(crate) fn poll_write_unconstrained(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if let Self::Tcp(stream) = self {
            match send(stream.as_raw_fd(), bytes, MsgFlags::MSG_NOSIGNAL) {
                Err(Errno::EAGAIN | Errno::EINTR) => {}
                outcome => return Poll::Ready(Ok(outcome?)),
            }
        }
        Pin::new(self).poll_write(cx, bytes)
    }

    /// As a write, of bytes behind which only the end of file comes. Over TCP they take that along,
    /// in one segment, which spares either side one.
    pub(crate) fn poll_write_last(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if let Some(written) = self.write_new(|socket| send_last(socket, bytes)) {
            return Poll::Ready(written);
        }
        let stream = match self.known()? {
            Known::Tcp(stream) => stream,
            Known::Unix(stream) => return Pin::new(stream).poll_write(cx, bytes),
        };
        loop {
            ready!(stream.poll_write_ready(cx))?;
            match stream.try_io(Interest::WRITABLE, || send_last(stream, bytes)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                outcome => return Poll::Ready(outcome),
            }
        }
    }

    /// The stream as the runtime knows it, from now on.
    fn known(&mut self) -> io::Result<Known<'_>> {
        if let Self::New(_) = self
            && let Self::New(New { socket, .. }) = mem::replace(self, Self::Lost)
        {
            *self = Self::Tcp(TcpStream::from_std(socket)?);
        }
        match self {
            Self::Tcp(stream) => Ok(Known::Tcp(stream)),
            Self::Unix(stream) => Ok(Known::Unix(stream)),
            Self::New(_) | Self::Lost => Err(lost()),
        }
    }

    /// Writes to a new connection, once; `None` if the runtime has to see to it.
    fn write_new(&mut self, write: impl FnOnce(&net::TcpStream) -> io::Result<usize>) -> Written {
        let Self::New(New {
            socket, written, ..
        }) = self
        else {
            return None;
        };
        if !written.begin() {
            return None;
        }
        match write(socket) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
            outcome => Some(outcome),
        }
    }
}

type Written = Option<io::Result<usize>>;

enum Known<'a> {
    Tcp(&'a mut TcpStream),
    Unix(&'a mut UnixStream),
}

impl New {
    fn closed(&self) -> Closed {
        let happened = |asked| {
            let mut fds = [PollFd::new(self.socket.as_fd(), asked)];
            poll(&mut fds, PollTimeout::ZERO).is_ok_and(|count| count > 0)
        };
        // A hang-up and an error are told unasked.
        if happened(PollFlags::empty()) {
            Closed::Everything
        } else if happened(PollFlags::from_bits_retain(libc::POLLRDHUP)) {
            Closed::Sending
        } else {
            Closed::Nothing
        }
    }
}

/// send(2), and the end of file with it if all is taken. That is not left to close(2), which drops
/// what has not left if the client has sent more.
fn send_last(socket: &impl AsRawFd, bytes: &[u8]) -> io::Result<usize> {
    let sent = send_more(socket, bytes)?;
    if sent == bytes.len() {
        // A client that has gone has no use for the end of file.
        let _ = shutdown(socket.as_raw_fd(), Shutdown::Write);
    }
    Ok(sent)
}

/// send(2) of what does not leave until more is sent, or the end of file; the kernel waits for that
/// a fifth of a second.
fn send_more(socket: &impl AsRawFd, bytes: &[u8]) -> io::Result<usize> {
    let more = MsgFlags::MSG_NOSIGNAL | MsgFlags::from_bits_retain(libc::MSG_MORE);
    Ok(send(socket.as_raw_fd(), bytes, more)?)
}

fn lost() -> io::Error {
    io::ErrorKind::NotConnected.into()
}

impl AsFd for Stream {
    /// # Panics
    ///
    /// If the runtime could not take the stream, which the last read or write gave as its error.
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::New(new) => new.socket.as_fd(),
            Self::Tcp(stream) => stream.as_fd(),
            Self::Unix(stream) => stream.as_fd(),
            Self::Lost => panic!("the connection was lost before"),
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let room = buf.remaining();
        if self.look(room, |bytes| buf.put_slice(bytes)).is_some() {
            return Poll::Ready(Ok(()));
        }
        each!(self, stream => Pin::new(stream).poll_read(cx, buf))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if let Some(written) = self.write_new(|mut socket| socket.write(bytes)) {
            return Poll::Ready(written);
        }
        each!(self, stream => Pin::new(stream).poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if let Some(written) = self.write_new(|mut socket| socket.write_vectored(slices)) {
            return Poll::Ready(written);
        }
        each!(self, stream => Pin::new(stream).poll_write_vectored(cx, slices))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Sockets keep nothing back.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Self::New(new) = &*self {
            return Poll::Ready(new.socket.shutdown(net::Shutdown::Write));
        }
        each!(self, stream => Pin::new(stream).poll_shutdown(cx))
    }
}

#[cfg(test)]
mod tests;
