//! A client of the admin address: one request on each connection.

use std::fmt;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use prefork_server::Address;
use serde_json::Value;

/// How long the server may take to respond, beyond the wait that the request asks for.
const PATIENCE: Duration = Duration::from_secs(10);

/// A longer response is none of ours.
const LENGTH_MAX: u64 = 16 << 20;

#[derive(Clone, Debug)]
pub(super) struct Admin {
    address: Address,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Method {
    Get,
    Post,
}

/// Why a verb is not done.
#[derive(Debug)]
pub(super) enum Failure {
    /// The operation was abandoned.
    Failed(String),
    /// The server does not begin it.
    Refused(String),
    NotInTime(Duration),
    NoServer(String),
    NotAllowed(PathBuf),
    Unreachable(Address, io::Error),
    Output(io::Error),
}

impl Failure {
    pub(super) fn code(&self) -> u8 {
        match self {
            Self::Failed(_) | Self::Output(_) => 1,
            Self::Refused(_) => 3,
            Self::NotInTime(_) => 4,
            Self::NoServer(_) | Self::Unreachable(..) => 5,
            Self::NotAllowed(_) => 6,
        }
    }

    pub(super) fn unexpected(error: impl fmt::Display) -> Self {
        Self::Failed(format!("not a response of an admin address: {error}"))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(why) => f.write_str(why),
            Self::Refused(why) => write!(f, "refused: {why}"),
            Self::NotInTime(wait) => write!(f, "not done within {wait:?}; it goes on"),
            Self::NoServer(why) => f.write_str(why),
            Self::NotAllowed(path) => {
                write!(
                    f,
                    "only the user of the server and root can use {}",
                    path.display()
                )
            }
            Self::Unreachable(address, error) => write!(f, "{address} does not respond: {error}"),
            Self::Output(error) => write!(f, "cannot write: {error}"),
        }
    }
}

impl Admin {
    pub(super) fn at(address: Address) -> Self {
        Self { address }
    }

    /// The body of a response with status 200.
    pub(super) fn get(&self, path: &str) -> Result<String, Failure> {
        let (status, body) = self.request(Method::Get, path, Duration::ZERO)?;
        match status {
            200 => Ok(body),
            _ => Err(Failure::Refused(body.trim_end().to_owned())),
        }
    }

    /// The operation that the response describes, when it has ended or after `wait`.
    pub(super) fn operation(
        &self,
        method: Method,
        path: &str,
        wait: Duration,
    ) -> Result<Value, Failure> {
        let joint = if path.contains('?') { '&' } else { '?' };
        // Rounded up, so that the server does not respond before the time is over.
        let seconds = wait.as_millis().div_ceil(1000);
        let path = format!("{path}{joint}wait={seconds}");
        let (status, body) = self.request(method, &path, wait)?;
        match status {
            200 | 202 => serde_json::from_str(&body).map_err(Failure::unexpected),
            _ => Err(Failure::Refused(body.trim_end().to_owned())),
        }
    }

    /// How many slots the server is to have.
    pub(super) fn workers(&self) -> Result<i64, Failure> {
        let status: Value =
            serde_json::from_str(&self.get("/status")?).map_err(Failure::unexpected)?;
        status["workers"]
            .as_i64()
            .ok_or_else(|| Failure::unexpected("no number of workers"))
    }

    /// Gives each event of a stream to `each`, until the stream ends for good. If the admin process
    /// is replaced, the stream goes on.
    pub(super) fn follow(
        &self,
        path: &str,
        mut each: impl FnMut(&str) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let stream = self.connect(None)?;
        let mut lines = BufReader::new(self.send(stream, Method::Get, path)?).lines();
        while let Some(line) = lines.next().transpose().map_err(|error| self.lost(error))? {
            if let Some(event) = line.strip_prefix("data: ") {
                each(event)?;
            }
        }
        Ok(())
    }

    fn request(
        &self,
        method: Method,
        path: &str,
        wait: Duration,
    ) -> Result<(u16, String), Failure> {
        let stream = self.connect(Some(wait.saturating_add(PATIENCE)))?;
        let mut stream = self.send(stream, method, path)?.take(LENGTH_MAX);
        let mut response = String::new();
        stream
            .read_to_string(&mut response)
            .map_err(|error| self.lost(error))?;
        let parts = response.split_once("\r\n\r\n").and_then(|(head, body)| {
            let status = head.split(' ').nth(1)?.parse().ok()?;
            Some((status, body.to_owned()))
        });
        parts.ok_or_else(|| self.lost(ErrorKind::UnexpectedEof.into()))
    }

    /// In HTTP/1.0, so that the response ends with the connection and has no chunks.
    fn send(
        &self,
        mut stream: Box<dyn Stream>,
        method: Method,
        path: &str,
    ) -> Result<Box<dyn Stream>, Failure> {
        let method = match method {
            Method::Get => "GET",
            Method::Post => "POST",
        };
        write!(
            stream,
            "{method} {path} HTTP/1.0\r\ncontent-length: 0\r\n\r\n"
        )
        .map_err(|error| self.lost(error))?;
        Ok(stream)
    }

    fn connect(&self, timeout: Option<Duration>) -> Result<Box<dyn Stream>, Failure> {
        let connected = || -> io::Result<Box<dyn Stream>> {
            Ok(match &self.address {
                Address::Tcp(address) => {
                    let stream = TcpStream::connect_timeout(address, PATIENCE)?;
                    stream.set_read_timeout(timeout)?;
                    Box::new(stream)
                }
                Address::Unix(path) => {
                    let stream = UnixStream::connect(path)?;
                    stream.set_read_timeout(timeout)?;
                    Box::new(stream)
                }
                _ => return Err(ErrorKind::Unsupported.into()),
            })
        };
        connected().map_err(|error| self.lost(error))
    }

    fn lost(&self, error: io::Error) -> Failure {
        match (&self.address, error.kind()) {
            (Address::Unix(path), ErrorKind::PermissionDenied) => Failure::NotAllowed(path.clone()),
            _ => Failure::Unreachable(self.address.clone(), error),
        }
    }
}

trait Stream: Read + Write {}

impl<T: Read + Write> Stream for T {}
