//! Listeners: made by the master with every option that must precede bind(2), taken over by
//! workers.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use nix::sys::socket::{SockFlag, accept4};
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
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path)
        }
        Err(error) => Err(error),
        Ok(_) => Err(io::ErrorKind::AddrInUse.into()),
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

/// The address a listener is bound to (getsockname(2)).
pub(crate) fn address(listener: impl AsFd) -> io::Result<Address> {
    let address = SockRef::from(&listener).local_addr()?;
    if let Some(address) = address.as_socket() {
        return Ok(Address::Tcp(address));
    }
    let path = address.as_pathname().ok_or(io::ErrorKind::Unsupported)?;
    Ok(Address::Unix(path.to_owned()))
}

/// One connection that waits in the listener's queue, non-blocking and close-on-exec, without
/// asking whether any waits; `None` if none does.
pub(crate) fn accept_queued(listener: impl AsFd) -> io::Result<Option<OwnedFd>> {
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    match accept4(listener.as_fd().as_raw_fd(), flags) {
        // SAFETY: accept4(2) has just made this descriptor and nobody else knows it.
        Ok(fd) => Ok(Some(unsafe { OwnedFd::from_raw_fd(fd) })),
        Err(nix::errno::Errno::EAGAIN) => Ok(None),
        Err(error) => Err(error.into()),
    }
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
    fn a_file_that_is_no_socket_is_left_alone() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("precious");
        std::fs::write(&path, "data").expect("writable");
        let error = unix(&path, 8).expect_err("a plain file").to_string();
        assert!(error.contains("not a socket"), "{error}");
        assert_eq!(std::fs::read_to_string(&path).expect("still there"), "data");
    }
}
