//! The listener of an admin address.

use std::io;
use std::os::fd::OwnedFd;

use crate::address::Address;
use crate::codec::record;
use crate::sys::listener::unix::{self, Access, UnixFile};
use crate::sys::listener::{self, Reuse};

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
}
