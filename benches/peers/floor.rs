//! The floor: one `recv(2)`, one `send(2)` of fixed bytes, and nothing in between but finding where
//! requests end. Whatever a server adds to this is its own.
//!
//! It understands no HTTP: a request is what ends in an empty line, and has no body.

use std::convert::Infallible;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

use crate::load::Fate;
use crate::support::listener::listen;

/// As long as those that tell the same in the fewest words.
const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\
    Content-Length: 13\r\n\r\nHello, World!";
const LAST_RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\
    Connection: close\r\nContent-Length: 13\r\n\r\nHello, World!";

const CLOSE: &[u8] = b"\r\nConnection: close\r\n";

/// Requests that come at once are served at once, up to this many.
const BATCH_MAX: usize = 64;

const EVENTS_MAX: usize = 256;

/// The listener's place among the descriptors, which it never shares: that is its own.
struct Floor {
    epoll: Epoll,
    listener: TcpListener,
    /// By descriptor.
    connections: Vec<Option<TcpStream>>,
    buffer: Vec<u8>,
    responses: Vec<u8>,
}

/// Serves for ever.
pub(crate) fn serve(address: SocketAddr) -> io::Result<Infallible> {
    let mut floor = Floor {
        epoll: Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?,
        listener: listen(address).into(),
        connections: Vec::new(),
        buffer: vec![0; 16 * 1024],
        responses: RESPONSE.repeat(BATCH_MAX),
    };
    let listener = floor.listener.as_raw_fd() as u64;
    let event = EpollEvent::new(EpollFlags::EPOLLIN, listener);
    floor.epoll.add(&floor.listener, event)?;
    let mut events = vec![EpollEvent::empty(); EVENTS_MAX];
    loop {
        let count = floor.epoll.wait(&mut events, EpollTimeout::NONE)?;
        for event in &events[..count] {
            let fd = usize::try_from(event.data()).expect("a descriptor");
            if event.data() == listener {
                floor.accept()?;
            } else if floor.respond(fd) == Fate::Closed {
                // The kernel takes a closed descriptor out of the epoll instance.
                floor.connections[fd] = None;
            }
        }
    }
}

impl Floor {
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
            self.connections[fd] = Some(stream);
        }
    }

    fn respond(&mut self, fd: usize) -> Fate {
        let stream = self.connections[fd].as_mut().expect("epoll knows it");
        let count = match stream.read(&mut self.buffer) {
            Ok(0) => return Fate::Closed,
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Fate::Kept,
            Err(_) => return Fate::Closed,
        };
        let bytes = &self.buffer[..count];
        // Our clients send requests whole.
        let ends = bytes.windows(4).filter(|it| it == b"\r\n\r\n");
        let requests = ends.count();
        // One that asks for this asks nothing more.
        if requests == 1 && bytes.windows(CLOSE.len()).any(|it| it == CLOSE) {
            let _ = stream.write(LAST_RESPONSE);
            return Fate::Closed;
        }
        let responses = &self.responses[..requests.min(BATCH_MAX) * RESPONSE.len()];
        match stream.write(responses) {
            Ok(sent) if sent == responses.len() => Fate::Kept,
            // It does not read its responses; ours do.
            Ok(_) | Err(_) => Fate::Closed,
        }
    }
}
