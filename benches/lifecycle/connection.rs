//! A client's connection: a request, and the one response it may have, checked as it arrives.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv};

use crate::process::Trouble;
use crate::tally::Loss;

/// How long a response may take. No event should delay one by a tenth of it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// What every response begins with. The servers spell it the same.
const STATUS: &[u8] = b"HTTP/1.1 200 ";

/// Far more than any of the servers sends.
const HEAD_MAX: usize = 2048;

/// How a client treats its connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Habit {
    /// A connection for each request, which asks for its end.
    NewConnections,
    /// One for as long as the server lets it.
    KeepsAlive,
}

/// What the server does with the connection after a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Afterwards {
    Keep,
    Close,
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
    pub(crate) port: u16,
    /// How many responses it has brought.
    pub(crate) answered: u32,
}

impl Connection {
    pub(crate) fn open(address: SocketAddr) -> Result<Self, Failure> {
        let stream = TcpStream::connect_timeout(&address, PATIENCE).map_err(|error| {
            let loss = match error.kind() {
                ErrorKind::ConnectionRefused => Loss::Refused,
                ErrorKind::ConnectionReset => Loss::ResetNew,
                ErrorKind::TimedOut => Loss::Silence,
                _ => panic!("connect(2): {error}"),
            };
            Failure::new(loss, error)
        })?;
        stream
            .set_read_timeout(Some(PATIENCE))
            .expect("it is not zero");
        stream.set_nodelay(true).expect("a TCP socket");
        Ok(Self {
            port: stream.local_addr().expect("it is bound").port(),
            stream,
            answered: 0,
        })
    }

    /// Whether the server has left it open. Asked of the kernel.
    pub(crate) fn is_open(&self) -> bool {
        let flags = MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT;
        recv(self.stream.as_raw_fd(), &mut [0], flags) == Err(Errno::EAGAIN)
    }

    /// Asks for `token` back. It is in the body for servers that echo, and in a header for those
    /// that cannot.
    pub(crate) fn ask(&mut self, habit: Habit, token: &str) -> Result<Afterwards, Failure> {
        let fields = match habit {
            Habit::NewConnections => "Connection: close\r\n",
            Habit::KeepsAlive => "",
        };
        let request = format!(
            "POST /echo HTTP/1.1\r\nHost: localhost\r\nX-Token: {token}\r\n{fields}\
             Content-Length: {}\r\n\r\n{token}",
            token.len(),
        );
        let mut response = Vec::with_capacity(1024);
        if let Err(error) = self.stream.write_all(request.as_bytes()) {
            return Err(self.broken(&error, &response));
        }
        let afterwards = loop {
            if self.read(&mut response)? == 0 {
                return Err(self.ended(&response));
            }
            match check(&response, token.as_bytes()) {
                Ok(Some(afterwards)) => break afterwards,
                Ok(None) => {}
                Err(why) => return Err(Failure::garbled(why, &response)),
            }
        };
        self.answered += 1;
        if habit == Habit::KeepsAlive {
            return Ok(afterwards);
        }
        // What follows a whole response is not part of it. Reading to the end also leaves the wait
        // for stray segments (TIME_WAIT) to the server's side, and us with enough ports.
        match self.read(&mut response) {
            Ok(1..) => Err(Failure::garbled("bytes after the response", &response)),
            Ok(0) | Err(_) => Ok(Afterwards::Close),
        }
    }

    fn read(&mut self, response: &mut Vec<u8>) -> Result<usize, Failure> {
        let mut bytes = [0; 1024];
        match self.stream.read(&mut bytes) {
            Ok(count) => {
                response.extend_from_slice(&bytes[..count]);
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
            ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => {}
            ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                let detail = format!("no whole response in {PATIENCE:?}");
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

/// Judges what has arrived for a request that must be answered with `body`: `None` is too little as
/// yet, and an error says why no further bytes can make this the right response.
fn check(bytes: &[u8], body: &[u8]) -> Result<Option<Afterwards>, &'static str> {
    let known = bytes.len().min(STATUS.len());
    if bytes[..known] != STATUS[..known] {
        return Err("another status");
    }
    let Some(end) = bytes.windows(4).position(|it| it == b"\r\n\r\n") else {
        return match bytes.len() {
            ..HEAD_MAX => Ok(None),
            _ => Err("a head without an end"),
        };
    };
    let (head, arrived) = (&bytes[..end], &bytes[end + 4..]);
    if header(head, b"content-length") != Some(body.len().to_string().as_bytes()) {
        return Err("another length");
    }
    if arrived == body {
        let close = header(head, b"connection").is_some_and(|it| it.eq_ignore_ascii_case(b"close"));
        Ok(Some(
            [Afterwards::Keep, Afterwards::Close][usize::from(close)],
        ))
    } else if body.starts_with(arrived) {
        Ok(None)
    } else {
        Err("another body")
    }
}

fn header<'a>(head: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    head.split(|&byte| byte == b'\n').skip(1).find_map(|line| {
        let colon = line.iter().position(|&byte| byte == b':')?;
        let (found, value) = (&line[..colon], &line[colon + 1..]);
        found.eq_ignore_ascii_case(name).then(|| value.trim_ascii())
    })
}
