//! A connection that is kept alive, for a thread that waits for its answers.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd;

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv};

use crate::answer::{Afterwards, Garbled, Progress, check, request};
use crate::client::PATIENCE;
use crate::process::Trouble;

pub(crate) struct Kept(TcpStream);

impl Kept {
    /// `None` if nobody listens, or nobody who listens stays.
    pub(crate) fn open(address: SocketAddr) -> Result<Option<Self>, Trouble> {
        let stream = match TcpStream::connect_timeout(&address, PATIENCE) {
            Ok(stream) => stream,
            Err(error) => match error.kind() {
                ErrorKind::ConnectionRefused | ErrorKind::ConnectionReset => return Ok(None),
                _ => return Err(error.into()),
            },
        };
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        Ok(Some(Self(stream)))
    }

    /// One that was asked once. The server is quiet, and so there is no excuse.
    pub(crate) fn answering(address: SocketAddr, token: &str) -> Result<Self, Trouble> {
        if let Some(mut kept) = Self::open(address)?
            && kept.ask(token)? == Some(Afterwards::Keep)
        {
            return Ok(kept);
        }
        Err(Trouble::Stuck("a quiet server keeps no connection".into()))
    }

    /// Whether the server has left it open; asked of the kernel.
    pub(crate) fn is_open(&self) -> bool {
        let flags = MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT;
        recv(self.0.as_raw_fd(), &mut [0], flags) == Err(Errno::EAGAIN)
    }

    pub(crate) fn ask(&mut self, token: &str) -> Result<Option<Afterwards>, Trouble> {
        match self.send(token) {
            Ok(()) => self.receive(token),
            Err(_) => Ok(None),
        }
    }

    /// Fails only if the server has closed the connection.
    pub(crate) fn send(&mut self, token: &str) -> io::Result<()> {
        self.0.write_all(request(token, "").as_bytes())
    }

    /// The answer to what was sent last; `None` if the server has closed the connection instead.
    pub(crate) fn receive(&mut self, token: &str) -> Result<Option<Afterwards>, Trouble> {
        let (mut answer, mut bytes) = (Vec::new(), [0; 1024]);
        loop {
            match self.0.read(&mut bytes) {
                Ok(0) => return Ok(None),
                Ok(count) => answer.extend_from_slice(&bytes[..count]),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return Ok(None),
                Err(error) => return Err(error.into()),
            }
            match check(&answer, token.as_bytes()) {
                Ok(Progress::Partial) => {}
                Ok(Progress::Complete(afterwards)) => return Ok(Some(afterwards)),
                Err(Garbled(why)) => {
                    let answer = answer.escape_ascii();
                    return Err(Trouble::Stuck(format!("{why}: \"{answer}\"")));
                }
            }
        }
    }
}
