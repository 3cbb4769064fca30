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
mod tests {
    use std::future::poll_fn;
    use std::net::TcpListener;
    use std::time::{Duration, Instant};

    use nix::errno::Errno;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// A client's end, and ours.
    fn pair() -> (net::TcpStream, Stream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let client = net::TcpStream::connect(address).expect("it listens");
        let (ours, _) = listener.accept().expect("somebody waits");
        ours.set_nonblocking(true).expect("a socket");
        (client, Stream::new(ours))
    }

    fn is_new(stream: &Stream) -> bool {
        matches!(stream, Stream::New(_))
    }

    /// No runtime: registering would panic.
    #[test]
    fn a_request_and_its_answer_need_no_runtime() {
        let (mut client, mut stream) = pair();
        client.write_all(b"request").expect("it is open");
        // Of loopback, what is written is there.
        assert_eq!(stream.glance().as_deref(), Some(&b"request"[..]));
        let mut cx = Context::from_waker(std::task::Waker::noop());
        let written = Pin::new(&mut stream).poll_write(&mut cx, b"answer");
        assert!(matches!(written, Poll::Ready(Ok(6))), "{written:?}");
        assert!(is_new(&stream));
        drop(stream);
        let mut answer = String::new();
        client.read_to_string(&mut answer).expect("it ends");
        assert_eq!(answer, "answer");
    }

    /// The kernel keeps them for a while; if the time was up there is nothing to be seen.
    #[test]
    fn the_last_bytes_wait_for_the_end_of_file() {
        loop {
            let (client, stream) = pair();
            let begun = Instant::now();
            assert_eq!(send_more(&stream.as_fd(), b"last").expect("it is open"), 4);
            let now = MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT;
            let came = recv(client.as_raw_fd(), &mut [0], now);
            if begun.elapsed() < Duration::from_millis(100) {
                assert_eq!(came, Err(Errno::EAGAIN));
                break;
            }
        }
    }

    #[tokio::test]
    async fn the_last_bytes_take_the_end_of_file_along() {
        for is_known in [false, true] {
            let (mut client, mut stream) = pair();
            if is_known {
                stream.known().expect("a runtime");
            }
            let written = poll_fn(|cx| stream.poll_write_last(cx, b"last")).await;
            assert_eq!(written.expect("it is open"), 4);
            assert_eq!(is_new(&stream), !is_known);
            let mut answer = String::new();
            client.read_to_string(&mut answer).expect("it ends");
            assert_eq!(answer, "last");
        }
    }

    #[tokio::test]
    async fn what_comes_later_is_waited_for() {
        let (mut client, mut stream) = pair();
        assert_eq!(stream.glance(), None);
        assert!(is_new(&stream));
        let later = tokio::task::spawn_blocking(move || {
            client.write_all(b"late").expect("it is open");
            client
        });
        poll_fn(|cx| stream.poll_read_ready(cx))
            .await
            .expect("it comes");
        let _client = later.await.expect("it writes");
        assert_eq!(stream.glance(), None, "it belongs to the runtime");
        let mut bytes = [0; 4];
        stream.read_exact(&mut bytes).await.expect("it is there");
        assert_eq!(&bytes, b"late");
    }

    #[tokio::test]
    async fn the_second_of_each_is_the_runtimes() {
        for second in [Interest::READABLE, Interest::WRITABLE] {
            let (mut client, mut stream) = pair();
            client.write_all(b"12").expect("it is open");
            assert_eq!(stream.read_u8().await.expect("it is there"), b'1');
            stream.write_u8(b'a').await.expect("it is open");
            assert!(is_new(&stream));
            match second {
                Interest::READABLE => {
                    assert_eq!(stream.read_u8().await.expect("it is there"), b'2');
                }
                _ => stream.write_u8(b'b').await.expect("it is open"),
            }
            assert!(!is_new(&stream));
        }
    }

    /// More than the kernel takes at once arrives whole.
    #[tokio::test]
    async fn a_large_answer_is_waited_for() {
        let (mut client, mut stream) = pair();
        let answer: Vec<u8> = (0..=u8::MAX).cycle().take(16 << 20).collect();
        let reader = tokio::task::spawn_blocking(move || {
            let mut read = Vec::new();
            client.read_to_end(&mut read).expect("it ends");
            read
        });
        stream.write_all(&answer).await.expect("it is read");
        stream.shutdown().await.expect("it is open");
        assert!(reader.await.expect("it reads") == answer);
    }

    #[tokio::test]
    async fn the_runtime_and_the_kernel_agree_on_who_has_left() {
        for (leaves, closed) in [
            (None, Closed::Nothing),
            (Some(net::Shutdown::Write), Closed::Sending),
            (Some(net::Shutdown::Both), Closed::Everything),
        ] {
            let (mut client, mut stream) = pair();
            client.write_all(b"?").expect("it is open");
            let _still_here = match leaves {
                // What it has not read has it reset the connection.
                Some(net::Shutdown::Both) => {
                    stream.write_u8(b'!').await.expect("it is open");
                    drop(client);
                    None
                }
                Some(how) => {
                    client.shutdown(how).expect("it is open");
                    Some(client)
                }
                None => Some(client),
            };
            assert_eq!(stream.closed(), closed, "{leaves:?}");
            poll_fn(|cx| stream.poll_read_ready(cx)).await.expect("?");
            assert!(!is_new(&stream));
            assert_eq!(stream.closed(), closed, "{leaves:?}, as the runtime has it");
        }
    }
}
