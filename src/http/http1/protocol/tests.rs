//! The buffers of a connection that waits, and how long a busy connection runs.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http_body_util::Empty;
use hyper::service::service_fn;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::*;
use crate::address::{Address, Peer};
use crate::http::{Closed, ConnectionInfo, Http, Request, reply};
use crate::pool::field_maps;
use crate::stats::WorkerStats;

/// A client that sends these bytes, once or with every read.
struct Client {
    bytes: &'static [u8],
    is_bare: bool,
    sends: Sends,
    /// The calls by which the server has sent something.
    calls: Arc<Mutex<Vec<&'static str>>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Sends {
    Once,
    Always,
}

impl Socket for Client {
    fn has_unread(&self) -> bool {
        !self.bytes.is_empty()
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

    fn poll_write_last(&mut self, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.calls.lock().expect("no panic").push("the last write");
        Poll::Ready(Ok(bytes.len()))
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
        buf.put_slice(self.bytes);
        if self.sends == Sends::Once {
            self.bytes = &[];
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
        self.calls.lock().expect("no panic").push("a write");
        Poll::Ready(Ok(buf.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.calls.lock().expect("no panic").push("a shutdown");
        Poll::Ready(Ok(()))
    }
}

/// Polls the connection of a client once. If the client does not ask for its end, it is pending
/// then, for its client or to yield to others. `inspect` looks at the state.
fn poll_once<T>(client: Client, inspect: impl FnOnce(&Registry) -> T) -> T {
    let is_last = client.bytes.ends_with(b"close\r\n\r\n");
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
    assert_eq!(polled.is_ready(), is_last, "it waits");
    inspect(&registry)
}

/// How many buffers for input and maps for fields the connection has returned while it waits.
fn returned(bytes: &'static [u8], is_bare: bool) -> (usize, usize) {
    field_maps::drop_all();
    let client = Client {
        bytes,
        is_bare,
        sends: Sends::Once,
        calls: Arc::default(),
    };
    poll_once(client, |registry| {
        (registry.inputs.len(), field_maps::drop_all())
    })
}

/// The server does not use tokio's budget for a task, by which other servers yield.
#[test]
fn a_connection_yields_after_16_requests() {
    let requests = [
        "GET / HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: h\r\n\r\nGET /2 HTTP/1.1\r\nHost: h\r\n\r\n",
    ];
    for (request, is_bare) in requests.into_iter().zip([false, true]) {
        let client = Client {
            bytes: request.as_bytes(),
            is_bare,
            sends: Sends::Always,
            calls: Arc::default(),
        };
        let responses = poll_once(client, |registry| {
            registry.counters.stats().totals().responses[1]
        });
        assert_eq!(responses, 16, "{request:?}");
    }
}

#[test]
fn a_connection_without_a_request_has_no_buffers() {
    for is_bare in [false, true] {
        let request = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n";
        assert_eq!(returned(request, is_bare), (1, 1), "{is_bare}");
        assert_eq!(returned(b"", is_bare), (1, 0), "{is_bare}");
    }
}

#[test]
fn a_connection_with_a_part_of_a_head_has_buffers() {
    for is_bare in [false, true] {
        assert_eq!(
            returned(b"GET / HTTP/1.1\r\nHo", is_bare),
            (0, 0),
            "{is_bare}"
        );
    }
}

/// One system call sends both, and close(2) follows.
#[test]
fn the_last_response_and_the_end_of_file_are_sent_together() {
    for (is_bare, expected) in [
        (true, &["the last write"][..]),
        (false, &["a write", "a shutdown"]),
    ] {
        let calls = Arc::default();
        let client = Client {
            bytes: b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
            is_bare,
            sends: Sends::Once,
            calls: Arc::clone(&calls),
        };
        poll_once(client, |_| ());
        assert_eq!(*calls.lock().expect("no panic"), expected);
    }
}
