//! Listeners that the starter of this program has left open (sd_listen_fds(3)).

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use nix::sys::socket::{SockType, getsockopt, sockopt};
use socket2::{Domain, SockRef};

use crate::address::Address;
use crate::sys::apart::apart;
use crate::sys::fds;
use crate::sys::listener::{address, keepalive};

/// Takes ownership of a listener that the starter of this program has left open under this number.
/// Makes it non-blocking and close-on-exec, and sets `TCP_NODELAY` and, unless the starter has
/// chosen them, the options of [`keepalive`] as [`tcp`](crate::sys::listener::tcp) does. If the
/// number is no such listener, this fails and does not change the descriptor, which may be one that
/// this process has opened.
///
/// Call it once for a number.
pub(crate) fn adopt(fd: RawFd) -> io::Result<(Address, OwnedFd)> {
    // SAFETY: the borrow ends within this function, in which nothing closes a descriptor. If `fd`
    // is not open, the calls fail with EBADF, and this returns an error.
    let listener = unsafe { BorrowedFd::borrow_raw(fd) };
    check_handed_in(listener)?;
    let socket = SockRef::from(&listener);
    check(listener)?;
    let domain = socket.domain()?;
    if matches!(domain, Domain::IPV4 | Domain::IPV6) {
        // Fails if another process holds the lock, for which the next call would wait.
        apart(listener, |it| {
            SockRef::from(&it).set_tcp_nodelay(true)?;
            keepalive::set_unless_chosen(it, domain);
            Ok(0)
        })?;
    }
    let address = address(listener).map_err(|error| match error.kind() {
        io::ErrorKind::Unsupported => refuse("it is bound to neither TCP nor a path"),
        _ => error,
    })?;
    socket.set_nonblocking(true)?;
    Ok((address, fds::adopt(fd)?))
}

/// As [`adopt`], for a descriptor of any kind, which stays as it is but for close-on-exec.
pub(crate) fn adopt_any(fd: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: as in `adopt`.
    check_handed_in(unsafe { BorrowedFd::borrow_raw(fd) })?;
    fds::adopt(fd)
}

fn refuse(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

/// An inherited descriptor is not close-on-exec. All that this program opens are.
fn check_handed_in(fd: BorrowedFd<'_>) -> io::Result<()> {
    match fcntl(fd, FcntlArg::F_GETFD) {
        Ok(flags) if flags & libc::FD_CLOEXEC == 0 => Ok(()),
        Ok(_) | Err(Errno::EBADF) => Err(refuse("no descriptor with this number was handed in")),
        Err(error) => Err(error.into()),
    }
}

/// Fails if it is no listening stream socket.
fn check(listener: BorrowedFd<'_>) -> io::Result<()> {
    match getsockopt(&listener, sockopt::SockType) {
        Ok(SockType::Stream) => {}
        Ok(_) => return Err(refuse("it is not a stream socket (SOCK_STREAM)")),
        Err(error) => return Err(error.into()),
    }
    match getsockopt(&listener, sockopt::AcceptConn)? {
        true => Ok(()),
        false => Err(refuse(
            "it does not listen (SO_ACCEPTCONN); the unit needs ListenStream= and Accept=no",
        )),
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsRawFd, IntoRawFd};

    use nix::fcntl::FdFlag;

    use super::*;

    const ANY: &str = "127.0.0.1:0";

    /// Leaves a descriptor open as the starter of a program does.
    fn left_open(descriptor: impl Into<OwnedFd>) -> RawFd {
        let descriptor = descriptor.into();
        fcntl(&descriptor, FcntlArg::F_SETFD(FdFlag::empty())).expect("it is open");
        descriptor.into_raw_fd()
    }

    #[test]
    fn an_inherited_descriptor_must_be_a_listening_stream_socket() {
        let listener = std::net::TcpListener::bind(ANY).expect("a free port");
        let local = listener.local_addr().expect("bound");
        let (address, listener) = adopt(left_open(listener)).expect("it listens");
        assert_eq!(address, local.into());
        let socket = SockRef::from(&listener);
        assert!(socket.nonblocking().expect("a socket"));
        assert!(socket.keepalive().expect("a socket"));
        let datagram = std::net::UdpSocket::bind(ANY).expect("a free port");
        let error = adopt(left_open(datagram)).expect_err("no stream");
        assert!(error.to_string().contains("SOCK_STREAM"), "{error}");
        let connection = std::net::TcpStream::connect(local).expect("it listens");
        let error = adopt(left_open(connection)).expect_err("a connection");
        assert!(error.to_string().contains("SO_ACCEPTCONN"), "{error}");
        let (reader, _writer) = io::pipe().expect("a pipe");
        adopt(left_open(reader)).expect_err("no socket");
    }

    #[test]
    fn a_descriptor_that_this_process_opened_is_not_adopted() {
        let listener = std::net::TcpListener::bind(ANY).expect("a free port");
        let local = listener.local_addr().expect("bound");
        for fd in [listener.as_raw_fd(), 1_000_000] {
            let error = adopt(fd).expect_err("it was not inherited");
            assert!(error.to_string().contains("handed in"), "{error}");
        }
        std::net::TcpStream::connect(local).expect("it listens still");
    }
}
