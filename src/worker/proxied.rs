//! The PROXY header of a connection, which is read before anything else.

#[cfg(test)]
mod fuzz;

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::task::{Context, Poll, ready};

use nix::sys::socket::{MsgFlags, recv};
use tokio::io::Interest;

use crate::proxy::{Forwarded, Header, parse};
use crate::worker::stream::Stream;

/// How many bytes one recv(2) peeks at. A header with some TLS fields fits in.
const GLANCE: usize = 512;

/// The PROXY header of a connection that comes from a balancer.
#[derive(Debug, Default)]
pub(crate) struct Proxied {
    /// The bytes of the header that have come.
    taken: Vec<u8>,
    is_whole: bool,
    forwarded: Option<Forwarded>,
}

impl Proxied {
    /// A header that another worker has read.
    pub(crate) fn known(forwarded: Forwarded) -> Self {
        Self {
            taken: Vec::new(),
            is_whole: true,
            forwarded: Some(forwarded),
        }
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
        while !self.is_whole {
            ready!(stream.poll_read_ready(cx))?;
            match stream.try_io(Interest::READABLE, || self.advance(stream)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                outcome => outcome?,
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Peeks at the bytes that have come, and reads those that belong to the header.
    fn advance(&mut self, stream: &Stream) -> io::Result<()> {
        let fd = stream.as_fd().as_raw_fd();
        let mut glance = [0; GLANCE];
        let seen = recv(fd, &mut glance, MsgFlags::MSG_PEEK)?;
        if seen == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let before = self.taken.len();
        self.taken.extend_from_slice(&glance[..seen]);
        let mine = match parse(&self.taken) {
            Header::Unfinished => seen,
            Header::Whole { len, forwarded } => {
                self.is_whole = true;
                self.forwarded = forwarded;
                len - before
            }
            Header::Malformed(why) => {
                let why = format!("no PROXY header: {why}");
                return Err(io::Error::new(io::ErrorKind::InvalidData, why));
            }
        };
        let taken = recv(fd, &mut glance[..mine], MsgFlags::empty())?;
        debug_assert_eq!(taken, mine, "it was there a moment ago");
        if self.is_whole {
            self.taken = Vec::new();
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
        let (theirs, ours) = StdUnixStream::pair().expect("a socket pair");
        ours.set_nonblocking(true).expect("a socket");
        let ours = UnixStream::from_std(ours).expect("a runtime");
        (theirs, Stream::Unix(ours))
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
            let (mut theirs, mut ours) = pair();
            let mut proxied = Proxied::default();
            theirs.write_all(&whole[..cut]).expect("room");
            // Until the piece is read. Then there is nothing more to read, and it waits.
            while proxied.taken.len() < cut {
                let mut cx = Context::from_waker(Waker::noop());
                assert!(proxied.poll_header(&mut ours, &mut cx).is_pending());
                tokio::task::yield_now().await;
            }
            theirs.write_all(&whole[cut..]).expect("room");
            poll_fn(|cx| proxied.poll_header(&mut ours, cx))
                .await
                .expect("a header");
            let peer = proxied.forwarded().expect("a client").peer;
            assert_eq!(peer.to_string(), "192.0.2.7:56324");
            drop(theirs);
            assert_eq!(rest(ours), b"GET /", "cut at {cut}");
        }
    }

    #[tokio::test]
    async fn bytes_that_are_no_header_and_half_a_header_are_errors() {
        for bytes in [&b"GET / HTTP/1.1\r\n"[..], &LINE[..20], b""] {
            let (mut theirs, mut ours) = pair();
            theirs.write_all(bytes).expect("room");
            drop(theirs);
            let mut proxied = Proxied::default();
            let outcome = poll_fn(|cx| proxied.poll_header(&mut ours, cx)).await;
            assert!(outcome.is_err(), "{}", bytes.escape_ascii());
        }
    }

    #[tokio::test]
    async fn a_long_header_is_read_in_several_pieces() {
        let mut header = b"\r\n\r\n\0\r\nQUIT\n\x20\x00\x0f\xf0".to_vec();
        header.resize(4096, 7);
        header.extend(b"GET /");
        let (mut theirs, mut ours) = pair();
        theirs.write_all(&header).expect("room");
        let mut proxied = Proxied::default();
        poll_fn(|cx| proxied.poll_header(&mut ours, cx))
            .await
            .expect("a header");
        assert_eq!(proxied.forwarded(), None);
        drop(theirs);
        assert_eq!(rest(ours), b"GET /");
    }
}
