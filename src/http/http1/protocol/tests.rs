//! What is left of a connection that waits, and of those beside one that never does.

use std::io;
use std::net::SocketAddr;

use bytes::Bytes;
use http_body_util::Empty;
use hyper::service::service_fn;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::*;
use crate::address::{Address, Peer};
use crate::http::http1::buffers::Buffers;
use crate::http::{Closed, ConnectionInfo, Http, Request, reply};
use crate::stats::WorkerStats;

/// A client that has said something, and waits, or says it again whenever it is listened to.
struct Client {
    says: &'static [u8],
    is_bare: bool,
    is_patient: bool,
}

impl Socket for Client {
    fn has_unread(&self) -> bool {
        !self.says.is_empty()
    }

    fn poll_readable(&mut self, _: &mut Context<'_>) -> Poll<()> {
        match self.has_unread() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }

    fn closed(&self) -> Closed {
        Closed::Nothing
    }

    fn is_bare(&self) -> bool {
        self.is_bare
    }

    fn info(&self) -> ConnectionInfo {
        let address: SocketAddr = ([127, 0, 0, 1], 1).into();
        ConnectionInfo::new(Peer::Tcp(address), Address::Tcp(address))
    }
}

impl AsyncRead for Client {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.poll_readable(cx));
        buf.put_slice(self.says);
        if self.is_patient {
            self.says = &[];
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Client {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(buf.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Polls its connection once. It waits, be it for others; what is left then?
fn poll_once<T>(client: Client, left: impl FnOnce(&Registry, &Buffers) -> T) -> T {
    let registry = Rc::new(Registry::new(Http::new(), WorkerStats::own()));
    let service = service_fn(async |request: Request| {
        let (head, _) = request.into_parts();
        reply(head).body(Empty::<Bytes>::new())
    });
    let http1 = Http1::new(&registry, &Rc::new(service));
    let member = registry.join();
    let stream = Stream::of_member(&member, client);
    let mut connection = http1.begin(stream, &member.state);
    let polled = connection.poll(&mut Context::from_waker(std::task::Waker::noop()));
    assert!(polled.is_pending(), "it waits");
    left(&registry, &http1.shared.buffers)
}

/// How many buffers for input and for fields have been given back while it waits.
fn rooms_of(says: &'static [u8], is_bare: bool) -> (usize, usize) {
    let client = Client {
        says,
        is_bare,
        is_patient: true,
    };
    poll_once(client, |_, buffers| buffers.kept())
}

/// The task's budget is not asked, which would see to it in other servers.
#[test]
fn one_that_asks_on_and_on_lets_others_go_first() {
    let requests = [
        "GET / HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: h\r\n\r\nGET /2 HTTP/1.1\r\nHost: h\r\n\r\n",
    ];
    for (says, is_bare) in requests.into_iter().zip([false, true]) {
        let client = Client {
            says: says.as_bytes(),
            is_bare,
            is_patient: false,
        };
        let answered = poll_once(client, |registry, _| {
            registry.counters.stats().totals().responses[1]
        });
        assert_eq!(answered, 16, "{says:?}");
    }
}

#[test]
fn one_that_is_answered_has_no_room() {
    for is_bare in [false, true] {
        let request = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n";
        assert_eq!(rooms_of(request, is_bare), (1, 1), "{is_bare}");
        assert_eq!(rooms_of(b"", is_bare), (1, 0), "{is_bare}");
    }
}

#[test]
fn one_that_has_said_half_has_room_for_the_rest() {
    for is_bare in [false, true] {
        assert_eq!(
            rooms_of(b"GET / HTTP/1.1\r\nHo", is_bare),
            (0, 0),
            "{is_bare}"
        );
    }
}
