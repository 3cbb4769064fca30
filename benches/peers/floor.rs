//! The floor: one `recv(2)`, one `send(2)` of fixed bytes, and nothing in between but finding where
//! requests end. Whatever a server adds to this is its own.
//!
//! It understands no HTTP: a request is what ends in an empty line, and has no body.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use socket2::{Domain, Socket, Type};

use crate::load::Fate;

/// As long as those that tell the same in the fewest words.
const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\
    Content-Length: 13\r\n\r\nHello, World!";
const LAST_RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\
    Connection: close\r\nContent-Length: 13\r\n\r\nHello, World!";

const END: &[u8] = b"\r\n\r\n";
const CLOSE: &[u8] = b"\r\nConnection: close\r\n";

/// As others ask for; the kernel cuts it to `net.core.somaxconn`.
const BACKLOG: i32 = 4096;

/// Requests that come at once are answered at once, up to this many.
const BATCH_MAX: usize = 64;

const EVENTS_MAX: usize = 256;

/// The listener's place among the descriptors, which it never shares: that is its own.
struct Floor {
    epoll: Epoll,
    listener: TcpListener,
    /// By descriptor.
    connections: Vec<Option<Connection>>,
    buffer: Vec<u8>,
    responses: Vec<u8>,
}

struct Connection {
    stream: TcpStream,
    /// How much of [`END`] the last bytes were.
    matched: u8,
}

/// Serves for ever.
pub(crate) fn serve(address: SocketAddr) -> io::Result<()> {
    let mut floor = Floor::listen(address)?;
    let mut events = vec![EpollEvent::empty(); EVENTS_MAX];
    loop {
        let count = floor.epoll.wait(&mut events, EpollTimeout::NONE)?;
        for event in &events[..count] {
            let fd = usize::try_from(event.data()).expect("a descriptor");
            if fd == floor.listener_fd() {
                floor.accept()?;
            } else if floor.answer(fd) == Fate::Closed {
                // The kernel takes a closed descriptor out of the epoll instance.
                floor.connections[fd] = None;
            }
        }
    }
}

impl Floor {
    fn listen(address: SocketAddr) -> io::Result<Self> {
        let socket = Socket::new(
            Domain::for_address(address),
            Type::STREAM.nonblocking(),
            None,
        )?;
        socket.set_reuse_address(true)?;
        // Accepted connections inherit it.
        socket.set_tcp_nodelay(true)?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        let listener = TcpListener::from(socket);
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let fd = listener.as_raw_fd() as u64;
        epoll.add(&listener, EpollEvent::new(EpollFlags::EPOLLIN, fd))?;
        Ok(Self {
            epoll,
            listener,
            connections: Vec::new(),
            buffer: vec![0; 16 * 1024],
            responses: RESPONSE.repeat(BATCH_MAX),
        })
    }

    fn listener_fd(&self) -> usize {
        self.listener.as_raw_fd() as usize
    }

    fn accept(&mut self) -> io::Result<()> {
        loop {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                // The client has gone while it waited.
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => continue,
                Err(error) => return Err(error),
            };
            stream.set_nonblocking(true)?;
            let fd = stream.as_raw_fd() as usize;
            let event = EpollEvent::new(EpollFlags::EPOLLIN, fd as u64);
            self.epoll.add(&stream, event)?;
            if self.connections.len() <= fd {
                self.connections.resize_with(fd + 1, || None);
            }
            self.connections[fd] = Some(Connection { stream, matched: 0 });
        }
    }

    fn answer(&mut self, fd: usize) -> Fate {
        let connection = self.connections[fd].as_mut().expect("epoll knows it");
        let count = match connection.stream.read(&mut self.buffer) {
            Ok(0) => return Fate::Closed,
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Fate::Kept,
            Err(_) => return Fate::Closed,
        };
        let bytes = &self.buffer[..count];
        let requests = connection.count(bytes).min(BATCH_MAX);
        // One that asks for this asks nothing more, and none of ours comes in parts.
        if requests == 1 && bytes.windows(CLOSE.len()).any(|it| it == CLOSE) {
            let _ = connection.stream.write(LAST_RESPONSE);
            return Fate::Closed;
        }
        let responses = &self.responses[..requests * RESPONSE.len()];
        match connection.stream.write(responses) {
            Ok(sent) if sent == responses.len() => Fate::Kept,
            // It does not read its responses; ours do.
            Ok(_) | Err(_) => Fate::Closed,
        }
    }
}

impl Connection {
    /// How many requests end in `bytes`.
    fn count(&mut self, bytes: &[u8]) -> usize {
        let mut count = 0;
        let mut matched = usize::from(self.matched);
        for &byte in bytes {
            if byte == END[matched] {
                matched += 1;
            } else {
                matched = usize::from(byte == END[0]);
            }
            if matched == END.len() {
                count += 1;
                matched = 0;
            }
        }
        self.matched = matched as u8;
        count
    }
}
