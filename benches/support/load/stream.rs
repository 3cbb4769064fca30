//! What a client reads from and writes to: a socket, bare or within TLS.

use std::io::{self, ErrorKind, Read, Write};

use socket2::Socket;

use super::outcome::Failure;
use super::tls::{Session, Sessions};

pub(super) struct Stream {
    pub(super) socket: Socket,
    session: Option<Box<Session>>,
}

impl Stream {
    /// Within TLS where there are sessions. Nothing is sent yet.
    pub(super) fn new(socket: Socket, sessions: Option<&mut Sessions>) -> Self {
        let session = sessions.map(|sessions| Box::new(sessions.begin()));
        Self { socket, session }
    }

    /// All of it, or none where it would block: the connection is not open yet.
    pub(super) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        if let Some(session) = &mut self.session {
            return session.send(&mut self.socket, bytes);
        }
        let sent = self.socket.write(bytes)?;
        let all = bytes.len();
        assert_eq!(sent, all, "an empty send buffer takes some requests whole");
        Ok(())
    }

    pub(super) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &mut self.session {
            None => self.socket.read(buffer),
            Some(session) => session.read(&mut self.socket, buffer),
        }
    }

    /// Whether the connection began as it should, once something has been read from it.
    pub(super) fn judge(&self) -> Result<(), Failure> {
        self.session.as_ref().map_or(Ok(()), |it| it.judge())
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
