//! Reads the PROXY header at the beginning of a connection.

#[cfg(test)]
mod fuzz;

use std::io;
use std::os::fd::AsFd;
use std::task::{Context, Poll, ready};

use tokio::io::Interest;

use crate::proxy::{Forwarded, Header, parse};
use crate::sys::socket;
use crate::worker::stream::Stream;

/// How many bytes one recv(2) peeks at. A header with some TLS fields fits.
const PEEK_LEN: usize = 512;

/// The PROXY header of a connection that comes from a balancer.
#[derive(Debug, Default)]
pub(crate) struct Proxied {
    /// The bytes of the header that have been read.
    read: Vec<u8>,
    is_complete: bool,
    forwarded: Option<Forwarded>,
}

impl Proxied {
    /// A header that another worker has read.
    pub(crate) fn read_before(forwarded: Forwarded) -> Self {
        Self {
            read: Vec::new(),
            is_complete: true,
            forwarded: Some(forwarded),
        }
    }

    /// Whether a part of the header has come, and the rest is missing.
    pub(crate) fn has_begun(&self) -> bool {
        !self.read.is_empty()
    }

    /// The addresses that the header named; `None` if it named none.
    pub(crate) fn forwarded(&self) -> Option<Forwarded> {
        self.forwarded
    }

    /// Reads the header from the stream, and no byte more.
    pub(crate) fn poll_header(
        &mut self,
        stream: &mut Stream,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        while !self.is_complete {
            ready!(stream.poll_read_ready(cx))?;
            match stream.try_io(Interest::READABLE, || self.advance(stream)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                outcome => outcome?,
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Peeks at the received bytes, and reads those that belong to the header.
    fn advance(&mut self, stream: &Stream) -> io::Result<()> {
        let fd = stream.as_fd();
        let mut buffer = [0; PEEK_LEN];
        let peeked = socket::peek(fd, &mut buffer)?;
        if peeked == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let before = self.read.len();
        self.read.extend_from_slice(&buffer[..peeked]);
        let of_header = match parse(&self.read) {
            Header::Unfinished => peeked,
            Header::Whole { len, forwarded } => {
                self.is_complete = true;
                self.forwarded = forwarded;
                len - before
            }
            Header::Malformed(why) => {
                let why = format!("no PROXY header: {why}");
                return Err(io::Error::new(io::ErrorKind::InvalidData, why));
            }
        };
        let read = socket::recv(fd, &mut buffer[..of_header])?;
        debug_assert_eq!(read, of_header, "recv(2) returns the bytes it has shown");
        if self.is_complete {
            self.read = Vec::new();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream as StdUnixStream;
    use std::task::Waker;

    use tokio::net::UnixStream;

    use super::*;

    const LINE: &[u8] = b"PROXY TCP4 192.0.2.7 198.51.100.1 56324 443\r\n";

    /// The balancer's end of a connection, and the worker's.
    pub(super) fn pair() -> (StdUnixStream, Stream) {
        let (balancer, worker) = StdUnixStream::pair().expect("a socket pair");
        worker.set_nonblocking(true).expect("a socket");
        let worker = UnixStream::from_std(worker).expect("a runtime");
        (balancer, Stream::Unix(worker))
    }

    pub(super) fn rest(stream: Stream) -> Vec<u8> {
        let Stream::Unix(stream) = stream else {
            unreachable!()
        };
        let mut rest = Vec::new();
        let mut stream = stream.into_std().expect("a socket");
        stream.set_nonblocking(false).expect("a socket");
        stream.read_to_end(&mut rest).expect("it ends");
        rest
    }

    #[tokio::test]
    async fn a_header_may_come_in_any_two_pieces_and_no_byte_more_is_read() {
        let whole = [LINE, b"GET /"].concat();
        for cut in 1..LINE.len() {
            let (mut balancer, mut stream) = pair();
            let mut proxied = Proxied::default();
            balancer.write_all(&whole[..cut]).expect("room");
            // Until the piece is read. Each poll is pending, because the header is incomplete.
            while proxied.read.len() < cut {
                let mut cx = Context::from_waker(Waker::noop());
                assert!(proxied.poll_header(&mut stream, &mut cx).is_pending());
                tokio::task::yield_now().await;
            }
            balancer.write_all(&whole[cut..]).expect("room");
            poll_fn(|cx| proxied.poll_header(&mut stream, cx))
                .await
                .expect("a header");
            let peer = proxied.forwarded().expect("a client").peer;
            assert_eq!(peer.to_string(), "192.0.2.7:56324");
            drop(balancer);
            assert_eq!(rest(stream), b"GET /", "cut at {cut}");
        }
    }

    #[tokio::test]
    async fn bytes_that_are_no_complete_header_are_an_error() {
        for bytes in [&b"GET / HTTP/1.1\r\n"[..], &LINE[..20], b""] {
            let (mut balancer, mut stream) = pair();
            balancer.write_all(bytes).expect("room");
            drop(balancer);
            let mut proxied = Proxied::default();
            let outcome = poll_fn(|cx| proxied.poll_header(&mut stream, cx)).await;
            assert!(outcome.is_err(), "{}", bytes.escape_ascii());
        }
    }

    #[tokio::test]
    async fn a_long_header_is_read_in_several_pieces() {
        let mut header = b"\r\n\r\n\0\r\nQUIT\n\x20\x00\x0f\xf0".to_vec();
        header.resize(4096, 7);
        header.extend(b"GET /");
        let (mut balancer, mut stream) = pair();
        balancer.write_all(&header).expect("room");
        let mut proxied = Proxied::default();
        poll_fn(|cx| proxied.poll_header(&mut stream, cx))
            .await
            .expect("a header");
        assert_eq!(proxied.forwarded(), None);
        drop(balancer);
        assert_eq!(rest(stream), b"GET /");
    }
}
