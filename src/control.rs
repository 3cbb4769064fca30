//! A client of the admin address of a server: for programs that reload, upgrade, resize or stop a
//! server and wait until it is done.
//!
//! It blocks, needs no runtime, and opens a connection for each request. The page
//! [`guide::verbs`](crate::guide::verbs) has the HTTP that it speaks, for other languages.

#[cfg(test)]
mod tests;

use std::fmt;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use http::StatusCode;
use serde_json::Value;

use crate::address::Address;
pub use crate::handle::Command;

/// How long the server may take to respond, beyond the wait that the request asks for.
const PATIENCE: Duration = Duration::from_secs(10);

/// A longer response is not of an admin address.
const LENGTH_MAX: u64 = 16 << 20;

/// How long one request waits for an operation. An admin process that is replaced responds to it,
/// and the next one is asked then.
const HELD_MAX: Duration = Duration::from_secs(5);

/// A stream of notices that is silent for longer has ended: it has a comment every 15 seconds.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// After so many connections in a row that were closed without a response, or without such a
/// stream, none is expected any more. An admin process that ends closes one, and the next
/// connection waits for the next process.
const CLOSED_MAX: u32 = 5;

/// The admin address of a server that runs; see [`Prefork::admin`](crate::Prefork::admin).
///
/// ```no_run
/// use std::time::Duration;
///
/// use prefork_server::control::{Command, Control, Progress};
///
/// let server = Control::at("unix:/run/app/admin".parse()?);
/// // After a deployment: new workers, at most a minute.
/// match server.run(Command::Reload, Some(Duration::from_secs(60)))? {
///     Progress::Done => println!("every worker is new"),
///     Progress::Failed(why) => eprintln!("the old workers go on: {why}"),
///     Progress::Running => eprintln!("it is not done yet, and goes on"),
/// }
/// # Ok::<(), prefork_server::BoxError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Control {
    address: Address,
}

/// What has become of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It is not done.
    Running,
    /// It is done: [`Command`] says when.
    Done,
    /// It has failed, and this is why. The server goes on as before.
    Failed(String),
}

/// A command that the server has.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Begun {
    /// The number of the operation, as `/v1/operations/ID` and notices have it.
    pub id: u64,
    /// What has become of it so far.
    pub progress: Progress,
    /// What it has to do with a command that runs already: it follows that one, or is done with
    /// it. A sentence for people.
    pub note: Option<String>,
    ends_server: bool,
}

/// Why a request has no result. `Display` does not include the cause, which
/// [`source`](std::error::Error::source) returns.
#[derive(Debug)]
#[non_exhaustive]
pub enum ControlError {
    /// The server refuses it, and this is why: it drains, or the address is read-only.
    Refused(String),
    /// This user may not connect to the socket.
    NotAllowed(PathBuf),
    /// The server does not know the operation: it has had many others since, or another server has
    /// the address now.
    UnknownOperation,
    /// Nothing responds at the address.
    Unreachable(Address, io::Error),
    /// The response is not one of an admin address.
    Unexpected(String),
}

#[derive(Clone, Copy)]
enum Method {
    Get,
    Post,
}

impl Control {
    /// The server with this admin address. It connects when it is asked for something.
    #[must_use]
    pub fn at(address: Address) -> Self {
        Self { address }
    }

    /// The body of the response to a GET: of `/status` (JSON), `/metrics`, `/readyz` or `/livez`.
    ///
    /// ```no_run
    /// # use prefork_server::control::{Control, ControlError};
    /// fn is_ready(server: &Control) -> bool {
    ///     server.get("/readyz").is_ok()
    /// }
    /// ```
    ///
    /// # Errors
    /// [`ControlError::Refused`] with the body if the server refuses it.
    pub fn get(&self, path: &str) -> Result<String, ControlError> {
        let (status, body) = self.request(Method::Get, path, PATIENCE)?;
        match status {
            200 => Ok(body),
            _ => Err(refusal(status, &body)),
        }
    }

    /// Gives a command and waits for it, at most for so long. `None`: it returns as soon as the
    /// server has the command.
    ///
    /// # Errors
    /// The command was not given, or the server does not respond any more.
    pub fn run(&self, command: Command, wait: Option<Duration>) -> Result<Progress, ControlError> {
        let begun = self.begin(command)?;
        match begun.progress {
            Progress::Running => self.wait(&begun, wait.unwrap_or_default()),
            ended => Ok(ended),
        }
    }

    /// Gives a command, and returns what the server has made of it.
    ///
    /// ```no_run
    /// use std::time::Duration;
    ///
    /// use prefork_server::control::{Command, Control};
    ///
    /// let server = Control::at("unix:/run/app/admin".parse()?);
    /// let begun = server.begin(Command::Upgrade)?;
    /// if let Some(note) = &begun.note {
    ///     println!("{note}");
    /// }
    /// println!("{:?}", server.wait(&begun, Duration::from_secs(60))?);
    /// # Ok::<(), prefork_server::BoxError>(())
    /// ```
    ///
    /// # Errors
    /// The command was not given.
    pub fn begin(&self, command: Command) -> Result<Begun, ControlError> {
        let begun = self.operation(Method::Post, &command.path(), Duration::ZERO)?;
        Ok(Begun {
            ends_server: matches!(command, Command::Stop(_)),
            ..begun
        })
    }

    /// Waits for a command that was begun, at most for so long.
    ///
    /// # Errors
    /// The server does not know the command any more, or does not respond.
    pub fn wait(&self, begun: &Begun, wait: Duration) -> Result<Progress, ControlError> {
        let deadline = Instant::now().checked_add(wait);
        let path = format!("/v1/operations/{}", begun.id);
        let mut closed: u32 = 0;
        loop {
            let left = deadline.map_or(HELD_MAX, |it| it.saturating_duration_since(Instant::now()));
            match self.operation(Method::Get, &path, left.min(HELD_MAX)) {
                Ok(Begun { progress, .. }) if progress != Progress::Running || left.is_zero() => {
                    return Ok(progress);
                }
                // The end of the server is the end of the admin process too.
                Err(error) if begun.ends_server && error.is_of_no_server_or_another() => {
                    return Ok(Progress::Done);
                }
                Err(error) => {
                    closed += 1;
                    if closed == CLOSED_MAX || left.is_zero() || !error.is_broken_off() {
                        return Err(error);
                    }
                }
                Ok(_) => closed = 0,
            }
        }
    }

    /// Passes each notice to `each`, as JSON: those that are kept, then each new one, until the
    /// server has ended. It connects again when the admin process is replaced, and misses nothing
    /// of the last 200 notices.
    ///
    /// # Errors
    /// The address does not respond at first, or closes each connection. Too many clients listen.
    /// Or `each` returns an error.
    pub fn follow<E: From<ControlError>>(
        &self,
        mut each: impl FnMut(&str) -> Result<(), E>,
    ) -> Result<(), E> {
        let (mut last, mut closed): (u64, u32) = (0, 0);
        let mut stream = self.connect(Some(SILENCE_MAX))?;
        loop {
            let path = format!("/events?after={last}");
            // A stream that breaks off, before the request too, has ended.
            let sent = self.send(stream, Method::Get, &path).into_iter();
            let lines = sent.flat_map(|stream| BufReader::new(stream).lines());
            let mut lines = lines.map_while(Result::ok);
            let status = lines.next().unwrap_or_default();
            let code = status.split(' ').nth(1).and_then(|code| code.parse().ok());
            if !status.is_empty() && code != Some(200) {
                let body = lines.skip_while(|line| !line.is_empty()).skip(1);
                let two: Vec<_> = body.take(2).collect();
                return Err(refusal(code.unwrap_or_default(), &two.join("\n")).into());
            }
            closed += 1;
            for line in lines {
                if line.starts_with(':') {
                    closed = 0;
                } else if let Some(id) = line.strip_prefix("id: ") {
                    last = id.parse().unwrap_or(last);
                } else if let Some(event) = line.strip_prefix("data: ") {
                    each(event)?;
                }
            }
            if closed == CLOSED_MAX {
                return Err(self.lost(ErrorKind::UnexpectedEof.into()).into());
            }
            // The listener stays as long as the server runs.
            match self.connect(Some(SILENCE_MAX)) {
                Ok(next) => stream = next,
                Err(_) => return Ok(()),
            }
        }
    }

    /// The operation that the response describes, when it has ended or after `wait`.
    fn operation(&self, method: Method, path: &str, wait: Duration) -> Result<Begun, ControlError> {
        let joint = if path.contains('?') { '&' } else { '?' };
        // Rounded up, so that the server does not respond before the time is over.
        let seconds = wait.as_millis().div_ceil(1000);
        let path = format!("{path}{joint}wait={seconds}");
        let (status, body) = self.request(method, &path, wait.saturating_add(PATIENCE))?;
        match (method, status) {
            (_, 200 | 202) => {}
            (Method::Get, 404) => return Err(ControlError::UnknownOperation),
            _ => return Err(refusal(status, &body)),
        }
        let object: Option<Value> = serde_json::from_str(&body).ok();
        let parsed = object.and_then(|object| {
            let progress = match object["state"].as_str()? {
                "running" => Progress::Running,
                "done" => Progress::Done,
                _ => Progress::Failed(object["why"].as_str()?.to_owned()),
            };
            Some(Begun {
                id: object["id"].as_u64()?,
                progress,
                note: object["note"].as_str().map(str::to_owned),
                ends_server: false,
            })
        });
        parsed.ok_or(ControlError::Unexpected(body))
    }

    fn request(
        &self,
        method: Method,
        path: &str,
        patience: Duration,
    ) -> Result<(u16, String), ControlError> {
        let stream = self.connect(Some(patience))?;
        let mut stream = self.send(stream, method, path)?.take(LENGTH_MAX);
        let mut response = String::new();
        stream
            .read_to_string(&mut response)
            .map_err(|error| self.lost(explained(error, method, patience)))?;
        let parts = response.split_once("\r\n\r\n").and_then(|(head, body)| {
            let status = head.split(' ').nth(1)?.parse().ok()?;
            Some((status, body.to_owned()))
        });
        let broken_off = || explained(ErrorKind::UnexpectedEof.into(), method, patience);
        parts.ok_or_else(|| self.lost(broken_off()))
    }

    /// In HTTP/1.0, so that the response ends with the connection and has no chunks.
    fn send(
        &self,
        mut stream: Box<dyn Stream>,
        method: Method,
        path: &str,
    ) -> Result<Box<dyn Stream>, ControlError> {
        let method = match method {
            Method::Get => "GET",
            Method::Post => "POST",
        };
        // In one write: the next one could wait for the server to acknowledge the first (tcp(7)).
        let request = format!("{method} {path} HTTP/1.0\r\ncontent-length: 0\r\n\r\n");
        let sent = stream.write_all(request.as_bytes());
        sent.map(|()| stream).map_err(|error| self.lost(error))
    }

    fn connect(&self, timeout: Option<Duration>) -> Result<Box<dyn Stream>, ControlError> {
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
            })
        };
        connected().map_err(|error| self.lost(error))
    }

    fn lost(&self, error: io::Error) -> ControlError {
        match (&self.address, error.kind()) {
            (Address::Unix(path), ErrorKind::PermissionDenied) => {
                ControlError::NotAllowed(path.clone())
            }
            _ => ControlError::Unreachable(self.address.clone(), error),
        }
    }
}

impl ControlError {
    fn is_of_no_server_or_another(&self) -> bool {
        use ErrorKind::{ConnectionRefused, NotFound};
        match self {
            Self::UnknownOperation => true,
            _ => matches!(self.lost_by(), Some(ConnectionRefused | NotFound)),
        }
    }

    /// Whether the admin process ended that had the request, or should have accepted it.
    fn is_broken_off(&self) -> bool {
        use ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
        let kind = self.lost_by();
        kind.is_some_and(|kind| matches!(kind, BrokenPipe | ConnectionReset | UnexpectedEof))
    }

    fn lost_by(&self) -> Option<ErrorKind> {
        match self {
            Self::Unreachable(_, error) => Some(error.kind()),
            _ => None,
        }
    }
}

impl fmt::Display for ControlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(why) => write!(f, "refused: {why}"),
            Self::NotAllowed(path) => {
                let path = path.display();
                write!(f, "only the user of the server and root can use {path}")
            }
            Self::UnknownOperation => f.write_str("the server does not know this operation"),
            Self::Unreachable(address, _) => write!(f, "{address} does not respond"),
            Self::Unexpected(body) => {
                let line = body.lines().next().unwrap_or_default();
                write!(f, "not a response of an admin address: {line}")
            }
        }
    }
}

impl std::error::Error for ControlError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Unreachable(_, error) => Some(error),
            _ => None,
        }
    }
}

/// The error of a read. It says what it means.
fn explained(error: io::Error, method: Method, patience: Duration) -> io::Error {
    let (kind, why) = match error.kind() {
        ErrorKind::WouldBlock => (
            ErrorKind::TimedOut,
            format!("no response within {patience:.0?}"),
        ),
        kind @ (ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset) => {
            (kind, "it closed the connection".to_owned())
        }
        _ => return error,
    };
    io::Error::new(
        kind,
        match method {
            Method::Get => why,
            Method::Post => why + ", but the server may have the command",
        },
    )
}

trait Stream: Read + Write {}

impl<T: Read + Write> Stream for T {}

/// An admin address refuses in one line that says why, or lists its paths. Other servers have other
/// statuses, pages, the status as text, and empty bodies.
fn refusal(status: u16, body: &str) -> ControlError {
    let body = body.trim_end();
    let says_why =
        StatusCode::from_u16(status).is_ok_and(|status| status.canonical_reason() != Some(body));
    match (status, body.lines().count()) {
        (400 | 403 | 405 | 409 | 503, 1) if says_why => ControlError::Refused(body.to_owned()),
        (404, _) if body.starts_with("no such path") => ControlError::Refused(body.to_owned()),
        _ => ControlError::Unexpected(format!("status {status}")),
    }
}
