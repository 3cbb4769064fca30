//! The stream of a connection: a socket that is registered with the runtime when it has to wait.
//!
//! The runtime can wait only for a registered socket. Registering costs two calls of epoll_ctl(2),
//! an event, and one more run of the task. A connection for a single request seldom has to wait:
//! the request has arrived before the connection is accepted, and the response fits into the
//! kernel's buffer. So a new TCP connection gets one read and one write without the runtime, and is
//! registered when it needs more.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, IoSlice, Read, Write};
use std::mem;
use std::net;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

use crate::http::Closed;
use crate::sys::socket;
use crate::worker::incoming::failures::AcceptFailures;

/// The most bytes that the first read returns. Most requests are smaller.
const FIRST_READ_MAX: usize = 2048;

thread_local! {
    /// The buffer of first reads. It is set to zero once per thread, not for each connection.
    static FIRST_READ: RefCell<[u8; FIRST_READ_MAX]> =
        const { RefCell::new([0; FIRST_READ_MAX]) };

    /// The connections that are [`Stream::Lost`].
    static LOST: RefCell<AcceptFailures> = RefCell::default();
}

/// The socket of a connection.
#[derive(Debug)]
pub(crate) enum Stream {
    /// A TCP socket that is not registered with the runtime yet.
    New(New),
    Tcp(TcpStream),
    Unix(UnixStream),
    /// The runtime could not register the socket (epoll_ctl(2): `ENOMEM`, `ENOSPC`), and closed it.
    Lost,
}

/// A socket that is not registered with the runtime.
#[derive(Debug)]
pub(crate) struct New {
    /// Non-blocking.
    socket: net::TcpStream,
    read: Once,
    write: Once,
}

/// A read or a write without the runtime. Each is done once: such calls use nothing of the task's
/// budget, so more of them could delay other connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Once {
    NotYet,
    Done,
}

impl Once {
    /// Returns `true` at the first call only.
    fn begin(&mut self) -> bool {
        mem::replace(self, Self::Done) == Self::NotYet
    }
}

/// Registers the socket if it is new, then evaluates `$call` with the TCP or Unix stream.
macro_rules! each {
    ($this:expr, $stream:ident => $call:expr) => {
        match $this.registered()? {
            Registered::Tcp($stream) => $call,
            Registered::Unix($stream) => $call,
        }
    };
}

impl Stream {
    /// Takes a non-blocking socket. This needs no runtime. Calls that may wait need one.
    pub(crate) fn new(socket: net::TcpStream) -> Self {
        Self::New(New {
            socket,
            read: Once::NotYet,
            write: Once::NotYet,
        })
    }

    /// Passes the bytes that a new connection has received to `put`, if this is its first read.
    #[inline]
    pub(crate) fn read_first(&mut self, put: impl FnOnce(&[u8])) {
        self.read_new(FIRST_READ_MAX, put);
    }

    /// Reads from a new connection, once, at most `len_max` bytes. `false`: there are no bytes, or
    /// the runtime must read.
    fn read_new(&mut self, len_max: usize, put: impl FnOnce(&[u8])) -> bool {
        let Self::New(New { socket, read, .. }) = self else {
            return false;
        };
        if !read.begin() {
            return false;
        }
        FIRST_READ.with_borrow_mut(|bytes| {
            match socket.read(&mut bytes[..len_max.min(FIRST_READ_MAX)]) {
                Ok(len @ 1..) => {
                    put(&bytes[..len]);
                    true
                }
                // The next read returns the end of file again. After an error it returns the end of
                // file.
                Ok(0) | Err(_) => false,
            }
        })
    }

    /// Whether the socket has unread bytes, by a system call.
    pub(crate) fn has_unread(&self) -> bool {
        !matches!(self, Self::Lost) && socket::has_unread(self)
    }

    /// As [`socket::unacknowledged`]. Bytes in a Unix socket are at the client.
    pub(crate) fn unacknowledged(&self) -> usize {
        match self {
            Self::New(_) | Self::Tcp(_) => socket::unacknowledged(self),
            Self::Unix(_) | Self::Lost => 0,
        }
    }

    pub(crate) fn poll_read_ready(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self, stream => stream.poll_read_ready(cx))
    }

    /// As [`TcpStream::try_io`], after [`poll_read_ready`](Self::poll_read_ready).
    pub(crate) fn try_io<T>(
        &self,
        interest: Interest,
        call: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<T> {
        match self {
            Self::Tcp(stream) => stream.try_io(interest, call),
            Self::Unix(stream) => stream.try_io(interest, call),
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

    /// As `poll_read`, but it uses nothing of the task's budget.
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
                let count = socket::recv(stream.as_fd(), room)?;
                read = Some(count);
                // A short read has emptied the socket. The error makes the runtime clear the
                // readiness, so that the next read waits.
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

    /// As `poll_write`, but it uses nothing of the task's budget. It writes before it asks the
    /// runtime for readiness, because the kernel's buffer has room nearly always.
    #[inline]
    pub(crate) fn poll_write_unconstrained(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if let Self::Tcp(stream) = self {
            match socket::send(stream.as_fd(), bytes) {
                Err(error) if is_temporary(&error) => {}
                outcome => return Poll::Ready(outcome),
            }
        }
        Pin::new(self).poll_write(cx, bytes)
    }

    /// As `poll_write_unconstrained`, for bytes that a part of a file follows at once.
    pub(crate) fn poll_write_before_file(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_call(cx, |socket| socket::send_more(socket, bytes))
    }

    /// Sends a part of a file by sendfile(2). It uses nothing of the task's budget while the
    /// kernel's buffer has room. Zero is the end of the file.
    pub(crate) fn poll_send_file(
        &mut self,
        cx: &mut Context<'_>,
        file: &File,
        at: u64,
        length: usize,
    ) -> Poll<io::Result<usize>> {
        self.poll_call(cx, |socket| socket::send_file(socket, file, at, length))
    }

    /// A call that sends bytes. It is made before the runtime is asked for readiness, because the
    /// kernel's buffer has room nearly always.
    fn poll_call(
        &mut self,
        cx: &mut Context<'_>,
        call: impl Fn(BorrowedFd<'_>) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        if let Some(written) = self.write_new(|socket| call(socket.as_fd())) {
            return Poll::Ready(written);
        }
        self.registered()?;
        match call(self.as_fd()) {
            Err(error) if is_temporary(&error) => self.poll_when_writable(cx, call),
            outcome => Poll::Ready(outcome),
        }
    }

    /// Makes the call each time the socket becomes writable, until the call does not have to wait.
    fn poll_when_writable(
        &mut self,
        cx: &mut Context<'_>,
        call: impl Fn(BorrowedFd<'_>) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(each!(self, stream => stream.poll_write_ready(cx)))?;
            match self.try_io(Interest::WRITABLE, || call(self.as_fd())) {
                Err(error) if is_temporary(&error) => {}
                outcome => return Poll::Ready(outcome),
            }
        }
    }

    /// As `poll_write`, for the last bytes before the end of file. Over TCP one segment carries
    /// both, which saves one segment in each direction.
    pub(crate) fn poll_write_last(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if let Some(written) = self.write_new(|socket| socket::send_last(socket, bytes)) {
            return Poll::Ready(written);
        }
        if let Self::Unix(stream) = self {
            return Pin::new(stream).poll_write(cx, bytes);
        }
        self.poll_when_writable(cx, |socket| socket::send_last(socket, bytes))
    }

    /// Returns the stream, after registering it with the runtime if it is new.
    fn registered(&mut self) -> io::Result<Registered<'_>> {
        if let Self::New(_) = self
            && let Self::New(New { socket, .. }) = mem::replace(self, Self::Lost)
        {
            let registered = TcpStream::from_std(socket);
            *self = Self::Tcp(registered.inspect_err(tell_lost)?);
        }
        match self {
            Self::Tcp(stream) => Ok(Registered::Tcp(stream)),
            Self::Unix(stream) => Ok(Registered::Unix(stream)),
            Self::New(_) | Self::Lost => Err(lost()),
        }
    }

    /// Writes to a new connection, once; `None` if the runtime must write.
    fn write_new(&mut self, call: impl FnOnce(&net::TcpStream) -> io::Result<usize>) -> Written {
        let Self::New(New { socket, write, .. }) = self else {
            return None;
        };
        if !write.begin() {
            return None;
        }
        match call(socket) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
            outcome => Some(outcome),
        }
    }
}

type Written = Option<io::Result<usize>>;

/// A stream that is registered with the runtime.
enum Registered<'a> {
    Tcp(&'a mut TcpStream),
    Unix(&'a mut UnixStream),
}

impl New {
    fn closed(&self) -> Closed {
        if socket::is_closed(&self.socket) {
            Closed::Everything
        } else if socket::has_ended(&self.socket) {
            Closed::Sending
        } else {
            Closed::Nothing
        }
    }
}

fn is_temporary(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, WouldBlock};
    matches!(error.kind(), WouldBlock | Interrupted)
}

fn tell_lost(error: &io::Error) {
    LOST.with_borrow_mut(|lost| lost.warn_of_lost(error));
}

fn lost() -> io::Error {
    io::ErrorKind::NotConnected.into()
}

impl AsFd for Stream {
    /// # Panics
    ///
    /// If the runtime could not register the stream. The last read or write returned that error.
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
        let len_max = buf.remaining();
        if self.read_new(len_max, |bytes| buf.put_slice(bytes)) {
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
        // Sockets have no buffer to flush.
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
