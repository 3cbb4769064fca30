//! What a client reads from and writes to: a socket, bare or within TLS.

use std::io::{self, ErrorKind, Read, Write};

use socket2::Socket;

use super::outcome::Failure;
use super::tls::{Secure, Sessions};

pub(super) enum Stream {
    Plain(Socket),
    Secure(Box<Secure>),
}

impl Stream {
    /// Within TLS where there are sessions. Nothing is sent yet.
    pub(super) fn new(socket: Socket, sessions: Option<&mut Sessions>) -> Self {
        match sessions {
            None => Self::Plain(socket),
            Some(sessions) => Self::Secure(sessions.begin(socket)),
        }
    }

    pub(super) fn socket(&self) -> &Socket {
        match self {
            Self::Plain(socket) => socket,
            Self::Secure(secure) => secure.socket(),
        }
    }

    /// All of it, or none where it would block: the connection is not open yet.
    pub(super) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let socket = match self {
            Self::Plain(socket) => socket,
            Self::Secure(secure) => return secure.send(bytes),
        };
        let sent = socket.write(bytes)?;
        assert_eq!(
            sent,
            bytes.len(),
            "an empty send buffer takes some requests whole"
        );
        Ok(())
    }

    /// Whether the connection began as it should, once something has been read from it.
    pub(super) fn judge(&self) -> Result<(), Failure> {
        match self {
            Self::Plain(_) => Ok(()),
            Self::Secure(secure) => secure.judge(),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.read(buffer),
            Self::Secure(secure) => secure.read(buffer),
        }
    }
}

/// What it means that a read failed. The first two kinds are TLS's alone.
pub(super) fn failure(error: &io::Error) -> Failure {
    match error.kind() {
        ErrorKind::InvalidData => Failure::Tls,
        ErrorKind::UnexpectedEof => Failure::Eof,
        _ => Failure::Reset,
    }
}
