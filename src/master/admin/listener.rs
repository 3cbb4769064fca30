//! The listener of an admin address.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use crate::address::Address;
use crate::codec::record;
use crate::sys::discard::discard;
use crate::sys::listener::unix::{self, Access, UnixFile};
use crate::sys::listener::{self, Reuse, harm};

/// Only its owner may connect to the socket file.
const ACCESS: Access = Access {
    mode: 0o600,
    group: None,
};

/// The longest queue of the listener.
const BACKLOG: u32 = 128;

/// It crosses into the next image.
#[derive(Debug)]
pub(super) struct AdminListener {
    pub(super) asked: Address,
    pub(super) address: Address,
    pub(super) fd: OwnedFd,
    pub(super) file: Option<UnixFile>,
}

record!(AdminListener {
    asked,
    address,
    fd,
    file
});

impl AdminListener {
    /// Only the user of the master and root can connect to a path. Everyone can connect to a port.
    pub(super) fn takes_commands(&self) -> bool {
        matches!(self.address, Address::Unix(_))
    }

    pub(super) fn open(asked: &Address) -> io::Result<Self> {
        let (fd, file) = match asked {
            Address::Tcp(address) => (listener::tcp(*address, Reuse::None, BACKLOG)?, None),
            Address::Unix(path) => {
                let (fd, file) = unix::listen(path, BACKLOG, ACCESS)?;
                (fd, Some(file))
            }
        };
        Ok(Self {
            asked: asked.clone(),
            address: listener::address(&fd)?,
            fd,
            file,
        })
    }

    /// Makes a socket file again that was removed, and mends a port, whose process may run as the
    /// workers' user.
    pub(super) fn renew(&mut self) -> io::Result<()> {
        match self.address {
            Address::Tcp(address) => self.mend(address)?,
            Address::Unix(_) => {
                if self.file.as_ref().is_some_and(UnixFile::is_gone) {
                    *self = Self::open(&self.asked)?;
                }
            }
        }
        Ok(())
    }

    /// A process that has the listener can change its options and its queue, close it for all
    /// processes, and connect the socket.
    fn mend(&mut self, address: SocketAddr) -> io::Result<()> {
        if !harm::open_again(&self.fd, address, Some(Reuse::None), BACKLOG) {
            let new = listener::tcp(address, Reuse::None, BACKLOG)?;
            discard(std::mem::replace(&mut self.fd, new));
        }
        Ok(())
    }
}
