//! What stands in for TLS where it is not built. There is nothing of it.

use std::io::{self, Read};

use socket2::Socket;

use super::outcome::Failure;

#[derive(Clone, Debug)]
pub(crate) enum Tls {}

impl Tls {
    pub(super) fn sessions(&self) -> Sessions {
        match *self {}
    }
}

pub(super) enum Sessions {}

impl Sessions {
    pub(super) fn begin(&mut self, _socket: Socket) -> Box<Secure> {
        match *self {}
    }
}

pub(super) enum Secure {}

impl Secure {
    pub(super) fn socket(&self) -> &Socket {
        match *self {}
    }

    pub(super) fn send(&mut self, _bytes: &[u8]) -> io::Result<()> {
        match *self {}
    }

    pub(super) fn judge(&self) -> Result<(), Failure> {
        match *self {}
    }
}

impl Read for Secure {
    fn read(&mut self, _buffer: &mut [u8]) -> io::Result<usize> {
        match *self {}
    }
}
