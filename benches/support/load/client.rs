//! One client: a connection, and what is asked on it.

use std::io::{self, ErrorKind};
use std::mem;
use std::net::SocketAddr;
use std::time::Instant;

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollEvent, EpollFlags};
use socket2::{SockAddr, Socket, Type};

use super::outcome::{Failure, Outcome};
use super::plan::{Ask, Expected};
use super::response::{Fate, Response};
use super::stream::{Stream, failure};
use super::tls::Sessions;

/// One kind of request as it goes over the wire, as often as it is sent at once.
pub(super) struct Batch {
    /// What a client sends, one after the other.
    writes: Vec<Vec<u8>>,
    /// How far apart two clients begin.
    apart: usize,
    requests: usize,
    expected: Expected,
    closes: bool,
}

impl Batch {
    /// What so many clients send: together they send each request soon.
    pub(super) fn new(ask: &Ask, pipeline: usize, clients: usize) -> Self {
        let count = ask.requests.len();
        let write = |first: usize| {
            let requests = (0..pipeline).map(|next| &ask.requests[(first + next) % count][..]);
            requests.collect::<Vec<_>>().concat()
        };
        Self {
            writes: (0..count).map(write).collect(),
            apart: count.div_ceil(clients),
            requests: pipeline,
            expected: ask.expected.clone(),
            closes: ask.closes,
        }
    }
}

pub(super) struct Client {
    /// Its number, which its events have.
    id: usize,
    address: SockAddr,
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

impl Client {
    pub(super) fn new(id: usize, address: SocketAddr, sessions: Option<Sessions>) -> Self {
        Self {
            id,
            address: address.into(),
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
        epoll: &Epoll,
        batches: &[Batch],
        batch: usize,
        since: Instant,
    ) -> Result<(), Failure> {
        let requests = &batches[batch];
        self.response.clear();
        self.sent += 1;
        let write = self.write(requests);
        if let Link::Open(stream) = &mut self.link
            && stream.send(write).is_err()
        {
            // The server had closed it while nothing was asked, which is its right.
            self.link = Link::Closed;
        }
        if let Link::Closed = self.link {
            let link = self.connect(epoll, requests);
            self.link = link.map_err(|_| Failure::Connect)?;
        }
        self.pending = Some(Pending {
            batch,
            since,
            missing: requests.requests,
        });
        Ok(())
    }

    /// Does what epoll found possible, and counts what comes of it. Whether what was under way has
    /// its responses now, or has failed.
    pub(super) fn advance(
        &mut self,
        epoll: &Epoll,
        batches: &[Batch],
        buffer: &mut [u8],
        outcome: &mut Outcome,
    ) -> bool {
        let Some(pending) = self.pending else {
            self.look_at_idle(buffer, outcome);
            return false;
        };
        let batch = &batches[pending.batch];
        let result = match mem::replace(&mut self.link, Link::Closed) {
            Link::Closed => unreachable!("a closed socket has left the epoll instance"),
            Link::Opening(stream) => self.opened(epoll, stream, batch),
            Link::Open(stream) => self.receive(stream, batch, buffer, outcome),
        };
        match result {
            Ok(None) => false,
            Ok(Some(fate)) => {
                if fate == Fate::Closed {
                    self.link = Link::Closed;
                }
                self.pending = None;
                true
            }
            Err(failure) => {
                // Where all were there, it is what came after them.
                outcome.failures.add(failure, self.give_up().max(1));
                true
            }
        }
    }

    /// The bytes of the batch that was sent last, or is to be sent.
    fn write<'a>(&self, batch: &'a Batch) -> &'a [u8] {
        let at = self.id * batch.apart + self.sent as usize * batch.requests;
        &batch.writes[at % batch.writes.len()]
    }

    /// A connection that may still be on its way. Over loopback the handshake is usually done at
    /// once, so the request goes out right after it and saves a turn through epoll.
    fn connect(&mut self, epoll: &Epoll, batch: &Batch) -> io::Result<Link> {
        let kind = Type::STREAM.nonblocking();
        let socket = Socket::new(self.address.domain(), kind, None)?;
        match socket.connect(&self.address) {
            Ok(()) => {}
            Err(error) if error.raw_os_error() == Some(Errno::EINPROGRESS as i32) => {}
            Err(error) => return Err(error),
        }
        let mut stream = Stream::new(socket, self.sessions.as_mut());
        let (link, interest): (fn(_) -> _, _) = match stream.send(self.write(batch)) {
            Ok(()) => (Link::Open, EpollFlags::EPOLLIN),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                (Link::Opening, EpollFlags::EPOLLOUT)
            }
            Err(error) => return Err(error),
        };
        let event = EpollEvent::new(interest, self.id as u64);
        epoll.add(&stream.socket, event)?;
        Ok(link(stream))
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
        epoll: &Epoll,
        mut stream: Stream,
        batch: &Batch,
    ) -> Result<Option<Fate>, Failure> {
        let sent = stream.send(self.write(batch));
        sent.map_err(|_| Failure::Connect)?;
        let mut event = EpollEvent::new(EpollFlags::EPOLLIN, self.id as u64);
        let modified = epoll.modify(&stream.socket, &mut event);
        modified.expect("epoll_ctl(2)");
        self.link = Link::Open(stream);
        Ok(None)
    }

    /// Reads until there is no more, and says what the server means to do with the connection when
    /// all responses are there. A short read is the end of what was there, so a response that
    /// fits the buffer costs one `recv(2)`.
    fn receive(
        &mut self,
        mut stream: Stream,
        batch: &Batch,
        buffer: &mut [u8],
        outcome: &mut Outcome,
    ) -> Result<Option<Fate>, Failure> {
        loop {
            let count = match stream.read(buffer) {
                Ok(0) => {
                    let pending = self.pending.as_mut().expect("something is under way");
                    if batch.closes && self.response.is_complete() {
                        count_response(pending, &self.response, outcome);
                        return Ok(Some(Fate::Closed));
                    }
                    return Err(Failure::Eof);
                }
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(failure(&error)),
            };
            stream.judge()?;
            if let Some(fate) = self.take(&buffer[..count], batch, outcome)? {
                self.link = Link::Open(stream);
                return Ok(Some(fate));
            }
            if count < buffer.len() && !batch.closes {
                break;
            }
        }
        self.link = Link::Open(stream);
        Ok(None)
    }

    fn take(
        &mut self,
        mut bytes: &[u8],
        batch: &Batch,
        outcome: &mut Outcome,
    ) -> Result<Option<Fate>, Failure> {
        let pending = self.pending.as_mut().expect("something is under way");
        while !bytes.is_empty() {
            if self.response.is_complete() {
                // The server should have closed; this is more than was asked for.
                return Err(Failure::Length);
            }
            let Some((used, fate)) = self.response.feed(bytes, &batch.expected)? else {
                break;
            };
            bytes = &bytes[used..];
            if batch.closes {
                continue;
            }
            count_response(pending, &self.response, outcome);
            if pending.missing == 0 {
                return match bytes {
                    [] => Ok(Some(fate)),
                    _ => Err(Failure::Length),
                };
            }
            self.response.clear();
        }
        Ok(None)
    }
}

fn count_response(pending: &mut Pending, response: &Response, outcome: &mut Outcome) {
    pending.missing -= 1;
    outcome.response_bytes = response.bytes();
    outcome.answered_now(pending.since);
}
