//! Listeners. The master makes them with every option that must be set before bind(2); workers
//! accept from them.

pub(crate) mod harm;
mod inherited;
mod joining;
mod keepalive;
pub(crate) mod unix;

use std::io;
use std::mem::offset_of;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use nix::errno::Errno;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{getsockopt, sockopt};
use socket2::{Domain, SockAddr, SockRef, Socket, Type};

use crate::address::Address;
use crate::sys::apart::apart;
use crate::sys::fds;
pub(crate) use crate::sys::listener::inherited::{adopt, adopt_any};

/// How often to try to bind and listen on an address. If two sockets call listen(2) at the same
/// time, the kernel may refuse both. At the next attempt one of them listens, and the other cannot
/// bind.
const LISTEN_ATTEMPTS: u32 = 4;

/// How long the kernel waits for a client's first byte before it queues the connection without one,
/// in seconds. One is the least: the kernel counts in retransmissions.
const FIRST_BYTE_WAIT: libc::c_int = 1;

/// Whether other listeners may have the same address (socket(7), `SO_REUSEPORT`). The kernel
/// spreads connections over all listeners of such a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reuse {
    /// No other listener.
    None,
    /// The first listener of a group. Fails if another socket listens on the address, even one of a
    /// group. Otherwise two servers on one port by mistake would each get a part of the
    /// connections.
    First,
    /// Another listener of a group.
    Join,
}

/// Makes a listening, non-blocking, close-on-exec TCP socket. Accepted connections inherit
/// `TCP_NODELAY` and [`keepalive`] (tcp(7)). An IPv6 socket accepts no IPv4 connections.
pub(crate) fn tcp(address: SocketAddr, reuse: Reuse, backlog: u32) -> io::Result<OwnedFd> {
    let mut attempt = 1;
    loop {
        match listening(bound(address, reuse)?, reuse, backlog) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && attempt < LISTEN_ATTEMPTS => {
                attempt += 1;
            }
            Ok(listener) if reuse == Reuse::First => return joining::joinable(listener, backlog),
            done => return done,
        }
    }
}

/// Whether a listener of this user could be bound to the address now. A server that has the address
/// keeps it and its connections: a socket that does not listen gets none.
pub(crate) fn check_tcp(address: SocketAddr) -> io::Result<()> {
    bound(address, Reuse::Join).map(drop)
}

fn bound(address: SocketAddr, reuse: Reuse) -> io::Result<Socket> {
    let socket = prepared(address, reuse)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

/// A socket with every option, which is not bound.
fn prepared(address: SocketAddr, reuse: Reuse) -> io::Result<Socket> {
    let kind = Type::STREAM.nonblocking().cloexec();
    let socket = Socket::new(Domain::for_address(address), kind, None)?;
    // Allows bind(2) while connections of an earlier server are in TIME_WAIT.
    socket.set_reuse_address(true)?;
    if reuse == Reuse::Join {
        socket.set_reuse_port(true)?;
    }
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.set_tcp_nodelay(true)?;
    keepalive::set(&socket);
    Ok(socket)
}

/// Two sockets with `SO_REUSEADDR` may both be bound, but only one of them may listen. So the first
/// of a group allows others on its address only after it listens. No other server can listen there
/// before.
///
/// A program that is attached to one listener of a group decides which one gets a connection, so a
/// worker could take all.
fn listening(socket: Socket, reuse: Reuse, backlog: u32) -> io::Result<OwnedFd> {
    fds::refuse_filters(&socket);
    listen(&socket, backlog)?;
    if reuse == Reuse::First {
        socket.set_reuse_port(true)?;
    }
    Ok(socket.into())
}

/// Has the kernel queue a connection when its first byte has come, or a second after it was opened.
/// Then a worker that accepts it can read at once, and need not be woken up a second time.
pub(crate) fn defer_accept(listener: impl AsFd, deferred: bool) -> io::Result<()> {
    let seconds = if deferred { FIRST_BYTE_WAIT } else { 0 };
    fds::set_option(listener, libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, seconds)
}

/// Whether one of these listeners or inboxes was shut down (shutdown(2)). Any process that has the
/// socket can do that. A TCP listener is then closed in all processes; a Unix listener refuses
/// connections although it has `SO_ACCEPTCONN`.
pub(crate) fn is_any_shut_down<'a>(sockets: impl IntoIterator<Item = BorrowedFd<'a>>) -> bool {
    let mut fds = shut_down_events(sockets);
    matches!(poll(&mut fds, PollTimeout::ZERO), Ok(1..))
}

/// The events by which poll(2) reports a socket that was shut down, and no other one.
pub(crate) fn shut_down_events<'a>(
    sockets: impl IntoIterator<Item = BorrowedFd<'a>>,
) -> Vec<PollFd<'a>> {
    let events = PollFlags::from_bits_retain(libc::POLLRDHUP);
    let sockets = sockets.into_iter();
    sockets.map(|fd| PollFd::new(fd, events)).collect()
}

pub(crate) fn is_shut_down(socket: impl AsFd) -> bool {
    is_any_shut_down([socket.as_fd()])
}

/// listen(2), which also gives a listener the length of its queue again. Any process that has the
/// socket can change it.
pub(crate) fn listen(socket: impl AsFd, backlog: u32) -> io::Result<()> {
    SockRef::from(&socket).listen(i32::try_from(backlog).unwrap_or(i32::MAX))
}

/// Closes a TCP listener in all processes that have it. Its address can be bound again at once,
/// although they still have the socket: [`tcp`] has set `SO_REUSEADDR` on it.
pub(crate) fn close(listener: impl AsFd) -> io::Result<()> {
    let shut_down = |it: BorrowedFd<'_>| SockRef::from(&it).shutdown(std::net::Shutdown::Both);
    apart(listener, |it| shut_down(it).map(|()| 0)).map(drop)
}

/// Makes a TCP listener that was shut down listen again. It is the same socket, so all processes
/// that have it accept from it again.
pub(crate) fn listen_again(
    listener: impl AsFd,
    address: SocketAddr,
    backlog: u32,
) -> io::Result<()> {
    match SockRef::from(&listener).bind(&address.into()) {
        // The socket is still bound, unless the kernel had chosen the port (tcp_disconnect()).
        Err(error) if error.raw_os_error() == Some(Errno::EINVAL as i32) => {}
        bound => bound?,
    }
    listen(listener, backlog)
}

/// The address that a listener is bound to (getsockname(2)).
pub(crate) fn address(listener: impl AsFd) -> io::Result<Address> {
    let address = SockRef::from(&listener).local_addr()?;
    if let Some(address) = address.as_socket() {
        return Ok(Address::Tcp(address));
    }
    let path = address.as_pathname().ok_or(io::ErrorKind::Unsupported)?;
    Ok(Address::Unix(path.to_owned()))
}

/// Accepts one connection from the listener's queue, non-blocking and close-on-exec, with the
/// address of its client; `None` if the queue is empty. One system call, accept4(2).
pub(crate) fn accept(listener: impl AsFd) -> io::Result<Option<(OwnedFd, SockAddr)>> {
    let listener = listener.as_fd().as_raw_fd();
    let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: accept4(2) writes an address of at most `len` bytes to the storage, and the length of
    // the address to `len`. The descriptor is new, so it has no other owner.
    let accepted = unsafe {
        SockAddr::try_init(|storage, len| {
            match libc::accept4(listener, storage.cast(), len, flags) {
                -1 => Err(io::Error::last_os_error()),
                fd => Ok(OwnedFd::from_raw_fd(fd)),
            }
        })
    };
    match accepted {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        accepted => accepted.map(Some),
    }
}

/// Number of connections in a TCP listener's queue (tcp(7), `TCP_INFO`); `None` for a Unix
/// listener, for which the kernel does not report it.
pub(crate) fn queued(listener: impl AsFd) -> Option<usize> {
    // For a listener this field of four bytes is the length of its queue.
    const QUEUED: usize = offset_of!(libc::tcp_info, tcpi_unacked);
    // Of a socket that does not listen, which a worker can cause, the kernel takes the lock.
    if getsockopt(&listener, sockopt::AcceptConn) != Ok(true) {
        return None;
    }
    let mut info = [0; QUEUED + 4];
    fds::option_bytes(listener, libc::IPPROTO_TCP, libc::TCP_INFO, &mut info).ok()?;
    let [.., a, b, c, d] = info;
    Some(u32::from_ne_bytes([a, b, c, d]) as usize)
}

/// The backlog that the kernel uses instead of a requested one above `net.core.somaxconn`
/// (listen(2)); `None` if it uses the requested one.
pub(crate) fn clamped_backlog(requested: u32) -> Option<u32> {
    let limit = std::fs::read_to_string("/proc/sys/net/core/somaxconn").ok()?;
    let limit = limit.trim().parse().ok()?;
    (limit < requested).then_some(limit)
}

/// Whether [`defer_accept`] is on.
#[cfg(test)]
pub(crate) fn is_deferred(listener: impl AsFd) -> bool {
    let seconds = fds::option(listener, libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT);
    seconds.expect("a TCP socket") > 0
}

#[cfg(test)]
pub(crate) mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;
    use std::os::unix::net::UnixStream;

    use nix::sys::socket::setsockopt;

    use super::*;

    /// A test that frees a port and wants it again has an address of its own instead: no other test
    /// gets the port meanwhile.
    const ANY: &str = "127.0.0.1:0";

    /// Waits until no process listens there. One that another test has forked has the listeners of
    /// this one until it ends or executes a program. If the queue of a Unix listener is full,
    /// connect(2) waits for that.
    pub(crate) fn until_closed(address: &Address) {
        let listens = || match address {
            Address::Tcp(address) => TcpStream::connect(address).is_ok(),
            Address::Unix(path) => UnixStream::connect(path).is_ok(),
        };
        while listens() {}
    }

    /// The address of a TCP listener.
    pub(super) fn tcp_address(listener: impl AsFd) -> SocketAddr {
        match address(listener) {
            Ok(Address::Tcp(address)) => address,
            other => panic!("a TCP address: {other:?}"),
        }
    }

    #[test]
    fn another_server_cannot_join_a_group() {
        let own = "127.0.0.23:0".parse().expect("valid");
        let first = tcp(own, Reuse::First, 8).expect("a free port");
        let taken = tcp_address(&first);
        let second = tcp(taken, Reuse::Join, 8).expect("the first one shares");
        for reuse in [Reuse::First, Reuse::None] {
            let error = tcp(taken, reuse, 8).expect_err("another server");
            assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        }
        drop((first, second));
        until_closed(&Address::Tcp(taken));
        tcp(taken, Reuse::First, 8).expect("free again");
    }

    #[test]
    fn no_process_can_decide_which_listener_gets_a_connection() {
        // It always returns 0, the first of the group.
        let mut code = libc::sock_filter {
            code: (libc::BPF_RET | libc::BPF_K) as u16,
            jt: 0,
            jf: 0,
            k: 0,
        };
        let program = libc::sock_fprog {
            len: 1,
            filter: &raw mut code,
        };
        for reuse in [Reuse::First, Reuse::None] {
            let listener = tcp(ANY.parse().expect("valid"), reuse, 8).expect("a free port");
            let attached = setsockopt(&listener, sockopt::AttachReusePortCbpf, &program);
            assert_eq!(attached, Err(Errno::EPERM), "{reuse:?}");
        }
    }

    #[test]
    fn a_deferred_connection_is_queued_with_its_first_byte() {
        let own = "127.0.0.24:0".parse().expect("valid");
        let listener = tcp(own, Reuse::None, 8).expect("a free port");
        defer_accept(&listener, true).expect("it listens");
        assert!(is_deferred(&listener));
        let address = tcp_address(&listener);
        let mut client = std::net::TcpStream::connect(address).expect("it listens");
        client.write_all(b"G").expect("connected");
        let mut ready = [PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
        poll(&mut ready, PollTimeout::NONE).expect("it comes");
        let (connection, _) = accept(&listener).expect("no error").expect("it waits");
        let mut byte = [0];
        let mut connection = std::net::TcpStream::from(connection);
        assert_eq!(connection.read(&mut byte).expect("it is there"), 1);
        let socket = SockRef::from(&listener);
        socket
            .shutdown(std::net::Shutdown::Both)
            .expect("it listens");
        listen_again(&listener, address, 8).expect("it is free");
        assert!(is_deferred(&listener), "it is the same socket");
        defer_accept(&listener, false).expect("it listens");
        assert!(!is_deferred(&listener));
    }

    #[test]
    fn only_one_of_two_sockets_on_an_address_can_listen() {
        let first = bound(ANY.parse().expect("valid"), Reuse::First).expect("a free port");
        let taken = tcp_address(&first);
        let second = bound(taken, Reuse::First).expect("neither listens yet");
        let _first = listening(first, Reuse::First, 8).expect("no other listens");
        let error = listening(second, Reuse::First, 8).expect_err("the first listens");
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    }

    #[test]
    fn connections_are_spread_over_a_group() {
        let first = tcp(ANY.parse().expect("valid"), Reuse::First, 512).expect("a free port");
        let local = tcp_address(&first);
        let second = tcp(local, Reuse::Join, 512).expect("the first one shares");
        let connect = |_| std::net::TcpStream::connect(local).expect("it listens");
        let _clients: Vec<_> = (0..100).map(connect).collect();
        let waiting = [&first, &second].map(|listener| queued(listener).expect("TCP"));
        assert_eq!(waiting.iter().sum::<usize>(), 100);
        // In one of 2^99 runs one of the queues is empty.
        assert!(waiting.iter().all(|&waiting| waiting > 0), "{waiting:?}");
    }

    #[test]
    fn queued_counts_connections_of_a_tcp_listener_only() {
        let listener = tcp(ANY.parse().expect("valid"), Reuse::None, 8).expect("a free port");
        assert_eq!(queued(&listener), Some(0));
        let address = tcp_address(&listener);
        let connect = || std::net::TcpStream::connect(address).expect("room for three");
        let _clients = [connect(), connect(), connect()];
        assert_eq!(queued(&listener), Some(3));
        let (unix, _other) = std::os::unix::net::UnixStream::pair().expect("a pair");
        assert_eq!(queued(&unix), None);
    }

    #[test]
    fn accept_returns_the_address_of_the_client() {
        let listener = tcp(ANY.parse().expect("valid"), Reuse::None, 8).expect("a free port");
        let local = tcp_address(&listener);
        assert!(accept(&listener).expect("it listens").is_none());
        let client = std::net::TcpStream::connect(local).expect("it listens");
        let (ours, peer) = accept(&listener).expect("it listens").expect("one waits");
        assert_eq!(peer.as_socket(), client.local_addr().ok());
        assert!(SockRef::from(&ours).nonblocking().expect("a socket"));

        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("s");
        let (listener, _file) = unix::listen(&path, 8, unix::tests::ALL).expect("a new path");
        assert!(accept(&listener).expect("it listens").is_none());
        let _client = std::os::unix::net::UnixStream::connect(&path).expect("it listens");
        let (ours, peer) = accept(&listener).expect("it listens").expect("one waits");
        assert!(peer.is_unix() && peer.as_socket().is_none(), "{peer:?}");
        assert!(SockRef::from(&ours).nonblocking().expect("a socket"));
    }

    #[test]
    fn a_listener_that_was_shut_down_listens_again_at_its_port() {
        let own = "127.0.0.25:0".parse().expect("valid");
        let first = tcp(own, Reuse::First, 8).expect("a free port");
        let local = tcp_address(&first);
        let second = tcp(local, Reuse::Join, 8).expect("the first one shares");
        for listener in [&first, &second] {
            assert!(!is_shut_down(listener));
            let shutdown = SockRef::from(listener).shutdown(std::net::Shutdown::Both);
            shutdown.expect("it listens");
            assert!(is_shut_down(listener));
        }
        std::net::TcpStream::connect(local).expect_err("no socket listens");
        for listener in [&first, &second] {
            listen_again(listener, local, 8).expect("the port is free");
            assert!(!is_shut_down(listener));
            assert_eq!(address(listener).expect("bound"), local.into());
        }
        let connect = |_| std::net::TcpStream::connect(local).expect("it listens");
        let _clients: Vec<_> = (0..10).map(connect).collect();
        let waiting = [&first, &second].map(|listener| queued(listener).expect("TCP"));
        assert_eq!(waiting.iter().sum::<usize>(), 10);
        let error = tcp(local, Reuse::First, 8).expect_err("another server");
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    }
}
