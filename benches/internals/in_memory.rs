//! For `benches/peers`: HTTP on a stream that is memory, so that no kernel takes part.

use std::fmt;
use std::io;
use std::net::Ipv4Addr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderValue;
use http::header::CONTENT_TYPE;
use http_body_util::Full;
use hyper::service::service_fn;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::address::{Address, Peer};
use crate::http::{Closed, ConnectionInfo, Endpoint, Http, Request, Server, Socket, reply};
use crate::stats::WorkerStats;

/// This crate's server of HTTP, without a worker around it.
pub struct InMemory(Endpoint<Client>);

impl InMemory {
    /// Every response has this body. Called in a runtime, as the server's clock is in it.
    pub fn responding(body: &'static str) -> Self {
        let server = Server::new(Http::new(), WorkerStats::own());
        let respond = move |request: Request| async move {
            let (head, _unread) = request.into_parts();
            // As a program that uses the crate would write it.
            reply(head)
                .header(CONTENT_TYPE, HeaderValue::from_static("text/plain"))
                .body(Full::new(Bytes::from_static(body.as_bytes())))
        };
        Self(server.endpoint(service_fn(respond)))
    }

    /// Serves one connection to its end.
    pub fn serve(&self, client: Client) -> impl Future<Output = ()> + use<> {
        self.0.serve(client)
    }
}

impl fmt::Debug for InMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InMemory").finish_non_exhaustive()
    }
}

/// The server's end of a connection. The client sends all its requests at once, reads everything,
/// and then leaves.
#[derive(Debug)]
pub struct Client {
    /// After the last one the first comes again.
    requests: Arc<[Vec<u8>]>,
    /// The place of the next request among them.
    next: usize,
    /// Requests that have not been read to their end.
    left: u64,
    /// How much of the next request has been read.
    at: usize,
    answered: Arc<AtomicU64>,
    expected: u64,
}

impl Client {
    /// Sends so many requests, and leaves when `answered` has grown to `expected` bytes.
    pub fn new(
        requests: Arc<[Vec<u8>]>,
        count: u64,
        answered: Arc<AtomicU64>,
        expected: u64,
    ) -> Self {
        Self {
            requests,
            next: 0,
            left: count,
            at: 0,
            answered,
            expected,
        }
    }
}

impl Socket for Client {
    fn info(&self) -> ConnectionInfo {
        let local = Address::Tcp((Ipv4Addr::LOCALHOST, 80).into());
        ConnectionInfo::new(Peer::Unix, local)
    }

    fn has_unread(&self) -> bool {
        self.left > 0
    }

    fn poll_readable(&mut self, _: &mut Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }

    fn closed(&self) -> Closed {
        Closed::Nothing
    }

    fn is_bare(&self) -> bool {
        true
    }
}

impl AsyncRead for Client {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.left == 0 && this.answered.load(Relaxed) < this.expected {
            // If the client left before the last response, that response would be cut off.
            return Poll::Pending;
        }
        while this.left > 0 && buffer.remaining() > 0 {
            let request = &this.requests[this.next][..];
            let rest = &request[this.at..];
            let count = rest.len().min(buffer.remaining());
            buffer.put_slice(&rest[..count]);
            this.at += count;
            if this.at == request.len() {
                this.at = 0;
                this.next = (this.next + 1) % this.requests.len();
                this.left -= 1;
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Client {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.answered.fetch_add(bytes.len() as u64, Relaxed);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
