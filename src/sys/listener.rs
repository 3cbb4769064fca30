//! Listeners: made by the master with every option that must precede bind(2), taken over by
//! workers.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use nix::libc;
use nix::sys::socket::{SockType, getsockopt, sockopt};
use socket2::{Domain, SockAddr, SockRef, Socket, Type};

use crate::address::Address;
use crate::record::record;

/// Whether other listeners may have the same address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reuse {
    /// `SO_REUSEPORT`: the kernel spreads connections over all that are bound to the address.
    Port,
    /// Nobody else.
    None,
}

/// The file of a Unix listener, removed when the master lets go of it.
#[derive(Debug)]
pub(crate) struct UnixFile {
    path: PathBuf,
    identity: Identity,
}

/// Tells a file from another of the same name. The time of binding is part of it, since a new file
/// often gets the inode of the one that was just removed.
#[derive(Debug, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
    bound: (i64, i64),
}

record!(UnixFile { path, identity });
record!(Identity {
    device,
    inode,
    bound
});

/// A listening, non-blocking, close-on-exec TCP socket. Accepted connections inherit
/// `TCP_NODELAY` (tcp(7)). An IPv6 one takes no IPv4.
pub(crate) fn tcp(address: SocketAddr, reuse: Reuse, backlog: u32) -> io::Result<OwnedFd> {
    let socket = bound(address, reuse)?;
    socket.set_tcp_nodelay(true)?;
    socket.listen(i32::try_from(backlog).unwrap_or(i32::MAX))?;
    Ok(socket.into())
}

/// Fails if anybody listens on `address`, even one who would share it: two servers on one port
/// by mistake would each get a part of the connections.
pub(crate) fn probe(address: SocketAddr) -> io::Result<()> {
    // SO_REUSEADDR, because connections of an earlier server in TIME_WAIT are no obstacle.
    bound(address, Reuse::None).map(drop)
}

fn bound(address: SocketAddr, reuse: Reuse) -> io::Result<Socket> {
    let kind = Type::STREAM.nonblocking().cloexec();
    let socket = Socket::new(Domain::for_address(address), kind, None)?;
    socket.set_reuse_address(true)?;
    if reuse == Reuse::Port {
        socket.set_reuse_port(true)?;
    }
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.bind(&address.into())?;
    Ok(socket)
}

/// A listening Unix socket. A socket file left over by a server that is gone is replaced; one that
/// is answered, or that is not a socket, is not.
pub(crate) fn unix(path: &Path, backlog: u32) -> io::Result<(OwnedFd, UnixFile)> {
    remove_stale(path)?;
    let socket = Socket::new(Domain::UNIX, Type::STREAM.nonblocking().cloexec(), None)?;
    socket.bind(&SockAddr::unix(path)?)?;
    socket.listen(i32::try_from(backlog).unwrap_or(i32::MAX))?;
    let identity = Identity::of(path)?;
    Ok((
        socket.into(),
        UnixFile {
            path: path.to_owned(),
            identity,
        },
    ))
}

fn remove_stale(path: &Path) -> io::Result<()> {
    match path.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
        Ok(metadata) if !metadata.file_type().is_socket() => {
            return Err(io::Error::new(
                io::ErrorKind::AlreadyExists,
                "the file exists and is not a socket; remove it or choose another path",
            ));
        }
        Ok(_) => {}
    }
    // Non-blocking: one whose queue is full would keep us waiting until it accepts.
    let socket = Socket::new(Domain::UNIX, Type::STREAM.nonblocking().cloexec(), None)?;
    match socket.connect(&SockAddr::unix(path)?) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path)
        }
        Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
        Ok(()) | Err(_) => Err(io::ErrorKind::AddrInUse.into()),
    }
}

impl Identity {
    fn of(path: &Path) -> io::Result<Self> {
        let metadata = path.symlink_metadata()?;
        Ok(Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            bound: (metadata.mtime(), metadata.mtime_nsec()),
        })
    }
}

impl Drop for UnixFile {
    fn drop(&mut self) {
        // Another server may have replaced the file; then it is not ours to remove.
        if Identity::of(&self.path).is_ok_and(|identity| identity == self.identity)
            && let Err(error) = std::fs::remove_file(&self.path)
        {
            tracing::warn!(path = %self.path.display(), %error, "the socket file stays");
        }
    }
}

/// Makes a listener that somebody else made one of ours: non-blocking, and its connections without
/// delay as those of [`tcp`]. Fails if it is not a listening stream socket with an address.
pub(crate) fn inherited(listener: &OwnedFd) -> io::Result<Address> {
    let refuse = |why| io::Error::new(io::ErrorKind::InvalidInput, why);
    match getsockopt(listener, sockopt::SockType) {
        Ok(SockType::Stream) => {}
        Ok(_) => return Err(refuse("it is not a stream socket (SOCK_STREAM)")),
        Err(error) => return Err(error.into()),
    }
    if !getsockopt(listener, sockopt::AcceptConn)? {
        return Err(refuse(
            "it does not listen (SO_ACCEPTCONN); the unit needs ListenStream= and Accept=no",
        ));
    }
    let address = address(listener).map_err(|error| match error.kind() {
        io::ErrorKind::Unsupported => refuse("it is bound to neither TCP nor a path"),
        _ => error,
    })?;
    let socket = SockRef::from(listener);
    socket.set_nonblocking(true)?;
    if let Address::Tcp(_) = address {
        socket.set_tcp_nodelay(true)?;
    }
    Ok(address)
}

/// The address a listener is bound to (getsockname(2)).
pub(crate) fn address(listener: impl AsFd) -> io::Result<Address> {
    let address = SockRef::from(&listener).local_addr()?;
    if let Some(address) = address.as_socket() {
        return Ok(Address::Tcp(address));
    }
    let path = address.as_pathname().ok_or(io::ErrorKind::Unsupported)?;
    Ok(Address::Unix(path.to_owned()))
}

/// One connection that waits in the listener's queue, non-blocking and close-on-exec, with the
/// address of whoever has connected; `None` if none waits. One system call, accept4(2).
pub(crate) fn accept(listener: impl AsFd) -> io::Result<Option<(OwnedFd, SockAddr)>> {
    let listener = listener.as_fd().as_raw_fd();
    let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: accept4(2) writes an address to the storage, of at most the length it is given, and
    // the address's own length over that one. The descriptor has just been made and nobody else
    // knows it.
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

/// How many connections wait in a TCP listener's queue (tcp(7), `TCP_INFO`); `None` for a Unix one,
/// whose queue the kernel does not tell.
pub(crate) fn queued(listener: impl AsFd) -> Option<usize> {
    // SAFETY: a `tcp_info` is integers, for which zero is a value.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut len = libc::socklen_t::try_from(size_of_val(&info)).expect("a small struct");
    // SAFETY: the kernel writes at most `len` bytes to `info`, which is that large.
    let result = unsafe {
        libc::getsockopt(
            listener.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut info).cast(),
            &raw mut len,
        )
    };
    // For a listener this field is the length of its queue.
    (result == 0).then_some(info.tcpi_unacked as usize)
}

/// What the kernel makes of a wished backlog: at most `net.core.somaxconn` (listen(2)).
pub(crate) fn clamped_backlog(wished: u32) -> Option<u32> {
    let limit = std::fs::read_to_string("/proc/sys/net/core/somaxconn").ok()?;
    let limit = limit.trim().parse().ok()?;
    (limit < wished).then_some(limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANY: &str = "127.0.0.1:0";

    #[test]
    fn a_probe_finds_a_listener_that_would_share_its_port() {
        let first = tcp(ANY.parse().expect("valid"), Reuse::Port, 8).expect("a free port");
        let Ok(Address::Tcp(taken)) = address(&first) else {
            panic!("a TCP address")
        };
        let _second = tcp(taken, Reuse::Port, 8).expect("SO_REUSEPORT shares");
        let error = probe(taken).expect_err("the probe must not share");
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        drop((first, _second));
        probe(taken).expect("free again");
    }

    #[test]
    fn a_socket_file_is_replaced_only_if_nobody_answers() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("s");
        let (listener, file) = unix(&path, 8).expect("a new path");
        let error = unix(&path, 8).expect_err("somebody answers");
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        drop(listener);
        let (_again, new_file) = unix(&path, 8).expect("nobody answers now");
        drop(file);
        assert!(
            path.exists(),
            "the old owner must not remove the new one's file"
        );
        drop(new_file);
        assert!(!path.exists());
    }

    #[test]
    fn a_socket_whose_queue_is_full_is_in_use() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("s");
        let (_listener, _file) = unix(&path, 0).expect("a new path");
        let _first = std::os::unix::net::UnixStream::connect(&path).expect("room for one");
        let error = unix(&path, 8).expect_err("somebody has it, and is slow");
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    }

    #[test]
    fn the_queue_of_a_tcp_listener_is_counted() {
        let listener = tcp(ANY.parse().expect("valid"), Reuse::None, 8).expect("a free port");
        assert_eq!(queued(&listener), Some(0));
        let Ok(Address::Tcp(address)) = address(&listener) else {
            panic!("a TCP address")
        };
        let connect = || std::net::TcpStream::connect(address).expect("room for three");
        let _clients = [connect(), connect(), connect()];
        assert_eq!(queued(&listener), Some(3));
        let (unix, _other) = std::os::unix::net::UnixStream::pair().expect("a pair");
        assert_eq!(queued(&unix), None);
    }

    #[test]
    fn a_connection_comes_with_the_address_of_its_client() {
        let listener = tcp(ANY.parse().expect("valid"), Reuse::None, 8).expect("a free port");
        let Ok(Address::Tcp(local)) = address(&listener) else {
            panic!("a TCP address")
        };
        assert!(accept(&listener).expect("it listens").is_none());
        let client = std::net::TcpStream::connect(local).expect("it listens");
        let (ours, peer) = accept(&listener).expect("it listens").expect("one waits");
        assert_eq!(peer.as_socket(), client.local_addr().ok());
        assert!(SockRef::from(&ours).nonblocking().expect("a socket"));

        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("s");
        let (listener, _file) = unix(&path, 8).expect("a new path");
        assert!(accept(&listener).expect("it listens").is_none());
        let _client = std::os::unix::net::UnixStream::connect(&path).expect("it listens");
        let (ours, peer) = accept(&listener).expect("it listens").expect("one waits");
        assert!(peer.is_unix() && peer.as_socket().is_none(), "{peer:?}");
        assert!(SockRef::from(&ours).nonblocking().expect("a socket"));
    }

    #[test]
    fn what_is_inherited_must_listen() {
        let listener = std::net::TcpListener::bind(ANY).expect("a free port");
        let local = listener.local_addr().expect("bound");
        let listener = OwnedFd::from(listener);
        assert_eq!(inherited(&listener).expect("it listens"), local.into());
        assert!(SockRef::from(&listener).nonblocking().expect("a socket"));
        let datagram = std::net::UdpSocket::bind(ANY).expect("a free port");
        let error = inherited(&datagram.into()).expect_err("no stream");
        assert!(error.to_string().contains("SOCK_STREAM"), "{error}");
        let connection = std::net::TcpStream::connect(local).expect("it listens");
        let error = inherited(&connection.into()).expect_err("a connection");
        assert!(error.to_string().contains("SO_ACCEPTCONN"), "{error}");
        let (reader, _writer) = io::pipe().expect("a pipe");
        inherited(&reader.into()).expect_err("no socket");
    }

    #[test]
    fn a_file_that_is_no_socket_is_left_alone() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("precious");
        std::fs::write(&path, "data").expect("writable");
        let error = unix(&path, 8).expect_err("a plain file").to_string();
        assert!(error.contains("not a socket"), "{error}");
        assert_eq!(std::fs::read_to_string(&path).expect("still there"), "data");
    }
}
