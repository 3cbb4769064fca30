//! The load: clients in a closed loop, all on the calling thread.
//!
//! One thread and one epoll instance, because the driver shares the machine with the server: what
//! it does not burn, the server can have. Nothing is allocated once the clients exist.

use std::io::{self, ErrorKind, Read, Write};
use std::mem;
use std::net::SocketAddr;

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use socket2::{SockAddr, Socket, Type};

use super::answer::{Answer, Progress};

/// Enough to keep two workers busy, few enough to stay in the caches.
const CLIENTS: usize = 64;

/// A server that is silent for longer hangs.
const SILENCE_MAX_MS: u16 = 10_000;

/// The bytes of one request, as they go over the wire.
#[derive(Clone, Copy)]
pub(crate) struct Request(pub(crate) &'static [u8]);

/// How many requests to send.
#[derive(Clone, Copy)]
pub(crate) struct Requests(pub(crate) u64);

pub(crate) struct Driver {
    epoll: Epoll,
    ready: [EpollEvent; CLIENTS],
    clients: Vec<Client>,
    script: Script,
    answer_bytes: usize,
}

/// What every client does.
struct Script {
    address: SockAddr,
    request: Request,
    afterwards: Afterwards,
}

/// What becomes of a connection when the answer is there.
#[derive(Clone, Copy)]
enum Afterwards {
    Keep,
    /// The server closes it, and the answer is there when it has.
    ServerCloses,
}

#[derive(Clone, Copy)]
struct ClientId(usize);

struct Client {
    connection: Connection,
    answer: Answer,
}

enum Connection {
    Closed,
    /// Writable as soon as it is open; the request has not been sent.
    Opening(Socket),
    Open(Socket),
}

impl Driver {
    /// Clients of the server at `address`, each of which has had an answer, so that no batch
    /// measures a server which accepts its first connections or touches its memory first.
    pub(crate) fn warm(address: SocketAddr, request: Request) -> Self {
        let mut driver = Self {
            epoll: Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).expect("epoll_create1(2)"),
            ready: [EpollEvent::empty(); CLIENTS],
            clients: (0..CLIENTS).map(|_| Client::new()).collect(),
            script: Script {
                address: address.into(),
                request,
                afterwards: request.afterwards(),
            },
            answer_bytes: 0,
        };
        driver.run(Requests(CLIENTS as u64));
        driver
    }

    /// Sends `requests` and returns when the last answer has been read and found right.
    ///
    /// # Panics
    ///
    /// On the first wrong answer, failed connection or long silence.
    pub(crate) fn run(&mut self, requests: Requests) {
        let mut asked = requests.0.min(CLIENTS as u64);
        for id in 0..asked {
            self.ask(ClientId(id as usize));
        }
        let mut answered = 0;
        while answered < requests.0 {
            for event in 0..self.wait() {
                let id = ClientId(self.ready[event].data() as usize);
                if self.advance(id) == Progress::Partial {
                    continue;
                }
                answered += 1;
                if asked < requests.0 {
                    asked += 1;
                    self.ask(id);
                }
            }
        }
    }

    /// The length of the last answer, head and body: a server that sends more headers does more.
    pub(crate) fn answer_bytes(&self) -> usize {
        self.answer_bytes
    }

    fn wait(&mut self) -> usize {
        loop {
            match self.epoll.wait(&mut self.ready, SILENCE_MAX_MS) {
                Ok(0) => panic!("the server has been silent for {SILENCE_MAX_MS} ms"),
                Ok(ready) => return ready,
                // The bench was stopped and continued from a shell.
                Err(Errno::EINTR) => {}
                Err(error) => panic!("epoll_wait(2): {error}"),
            }
        }
    }

    fn ask(&mut self, id: ClientId) {
        self.clients[id.0].ask(&self.script, &self.epoll, id);
    }

    fn advance(&mut self, id: ClientId) -> Progress {
        let client = &mut self.clients[id.0];
        let progress = client.advance(&self.script, &self.epoll, id);
        if progress == Progress::Complete {
            self.answer_bytes = client.answer.bytes().len();
        }
        progress
    }
}

impl Client {
    fn new() -> Self {
        Self {
            connection: Connection::Closed,
            answer: Answer::EMPTY,
        }
    }

    /// Sends the next request, on a new connection if there is none.
    fn ask(&mut self, script: &Script, epoll: &Epoll, id: ClientId) {
        self.answer.clear();
        if let Connection::Open(socket) = &self.connection {
            return send(socket, script.request).expect("an idle connection takes a request");
        }

        let socket = connect(&script.address);
        // Over loopback the handshake is usually done by now, which saves a turn through epoll.
        let (connection, interest): (fn(_) -> _, _) = match send(&socket, script.request) {
            Ok(()) => (Connection::Open, EpollFlags::EPOLLIN),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                (Connection::Opening, EpollFlags::EPOLLOUT)
            }
            Err(error) => panic!("connect(2): {error}"),
        };
        let event = EpollEvent::new(interest, id.0 as u64);
        epoll.add(&socket, event).expect("epoll_ctl(2)");
        self.connection = connection(socket);
    }

    /// Does what epoll found possible.
    fn advance(&mut self, script: &Script, epoll: &Epoll, id: ClientId) -> Progress {
        match mem::replace(&mut self.connection, Connection::Closed) {
            Connection::Closed => unreachable!("a closed socket has left the epoll instance"),
            Connection::Opening(socket) => {
                send(&socket, script.request).unwrap_or_else(|error| panic!("connect(2): {error}"));
                let mut event = EpollEvent::new(EpollFlags::EPOLLIN, id.0 as u64);
                epoll.modify(&socket, &mut event).expect("epoll_ctl(2)");
                self.connection = Connection::Open(socket);
                Progress::Partial
            }
            Connection::Open(socket) => match script.afterwards {
                Afterwards::Keep => {
                    let progress = self.receive(&socket);
                    self.connection = Connection::Open(socket);
                    progress
                }
                Afterwards::ServerCloses => self.receive_to_the_end(socket),
            },
        }
    }

    /// One `recv(2)`: it is known how long the answer is, so no second one has to find it over.
    fn receive(&mut self, mut socket: &Socket) -> Progress {
        match socket.read(self.answer.room()) {
            Ok(0) => self.answer.refuse("cut short"),
            Ok(count) => self.answer.received(count),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Progress::Partial,
            Err(error) => self
                .answer
                .refuse(&format!("cut short by an error ({error})")),
        }
    }

    fn receive_to_the_end(&mut self, mut socket: Socket) -> Progress {
        loop {
            match socket.read(self.answer.room()) {
                Ok(0) if self.answer.is_complete() => return Progress::Complete,
                Ok(0) => self.answer.refuse("cut short"),
                Ok(count) => _ = self.answer.received(count),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => self
                    .answer
                    .refuse(&format!("cut short by an error ({error})")),
            }
        }
        self.connection = Connection::Open(socket);
        Progress::Partial
    }
}

impl Request {
    fn afterwards(self) -> Afterwards {
        let close = b"\r\nConnection: close\r\n";
        if self.0.windows(close.len()).any(|it| it == close) {
            Afterwards::ServerCloses
        } else {
            Afterwards::Keep
        }
    }
}

/// A connection that may still be on its way.
fn connect(address: &SockAddr) -> Socket {
    let kind = Type::STREAM.nonblocking();
    let socket = Socket::new(address.domain(), kind, None).expect("socket(2)");
    match socket.connect(address) {
        Ok(()) => {}
        Err(error) if error.raw_os_error() == Some(Errno::EINPROGRESS as i32) => {}
        Err(error) => panic!("connect(2): {error}"),
    }
    socket
}

fn send(mut socket: &Socket, request: Request) -> io::Result<()> {
    let sent = socket.write(request.0)?;
    assert_eq!(
        sent,
        request.0.len(),
        "an empty send buffer takes a request whole"
    );
    Ok(())
}
