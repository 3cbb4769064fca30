//! One client: asks, checks the answer, and says exactly how it failed if it did.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

use nix::sys::socket::{MsgFlags, recv};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use crate::answer::{Afterwards, Garbled, Progress, check, request};
use crate::chance::Chance;
use crate::load::Shared;
use crate::tally::{Loss, Lost, Tally};

/// How long an answer may take. No event should delay one by a tenth of it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// The rest before a request, in milliseconds, is below this: long enough that some connections are
/// idle at any moment, short enough that many requests meet each event.
const REST_MILLIS: usize = 8;

/// The same for some of those that keep their connection: longer than any server waits before it
/// closes idle connections, so that requests are on their way when it does.
const LONG_REST_MILLIS: usize = 300;

/// How a client treats its connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Habit {
    /// A connection for each request, which asks for its end.
    NewConnections,
    /// One for as long as the server lets it.
    KeepsAlive,
}

impl Habit {
    /// What a request says of it.
    fn fields(self) -> &'static str {
        match self {
            Self::NewConnections => "Connection: close\r\n",
            Self::KeepsAlive => "",
        }
    }
}

pub(crate) struct Client {
    number: usize,
    habit: Habit,
    address: SocketAddr,
    shared: Arc<Shared>,
    chance: Chance,
    rest_millis: usize,
    requests: u64,
    tally: Tally,
}

struct Connection {
    stream: TcpStream,
    port: u16,
    answered: u32,
}

struct Failure {
    loss: Loss,
    detail: String,
}

impl Client {
    pub(crate) fn new(
        number: usize,
        habit: Habit,
        address: SocketAddr,
        shared: Arc<Shared>,
    ) -> Self {
        let rests_long = habit == Habit::KeepsAlive && number.is_multiple_of(4);
        Self {
            rest_millis: [REST_MILLIS, LONG_REST_MILLIS][usize::from(rests_long)],
            number,
            habit,
            address,
            shared,
            chance: Chance::new(number as u64),
            requests: 0,
            tally: Tally::default(),
        }
    }

    /// Asks until the load ends. An error is the load's own, never the server's.
    pub(crate) async fn live(mut self) -> io::Result<Tally> {
        let mut kept: Option<Connection> = None;
        while !self.shared.is_over() {
            sleep(self.chance.millis_below(self.rest_millis)).await;
            let connection = match self.check_idle(kept.take()) {
                Some(connection) => Ok(connection),
                None => self.connect().await?,
            };
            match connection {
                Ok(connection) => kept = self.ask(connection).await?,
                Err(refused) => self.note(refused, 0, 0)?,
            }
        }
        Ok(self.tally)
    }

    /// A connection that the server has closed while nothing was asked is no loss. Asked of the
    /// kernel at the last moment: the runtime may not yet know.
    fn check_idle(&mut self, kept: Option<Connection>) -> Option<Connection> {
        let connection = kept?;
        let fd = connection.stream.as_raw_fd();
        let mut byte = [0];
        let idle = recv(fd, &mut byte, MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT);
        match idle {
            Err(nix::errno::Errno::EAGAIN) => Some(connection),
            _ => {
                self.close(connection);
                None
            }
        }
    }

    async fn connect(&self) -> io::Result<Result<Connection, Failure>> {
        let lost = |loss, detail: String| Ok(Err(Failure { loss, detail }));
        match timeout(PATIENCE, TcpStream::connect(self.address)).await {
            Ok(Ok(stream)) => {
                stream.set_nodelay(true)?;
                Ok(Ok(Connection {
                    port: stream.local_addr()?.port(),
                    stream,
                    answered: 0,
                }))
            }
            Ok(Err(error)) => match error.kind() {
                ErrorKind::ConnectionRefused => lost(Loss::Refused, error.to_string()),
                ErrorKind::ConnectionReset => lost(Loss::ResetNew, error.to_string()),
                ErrorKind::TimedOut => lost(Loss::Silence, error.to_string()),
                _ => Err(error),
            },
            Err(_) => lost(Loss::Silence, format!("no connection in {PATIENCE:?}")),
        }
    }

    /// One request and its answer. The connection comes back if it can be asked again.
    async fn ask(&mut self, mut connection: Connection) -> io::Result<Option<Connection>> {
        self.requests += 1;
        let token = format!(
            "client {} asks for the {}th time",
            self.number, self.requests
        );
        let request = request(&token, self.habit.fields());
        let exchange = connection.exchange(self.habit, request.as_bytes(), token.as_bytes());
        let outcome = match timeout(PATIENCE, exchange).await {
            Ok(outcome) => outcome?,
            Err(_) => Err(Failure {
                loss: Loss::Silence,
                detail: format!("no whole answer in {PATIENCE:?}"),
            }),
        };
        match outcome {
            Ok(afterwards) => {
                self.tally.answered += 1;
                self.shared.count_answered();
                if self.tally.answered == 1 {
                    self.shared.has_first_answer();
                }
                connection.answered += 1;
                if afterwards == Afterwards::Keep {
                    return Ok(Some(connection));
                }
            }
            Err(failure) => self.note(failure, connection.port, connection.answered)?,
        }
        self.close(connection);
        Ok(None)
    }

    fn note(&mut self, failure: Failure, port: u16, answered_before: u32) -> io::Result<()> {
        let excused = failure.loss != Loss::Garbled && self.shared.was_held(port);
        self.shared.count_lost()?;
        self.tally.lost.push(Lost {
            loss: if excused { Loss::Held } else { failure.loss },
            at: self.shared.elapsed(),
            event: self.shared.event(),
            port,
            answered_before,
            detail: failure.detail,
        });
        Ok(())
    }

    /// In this order: a port is free for another connection only once this one is closed.
    fn close(&self, connection: Connection) {
        let port = connection.port;
        drop(connection);
        self.shared.forget(port);
    }
}

impl Connection {
    async fn exchange(
        &mut self,
        habit: Habit,
        request: &[u8],
        body: &[u8],
    ) -> io::Result<Result<Afterwards, Failure>> {
        if let Err(error) = self.stream.write_all(request).await {
            return self.broken(&error, &[]);
        }
        let mut answer = Vec::with_capacity(1024);
        let afterwards = loop {
            match self.stream.read_buf(&mut answer).await {
                Ok(0) => return Ok(Err(self.ended(&answer))),
                Ok(_) => {}
                Err(error) => return self.broken(&error, &answer),
            }
            match check(&answer, body) {
                Ok(Progress::Partial) => {}
                Ok(Progress::Complete(afterwards)) => break afterwards,
                Err(Garbled(why)) => return Ok(Err(garbled(why, &answer))),
            }
        };
        if habit == Habit::KeepsAlive {
            return Ok(Ok(afterwards));
        }
        // Whatever follows a whole answer is not part of it. Reading to the end also leaves the
        // wait for stray segments (TIME_WAIT) to the server's side, and us with enough ports.
        match self.stream.read_buf(&mut answer).await {
            Ok(0) => Ok(Ok(Afterwards::Close)),
            Ok(_) => Ok(Err(garbled("bytes after the answer", &answer))),
            Err(error) if is_reset(&error) => Ok(Ok(Afterwards::Close)),
            Err(error) => Err(error),
        }
    }

    fn ended(&self, answer: &[u8]) -> Failure {
        let loss = match (answer, self.answered) {
            ([], 0) => Loss::EndNew,
            ([], _) => Loss::EndKept,
            _ => return garbled("cut", answer),
        };
        let detail = "end of file".to_owned();
        Failure { loss, detail }
    }

    fn broken(&self, error: &io::Error, answer: &[u8]) -> io::Result<Result<Afterwards, Failure>> {
        if !is_reset(error) {
            return Err(io::Error::new(error.kind(), error.to_string()));
        }
        let loss = match (answer, self.answered) {
            ([], 0) => Loss::ResetNew,
            ([], _) => Loss::ResetKept,
            _ => return Ok(Err(garbled("reset half-way", answer))),
        };
        let detail = error.to_string();
        Ok(Err(Failure { loss, detail }))
    }
}

fn is_reset(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe
    )
}

fn garbled(why: &str, answer: &[u8]) -> Failure {
    Failure {
        loss: Loss::Garbled,
        detail: format!("{why}: \"{}\"", answer.escape_ascii()),
    }
}
