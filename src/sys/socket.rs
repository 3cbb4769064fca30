//! Calls on a connected socket that std and the runtime do not have: recv(2) and send(2) with
//! flags, sendfile(2), and what the other end has closed.
//!
//! recv(2) and send(2) never wait, also if the socket is a blocking one. A connection may have come
//! from a sibling, and another process that has the same socket can make it blocking at any time.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};

use nix::errno::Errno;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::sendfile::sendfile64;
use nix::sys::socket::{MsgFlags, Shutdown, shutdown};

use crate::sys::fds;

/// recv(2).
#[inline]
pub(crate) fn recv(socket: impl AsFd, bytes: &mut [u8]) -> io::Result<usize> {
    recv_with(socket, bytes, MsgFlags::empty())
}

/// As [`recv`], and the bytes stay in the socket.
pub(crate) fn peek(socket: impl AsFd, bytes: &mut [u8]) -> io::Result<usize> {
    recv_with(socket, bytes, MsgFlags::MSG_PEEK)
}

/// Whether a socket has bytes that were not read.
pub(crate) fn has_unread(socket: impl AsFd) -> bool {
    peek(socket, &mut [0]).is_ok_and(|len| len == 1)
}

/// Number of bytes that were written to a TCP socket and that the kernel of the other end has not
/// acknowledged (tcp(7), `SIOCOUTQ`). Zero if the kernel does not tell. The end of file counts as
/// one.
pub(crate) fn unacknowledged(socket: impl AsFd) -> usize {
    fds::queued(socket)
}

#[inline]
fn recv_with(socket: impl AsFd, bytes: &mut [u8], flags: MsgFlags) -> io::Result<usize> {
    let fd = socket.as_fd().as_raw_fd();
    let flags = flags | MsgFlags::MSG_DONTWAIT;
    Ok(nix::sys::socket::recv(fd, bytes, flags)?)
}

/// send(2). A closed connection is an error and no signal.
#[inline]
pub(crate) fn send(socket: impl AsFd, bytes: &[u8]) -> io::Result<usize> {
    send_with(socket, bytes, MsgFlags::empty())
}

/// As [`send`], together with the end of file if the kernel takes all bytes. close(2) cannot send
/// the end of file instead: it drops unsent bytes if the client has sent more.
pub(crate) fn send_last(socket: impl AsFd, bytes: &[u8]) -> io::Result<usize> {
    let sent = send_more(&socket, bytes)?;
    if sent == bytes.len() {
        // It fails if the client has closed the connection and needs no end of file.
        let _ = shutdown(socket.as_fd().as_raw_fd(), Shutdown::Write);
    }
    Ok(sent)
}

/// As [`send`]. The kernel holds the bytes until more bytes or the end of file follow, at most for
/// 200 ms.
pub(crate) fn send_more(socket: impl AsFd, bytes: &[u8]) -> io::Result<usize> {
    send_with(socket, bytes, MsgFlags::from_bits_retain(libc::MSG_MORE))
}

/// How much of a file is sent at once. With a head it fits into one segment of the loopback device
/// (65,483 bytes). The rest of a larger portion would be a tiny segment, for which BBR waits.
pub(crate) const PORTION: usize = 60 * 1024;

/// sendfile(2): sends at most `length` bytes of the file, and at most [`PORTION`], from
/// the position `at` on. Waits for the disk if the kernel does not have them in memory. Returns how
/// many were sent; zero is the end of the file. An error of the kind `InvalidData` is the file's.
/// The process must ignore `SIGPIPE`.
pub(crate) fn send_file(
    socket: impl AsFd,
    file: &File,
    at: u64,
    length: usize,
) -> io::Result<usize> {
    let mut at = at.try_into().map_err(|_| io::ErrorKind::InvalidInput)?;
    let length = length.min(PORTION);
    sendfile64(&socket, file, Some(&mut at), length).map_err(|error| match error {
        Errno::EAGAIN | Errno::EINTR => error.into(),
        _ if is_closed(&socket) => error.into(),
        _ => io::Error::new(io::ErrorKind::InvalidData, io::Error::from(error)),
    })
}

#[inline]
fn send_with(socket: impl AsFd, bytes: &[u8], flags: MsgFlags) -> io::Result<usize> {
    let fd = socket.as_fd().as_raw_fd();
    let flags = flags | MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
    Ok(nix::sys::socket::send(fd, bytes, flags)?)
}

/// Whether the connection was reset, or both ends are shut down (poll(2), `POLLERR`, `POLLHUP`).
pub(crate) fn is_closed(socket: impl AsFd) -> bool {
    // poll(2) always reports these two.
    has_events(socket, PollFlags::empty())
}

/// Whether the other end will send no more bytes (poll(2), `POLLRDHUP`).
pub(crate) fn has_ended(socket: impl AsFd) -> bool {
    has_events(socket, PollFlags::from_bits_retain(libc::POLLRDHUP))
}

fn has_events(socket: impl AsFd, events: PollFlags) -> bool {
    let mut fds = [PollFd::new(socket.as_fd(), events)];
    poll(&mut fds, PollTimeout::ZERO).is_ok_and(|count| count > 0)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn an_error_of_a_file_is_told_from_one_of_the_socket() {
        let mut readable = tempfile::NamedTempFile::new().expect("a file");
        readable.write_all(b"tea").expect("there is space");
        let unreadable = File::options().write(true).open(readable.path());
        let unreadable = unreadable.expect("it is ours");
        let (ours, theirs) = UnixStream::pair().expect("two sockets");
        let kind = |file| send_file(&ours, file, 0, 3).map_err(|error| error.kind());
        assert_eq!(kind(&unreadable), Err(io::ErrorKind::InvalidData));
        assert_eq!(kind(readable.as_file()), Ok(3));
        drop(theirs);
        assert_eq!(kind(readable.as_file()), Err(io::ErrorKind::BrokenPipe));
    }

    #[test]
    fn bytes_are_unacknowledged_while_the_peer_has_no_room() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let mut reader = TcpStream::connect(address).expect("it listens");
        let (mut writer, _) = listener.accept().expect("one comes");
        assert_eq!(unacknowledged(&writer), 0);
        writer.set_nonblocking(true).expect("a socket");
        while writer.write(&[0; 64 << 10]).is_ok() {}
        assert!(unacknowledged(&writer) > 0);
        let mut bytes = vec![0; 64 << 10];
        while unacknowledged(&writer) > 0 {
            reader.read_exact(&mut bytes[..1]).expect("there are more");
            let _ = reader.read(&mut bytes);
        }
        assert_eq!(unacknowledged(io::pipe().expect("a pipe").0), 0);
    }

    #[test]
    fn a_blocking_socket_does_not_wait() {
        let (one, mut other) = UnixStream::pair().expect("a pair");
        let error = recv(&one, &mut [0]).expect_err("nothing was sent");
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        assert!(!has_unread(&one));
        other.write_all(b"x").expect("room");
        assert!(has_unread(&one));
        let sent = std::iter::repeat_with(|| send(&one, &[0; 64 << 10]));
        let error = sent.flat_map(Result::err).next().expect("no room");
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    }

    /// The kernel holds the bytes for 200 ms. If the test took that long, it tries again.
    #[test]
    fn the_last_bytes_wait_for_the_end_of_file() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        loop {
            let client = TcpStream::connect(address).expect("it listens");
            client.set_nonblocking(true).expect("a socket");
            let (server, _) = listener.accept().expect("the client waits");
            let begun = Instant::now();
            assert_eq!(send_more(&server, b"last").expect("it is open"), 4);
            let received = peek(&client, &mut [0]);
            if begun.elapsed() < Duration::from_millis(100) {
                let error = received.expect_err("the kernel holds them");
                assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
                break;
            }
        }
    }
}
