//! A client's connection: a request, and the one response it may have, checked as it arrives.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv};
use rustls::{ClientConnection, Stream};

use crate::process::Trouble;
use crate::support::load::{Expected, Fate, Response};
use crate::tally::Loss;

/// How long a response may take. No event should delay one by a tenth of it.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(5);

const READ_MAX: usize = 64 * 1024;

/// How much of a response is told if it is lost.
const TOLD_MAX: usize = 1024;

/// How a client treats its connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Habit {
    /// A connection for each request, which asks for its end.
    NewConnections,
    /// One for as long as the server lets it.
    KeepsAlive,
}

/// A request, and the one response that it may have.
#[derive(Clone)]
pub(crate) struct Exchange {
    request: Vec<u8>,
    expected: Expected,
    habit: Habit,
}

impl Exchange {
    /// Asks for `token` back. It is in the body for servers that echo, and in a header for those
    /// that cannot.
    pub(crate) fn echo(habit: Habit, token: &str) -> Self {
        let fields = match habit {
            Habit::NewConnections => "Connection: close\r\n",
            Habit::KeepsAlive => "",
        };
        let request = format!(
            "POST /echo HTTP/1.1\r\nHost: localhost\r\nX-Token: {token}\r\n{fields}\
             Content-Length: {}\r\n\r\n{token}",
            token.len(),
        );
        Self {
            request: request.into(),
            expected: Expected::Bytes(token.as_bytes().into()),
            habit,
        }
    }

    /// Asks for a file on a connection that is kept.
    pub(crate) fn download(path: &str, contents: Arc<[u8]>) -> Self {
        Self {
            request: format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").into(),
            expected: Expected::Bytes(contents),
            habit: Habit::KeepsAlive,
        }
    }

    /// Whether the client wants to ask again on the same connection.
    pub(crate) fn is_kept(&self) -> bool {
        self.habit == Habit::KeepsAlive
    }
}

/// How a request was lost.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) loss: Loss,
    pub(crate) detail: String,
}

impl Failure {
    fn new(loss: Loss, detail: impl ToString) -> Self {
        let detail = detail.to_string();
        Self { loss, detail }
    }

    fn garbled(why: &str, response: &[u8]) -> Self {
        Self::new(
            Loss::Garbled,
            format!("{why}: \"{}\"", response.escape_ascii()),
        )
    }
}

impl From<Failure> for Trouble {
    fn from(failure: Failure) -> Self {
        Self::Stuck(format!("{}: {}", failure.loss.name(), failure.detail))
    }
}

/// Panics are for failures of the load itself, such as a want of ports.
pub(crate) struct Connection {
    stream: TcpStream,
    tls: Option<Box<ClientConnection>>,
    pub(crate) port: u16,
    /// How many responses it has brought.
    pub(crate) answered: u32,
}

impl Connection {
    pub(crate) fn open(address: SocketAddr) -> Result<Self, Failure> {
        let stream = TcpStream::connect_timeout(&address, TIMEOUT).map_err(|error| {
            let loss = match error.kind() {
                ErrorKind::ConnectionRefused => Loss::Refused,
                ErrorKind::ConnectionReset => Loss::ResetNew,
                ErrorKind::TimedOut => Loss::Silence,
                _ => panic!("connect(2): {error}"),
            };
            Failure::new(loss, error)
        })?;
        Ok(Self::over(stream))
    }

    /// A connection that was opened otherwise.
    pub(crate) fn over(stream: TcpStream) -> Self {
        stream
            .set_read_timeout(Some(TIMEOUT))
            .expect("it is not zero");
        stream.set_nodelay(true).expect("a TCP socket");
        Self {
            port: stream.local_addr().expect("it is bound").port(),
            stream,
            tls: None,
            answered: 0,
        }
    }

    /// The same within TLS.
    #[allow(dead_code, reason = "the bench `connections` uses it")]
    pub(crate) fn within(self, tls: ClientConnection) -> Self {
        let tls = Some(Box::new(tls));
        Self { tls, ..self }
    }

    /// Whether the server has left it open. Asked of the kernel.
    pub(crate) fn is_open(&self) -> bool {
        let flags = MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT;
        recv(self.stream.as_raw_fd(), &mut [0], flags) == Err(Errno::EAGAIN)
    }

    pub(crate) fn ask(&mut self, exchange: &Exchange) -> Result<Fate, Failure> {
        let mut response = Vec::new();
        let sent = match &mut self.tls {
            None => self.stream.write_all(&exchange.request),
            Some(tls) => Stream::new(tls.as_mut(), &mut self.stream).write_all(&exchange.request),
        };
        if let Err(error) = sent {
            return Err(self.broken(&error, &response));
        }
        let mut bytes = [0; READ_MAX];
        let mut parser = Response::new();
        let fate = loop {
            let count = self.read(&mut bytes, &mut response)?;
            if count == 0 {
                return Err(self.ended(&response));
            }
            match parser.feed(&bytes[..count], &exchange.expected) {
                Ok(None) => {}
                Ok(Some((used, fate))) if used == count => break fate,
                Ok(Some(_)) => return Err(Failure::garbled("more", &response)),
                Err(failure) => return Err(Failure::garbled(failure.name(), &response)),
            }
        };
        self.answered += 1;
        if exchange.is_kept() {
            return Ok(fate);
        }
        // What follows a whole response is not part of it. Reading to the end also leaves the wait
        // for stray segments (TIME_WAIT) to the server's side, and us with enough ports.
        match self.read(&mut bytes, &mut response) {
            Ok(1..) => Err(Failure::garbled("bytes after the response", &response)),
            Ok(0) | Err(_) => Ok(Fate::Closed),
        }
    }

    /// Keeps the first bytes of the response, to tell them if it is lost.
    fn read(&mut self, bytes: &mut [u8], response: &mut Vec<u8>) -> Result<usize, Failure> {
        let read = match &mut self.tls {
            None => self.stream.read(bytes),
            Some(tls) => Stream::new(tls.as_mut(), &mut self.stream).read(bytes),
        };
        match read {
            Ok(count) => {
                let told = count.min(TOLD_MAX - response.len());
                response.extend_from_slice(&bytes[..told]);
                Ok(count)
            }
            Err(error) => Err(self.broken(&error, response)),
        }
    }

    fn ended(&self, response: &[u8]) -> Failure {
        match (response, self.answered) {
            ([], 0) => Failure::new(Loss::EndNew, "end of file"),
            ([], _) => Failure::new(Loss::EndKept, "end of file"),
            _ => Failure::garbled("cut", response),
        }
    }

    fn broken(&self, error: &std::io::Error, response: &[u8]) -> Failure {
        match error.kind() {
            // Within TLS an end without a last word is an error.
            ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::UnexpectedEof => {}
            ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                let detail = format!("no whole response in {TIMEOUT:?}");
                return Failure::new(Loss::Silence, detail);
            }
            _ => panic!("a connection of the load: {error}"),
        }
        match (response, self.answered) {
            ([], 0) => Failure::new(Loss::ResetNew, error),
            ([], _) => Failure::new(Loss::ResetKept, error),
            _ => Failure::garbled("reset half-way", response),
        }
    }
}
