//! HTTP clients that send and receive bytes, nothing more.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::support::CEILING;

/// One connection.
pub(crate) struct Client<S = TcpStream> {
    stream: S,
    /// Bytes that came after the last response's end.
    rest: Vec<u8>,
}

/// A response: its head as text, and its body.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        Self::try_connect(address).expect("the server accepts")
    }

    pub(crate) fn try_connect(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, CEILING)?;
        Self::from_stream(stream)
    }

    pub(crate) fn from_stream(stream: TcpStream) -> io::Result<Self> {
        stream.set_read_timeout(Some(CEILING))?;
        stream.set_write_timeout(Some(CEILING))?;
        Ok(Self::of(stream))
    }

    /// This many connections.
    pub(crate) fn connect_many(address: SocketAddr, count: usize) -> Vec<Self> {
        (0..count).map(|_| Self::connect(address)).collect()
    }

    /// This many connections. When all are open, a GET of the path is sent on each.
    pub(crate) fn ask_many(address: SocketAddr, count: usize, path: &str) -> Vec<Self> {
        let mut clients = Self::connect_many(address, count);
        clients.iter_mut().for_each(|client| client.ask(path));
        clients
    }

    /// The client's own address.
    pub(crate) fn local(&self) -> SocketAddr {
        self.stream.local_addr().expect("it is connected")
    }

    /// Sends pieces whose response is never read, until neither side's buffers take more.
    pub(crate) fn send_until_blocked(&mut self, piece: &[u8]) {
        let pause = std::time::Duration::from_millis(200);
        self.stream
            .set_write_timeout(Some(pause))
            .expect("a sane timeout");
        let sends = |mut stream: &TcpStream| stream.write(piece).ok() == Some(piece.len());
        while sends(&self.stream) {}
    }
}

impl Client<UnixStream> {
    pub(crate) fn connect_unix(path: &Path) -> Self {
        let stream = UnixStream::connect(path).expect("it listens");
        let limited = stream.set_read_timeout(Some(CEILING));
        limited.expect("a sane timeout");
        Self::of(stream)
    }
}

impl<S: Read + Write> Client<S> {
    pub(crate) fn of(stream: S) -> Self {
        Self {
            stream,
            rest: Vec::new(),
        }
    }

    #[cfg(feature = "tls")]
    pub(crate) fn stream(&mut self) -> &mut S {
        &mut self.stream
    }

    pub(crate) fn send(&mut self, text: &str) {
        self.send_bytes(text.as_bytes());
    }

    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the server reads");
    }

    /// Sends a GET of a path; the connection stays open.
    pub(crate) fn ask(&mut self, path: &str) {
        self.send(&format!("GET {path} HTTP/1.1\r\nHost: test\r\n\r\n"));
    }

    /// Sends a GET of a path and waits for the response.
    pub(crate) fn get(&mut self, path: &str) -> Response {
        self.ask(path);
        self.response()
    }

    pub(crate) fn response(&mut self) -> Response {
        self.try_response().expect("a whole response")
    }

    /// The next response, which must have a length.
    pub(crate) fn try_response(&mut self) -> io::Result<Response> {
        loop {
            if let Some(response) = parse_response(&mut self.rest) {
                return Ok(response);
            }
            let mut bytes = [0; 4096];
            match self.stream.read(&mut bytes)? {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                len => self.rest.extend_from_slice(&bytes[..len]),
            }
        }
    }

    /// The next response, which must have no body.
    pub(crate) fn response_without_body(&mut self) -> Response {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.extend(self.take(1));
        }
        Response {
            head: String::from_utf8(head).expect("a head is text"),
            body: String::new(),
        }
    }

    /// The next `len` bytes.
    pub(crate) fn take(&mut self, len: usize) -> Vec<u8> {
        self.wait_for(len);
        self.rest.drain(..len).collect()
    }

    /// Waits for the next `len` bytes. They remain to be taken.
    pub(crate) fn wait_for(&mut self, len: usize) {
        while self.rest.len() < len {
            let mut bytes = [0; 4096];
            let read = self.stream.read(&mut bytes).expect("the server sends");
            assert!(read > 0, "the end, after {:?}", self.rest);
            self.rest.extend_from_slice(&bytes[..read]);
        }
    }

    /// All bytes until the connection ends, in whatever way.
    pub(crate) fn until_end(&mut self) -> Vec<u8> {
        let mut bytes = std::mem::take(&mut self.rest);
        // What came before an error is kept.
        let _ = self.stream.read_to_end(&mut bytes);
        bytes
    }

    /// Waits for the server to close or reset the connection. A byte before that is an error.
    pub(crate) fn expect_hang_up(&mut self) {
        match self.stream.read(&mut [0]) {
            Ok(len) => assert_eq!(len, 0, "no byte"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
        }
    }

    /// Waits for the server to close the connection. A byte or a reset before that is an error.
    pub(crate) fn expect_end(&mut self) {
        assert!(
            self.rest.is_empty(),
            "{:?}",
            String::from_utf8_lossy(&self.rest)
        );
        let mut bytes = [0; 512];
        let len = self.stream.read(&mut bytes).expect("an orderly end");
        assert_eq!(len, 0, "{:?}", String::from_utf8_lossy(&bytes[..len]));
    }
}

/// Removes a response from the bytes if it is complete. It must have a length.
pub(crate) fn parse_response(bytes: &mut Vec<u8>) -> Option<Response> {
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    let head = String::from_utf8(bytes[..end].to_vec()).expect("a head is text");
    let length = head.to_ascii_lowercase();
    let length = length
        .split("content-length: ")
        .nth(1)?
        .split("\r\n")
        .next()?;
    let whole = end + length.parse::<usize>().expect("a length");
    let body = bytes.get(end..whole)?.to_vec();
    bytes.drain(..whole);
    Some(Response {
        head,
        body: String::from_utf8(body).expect("text"),
    })
}

impl Response {
    /// The status, of HTTP/1.1.
    pub(crate) fn status(&self) -> u16 {
        let line = self.head.strip_prefix("HTTP/1.1 ").expect("HTTP/1.1");
        let (status, _reason) = line.split_once(' ').expect("a blank");
        status.parse().expect("a number")
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (found, value) = line.split_once(": ")?;
            found.eq_ignore_ascii_case(name).then_some(value)
        })
    }

    /// The worker that answered, from `x-prefork-worker: slot=0 generation=1 pid=2`.
    pub(crate) fn worker(&self, field: &str) -> u32 {
        let header = self
            .header("x-prefork-worker")
            .expect("asked for by --worker-header");
        let value = header
            .split(' ')
            .find_map(|part| part.strip_prefix(&format!("{field}=")));
        value
            .expect("the field is there")
            .parse()
            .expect("a number")
    }
}

/// While `change` runs, this many clients send one request after another, each on a connection of
/// its own. `check` gets each response, and no request is without one.
pub(crate) fn under_load(
    address: SocketAddr,
    clients: usize,
    check: impl Fn(Response) + Sync,
    change: impl FnOnce(),
) {
    let over = AtomicBool::new(false);
    let ask = || {
        let mut responses = 0;
        while !over.load(Ordering::Relaxed) {
            check(get(address, "/"));
            responses += 1;
        }
        responses
    };
    thread::scope(|scope| {
        let loads: Vec<_> = (0..clients).map(|_| scope.spawn(ask)).collect();
        let over = Over(&over);
        change();
        drop(over);
        for load in loads {
            assert!(load.join().expect("no connection was refused") > 0);
        }
    });
}

/// Sets the flag when it is dropped, so that the load ends when a test fails too.
pub(crate) struct Over<'a>(pub(crate) &'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// One request on a connection of its own.
pub(crate) fn get(address: SocketAddr, path: &str) -> Response {
    Client::connect(address).get(path)
}

/// One request on a connection of its own to a Unix address; the response's body.
pub(crate) fn get_unix(path: &Path) -> String {
    Client::connect_unix(path).get("/").body
}
