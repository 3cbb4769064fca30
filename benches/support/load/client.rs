//! One client: a connection, and what is asked on it.

use std::io::{self, ErrorKind, Read};
use std::mem;
use std::time::Instant;

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollEvent, EpollFlags};
use socket2::{SockAddr, Socket, Type};

use super::outcome::{Failure, Outcome};
use super::plan::{Afterwards, Ask, Expected, Pipeline};
use super::response::{Fate, Fed, Response};
use super::stream::{Stream, failure};
use super::tls::Sessions;

#[derive(Clone, Copy)]
pub(super) struct ClientId(pub(super) usize);

/// One kind of request as it goes over the wire, as often as it is sent at once.
pub(super) struct Batch {
    bytes: Vec<u8>,
    requests: usize,
    expected: Expected,
    afterwards: Afterwards,
}

impl Batch {
    pub(super) fn new(ask: &Ask, pipeline: Pipeline) -> Self {
        Self {
            bytes: ask.request.repeat(pipeline.0),
            requests: pipeline.0,
            expected: ask.expected.clone(),
            afterwards: ask.afterwards,
        }
    }
}

/// Where a client does its work.
pub(super) struct Place<'a> {
    pub(super) address: &'a SockAddr,
    pub(super) epoll: &'a Epoll,
    pub(super) id: ClientId,
}

pub(super) struct Client {
    link: Link,
    /// With them, everything goes within TLS.
    sessions: Option<Sessions>,
    response: Response,
    /// What is under way.
    pending: Option<Pending>,
    /// Batches in this run.
    pub(super) sent: u64,
}

enum Link {
    Closed,
    /// Writable as soon as it is open; the batch has not been sent.
    Opening(Stream),
    Open(Stream),
}

#[derive(Clone, Copy)]
struct Pending {
    /// Which of the driver's batches.
    batch: usize,
    since: Instant,
    missing: usize,
}

/// What a client is at after something has happened.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Busy,
    /// All has been answered, or has failed.
    Done,
    /// Nothing was under way.
    Idle,
}

/// What one look at a connection found.
enum Received {
    Partial,
    All(Fate),
}

impl Client {
    pub(super) fn new(sessions: Option<Sessions>) -> Self {
        Self {
            link: Link::Closed,
            sessions,
            response: Response::new(),
            pending: None,
            sent: 0,
        }
    }

    pub(super) fn is_busy(&self) -> bool {
        self.pending.is_some()
    }

    /// When what is under way was sent, or should have been.
    pub(super) fn since(&self) -> Option<Instant> {
        self.pending.map(|pending| pending.since)
    }

    /// The beginning of the last response's body, if that is there.
    pub(super) fn told(&self) -> Option<&[u8]> {
        self.response.told()
    }

    /// Forgets what is under way. How many responses that leaves out.
    pub(super) fn give_up(&mut self) -> u64 {
        self.link = Link::Closed;
        self.pending.take().map_or(0, |it| it.missing as u64)
    }

    /// Sends a batch, on a new connection if there is none.
    pub(super) fn ask(
        &mut self,
        place: &Place<'_>,
        batches: &[Batch],
        batch: usize,
        since: Instant,
    ) -> Result<(), Failure> {
        let requests = &batches[batch];
        self.response.clear();
        self.sent += 1;
        if let Link::Open(stream) = &mut self.link
            && stream.send(&requests.bytes).is_err()
        {
            // The server had closed it while nothing was asked, which is its right.
            self.link = Link::Closed;
        }
        if let Link::Closed = self.link {
            let link = connect(place, requests, self.sessions.as_mut());
            self.link = link.map_err(|_| Failure::Connect)?;
        }
        self.pending = Some(Pending {
            batch,
            since,
            missing: requests.requests,
        });
        Ok(())
    }

    /// Does what epoll found possible, and counts what comes of it.
    pub(super) fn advance(
        &mut self,
        place: &Place<'_>,
        batches: &[Batch],
        buffer: &mut [u8],
        outcome: &mut Outcome,
    ) -> State {
        let Some(pending) = self.pending else {
            self.look_at_idle(buffer, outcome);
            return State::Idle;
        };
        let batch = &batches[pending.batch];
        let result = match mem::replace(&mut self.link, Link::Closed) {
            Link::Closed => unreachable!("a closed socket has left the epoll instance"),
            Link::Opening(stream) => self.opened(place, stream, batch),
            Link::Open(stream) => self.receive(stream, batch, buffer, outcome),
        };
        match result {
            Ok(Received::Partial) => State::Busy,
            Ok(Received::All(fate)) => {
                if fate == Fate::Closed {
                    self.link = Link::Closed;
                }
                self.pending = None;
                State::Done
            }
            Err(failure) => {
                // Where all were there, it is what came after them.
                outcome.failures.add(failure, self.give_up().max(1));
                State::Done
            }
        }
    }

    /// It is the end of the connection, or a response that was not asked for.
    fn look_at_idle(&mut self, buffer: &mut [u8], outcome: &mut Outcome) {
        let Link::Open(mut stream) = mem::replace(&mut self.link, Link::Closed) else {
            return;
        };
        match stream.read(buffer) {
            // TLS has a word of its own to say.
            Err(error) if error.kind() == ErrorKind::WouldBlock => self.link = Link::Open(stream),
            Ok(1..) => outcome.failures.add(Failure::Body, 1),
            Ok(0) | Err(_) => {}
        }
    }

    fn opened(
        &mut self,
        place: &Place<'_>,
        mut stream: Stream,
        batch: &Batch,
    ) -> Result<Received, Failure> {
        let sent = stream.send(&batch.bytes);
        sent.map_err(|_| Failure::Connect)?;
        let mut event = EpollEvent::new(EpollFlags::EPOLLIN, place.id.0 as u64);
        let modified = place.epoll.modify(stream.socket(), &mut event);
        modified.expect("epoll_ctl(2)");
        self.link = Link::Open(stream);
        Ok(Received::Partial)
    }

    /// Reads until there is no more. A short read is the end of what was there, so a response that
    /// fits the buffer costs one `recv(2)`.
    fn receive(
        &mut self,
        mut stream: Stream,
        batch: &Batch,
        buffer: &mut [u8],
        outcome: &mut Outcome,
    ) -> Result<Received, Failure> {
        let closes = batch.afterwards == Afterwards::ServerCloses;
        loop {
            let count = match stream.read(buffer) {
                Ok(0) => {
                    let pending = self.pending.as_mut().expect("something is under way");
                    if closes && self.response.is_complete() {
                        count_response(pending, &self.response, outcome);
                        return Ok(Received::All(Fate::Closed));
                    }
                    return Err(Failure::Eof);
                }
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(failure(&error)),
            };
            stream.judge()?;
            if let Received::All(fate) = self.take(&buffer[..count], batch, outcome)? {
                self.link = Link::Open(stream);
                return Ok(Received::All(fate));
            }
            if count < buffer.len() && !closes {
                break;
            }
        }
        self.link = Link::Open(stream);
        Ok(Received::Partial)
    }

    fn take(
        &mut self,
        mut bytes: &[u8],
        batch: &Batch,
        outcome: &mut Outcome,
    ) -> Result<Received, Failure> {
        let pending = self.pending.as_mut().expect("something is under way");
        while !bytes.is_empty() {
            if self.response.is_complete() {
                // The server should have closed; this is more than was asked for.
                return Err(Failure::Length);
            }
            let Fed::Complete { used, fate } = self.response.feed(bytes, &batch.expected)? else {
                break;
            };
            bytes = &bytes[used..];
            if batch.afterwards == Afterwards::ServerCloses {
                continue;
            }
            count_response(pending, &self.response, outcome);
            if pending.missing == 0 {
                return match bytes {
                    [] => Ok(Received::All(fate)),
                    _ => Err(Failure::Length),
                };
            }
            self.response.clear();
        }
        Ok(Received::Partial)
    }
}

fn count_response(pending: &mut Pending, response: &Response, outcome: &mut Outcome) {
    pending.missing -= 1;
    outcome.response_bytes = response.bytes();
    outcome.answered_now(pending.since);
}

/// A connection that may still be on its way. Over loopback the handshake is usually done at once,
/// so the request goes out right after it and saves a turn through epoll.
fn connect(place: &Place<'_>, batch: &Batch, sessions: Option<&mut Sessions>) -> io::Result<Link> {
    let kind = Type::STREAM.nonblocking();
    let socket = Socket::new(place.address.domain(), kind, None)?;
    match socket.connect(place.address) {
        Ok(()) => {}
        Err(error) if error.raw_os_error() == Some(Errno::EINPROGRESS as i32) => {}
        Err(error) => return Err(error),
    }
    let mut stream = Stream::new(socket, sessions);
    let (link, interest): (fn(_) -> _, _) = match stream.send(&batch.bytes) {
        Ok(()) => (Link::Open, EpollFlags::EPOLLIN),
        Err(error) if error.kind() == ErrorKind::WouldBlock => {
            (Link::Opening, EpollFlags::EPOLLOUT)
        }
        Err(error) => return Err(error),
    };
    let event = EpollEvent::new(interest, place.id.0 as u64);
    place.epoll.add(stream.socket(), event)?;
    Ok(link(stream))
}
