//! Whether listeners can join a group after its first one has been bound.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use socket2::{Domain, SockRef, Socket, Type};

use crate::sys::listener::{Reuse, bound, listening};

/// Linux lets other listeners join a group whose first one got its option after bind(2). gVisor
/// (runsc 20260905) does not, so there the first one makes room for one that has the option before.
/// Another server cannot join that group either, unless both start at the same time.
pub(super) fn joinable(first: OwnedFd, backlog: u32) -> io::Result<OwnedFd> {
    let address = SockRef::from(&first).local_addr()?;
    let address = address.as_socket().ok_or(io::ErrorKind::InvalidInput)?;
    // If a setting allows no other port, the kernel is Linux.
    if can_be_joined_late(address).unwrap_or(true) {
        return Ok(first);
    }
    drop(first);
    listening(bound(address, Reuse::Join)?, Reuse::Join, backlog)
}

/// Whether the kernel lets a socket join a listener that got `SO_REUSEPORT` after bind(2). It is
/// tried on another port. On that of the server, another server that starts at the same time may be
/// what refuses: while it calls listen(2), the kernel takes its socket for a listener.
fn can_be_joined_late(mut address: SocketAddr) -> io::Result<bool> {
    address.set_port(0);
    let socket = || Socket::new(Domain::for_address(address), Type::STREAM.cloexec(), None);
    let (first, second) = (socket()?, socket()?);
    first.bind(&address.into())?;
    first.listen(1)?;
    first.set_reuse_port(true)?;
    second.set_reuse_port(true)?;
    let joined = second.bind(&first.local_addr()?);
    Ok(!joined.is_err_and(|error| error.kind() == io::ErrorKind::AddrInUse))
}
