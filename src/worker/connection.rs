//! An accepted connection, before any protocol.

use std::fs::File;
use std::io::{self, IoSlice};
use std::mem;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::address::{Address, Peer};
use crate::http::{Closed, ConnectionInfo, Socket, Stage, Version};
use crate::moved::Moved;
use crate::proxy::Forwarded;
use crate::worker::incoming::Admission;
use crate::worker::proxied::Proxied;
use crate::worker::source::Origin;
use crate::worker::stream::Stream;

/// An accepted TCP or Unix connection, with tokio's `AsyncRead` and `AsyncWrite`.
///
/// It counts toward the worker's limit until it is dropped. `TCP_NODELAY` is set.
///
/// ```
/// use prefork_server::TestServer;
/// use tokio::io::AsyncWriteExt;
///
/// let server = TestServer::start_with(|server| {
///     server.run(async |_worker, mut incoming| {
///         while let Some(mut connection) = incoming.accept().await {
///             let greeting = format!("hello {}", connection.peer());
///             tokio::task::spawn_local(async move {
///                 connection.write_all(greeting.as_bytes()).await
///             });
///         }
///         Ok(())
///     })
/// })?;
/// let client = std::net::TcpStream::connect(server.address())?;
/// let greeting = format!("hello {}", client.local_addr()?);
/// assert_eq!(std::io::read_to_string(client)?, greeting);
/// # Ok::<(), prefork_server::BoxError>(())
/// ```
#[derive(Debug)]
pub struct Connection {
    stream: Stream,
    local: Arc<Address>,
    /// Boxed, because few connections have one.
    prefix: Option<Box<Prefix>>,
    admission: Admission,
}

/// What comes before the bytes in the socket. Dropped when it has been read, unless it names the
/// client.
#[derive(Debug, Default)]
struct Prefix {
    origin: Origin,
    /// The PROXY header, if the connection comes from a balancer.
    proxied: Option<Box<Proxied>>,
    /// What another worker knew of the connection.
    moved: Moved,
}

impl Connection {
    pub(crate) fn new(stream: Stream, local: Arc<Address>, admission: Admission) -> Self {
        Self {
            stream,
            local,
            prefix: None,
            admission,
        }
    }

    /// Expects a PROXY header before anything else, unless another worker has read it.
    pub(crate) fn expect_header(&mut self) {
        let prefix = self.prefix();
        if prefix.origin == Origin::Client {
            prefix.proxied = Some(Box::default());
        }
    }

    /// The addresses that the PROXY header named.
    pub(crate) fn forwarded(&self) -> Option<Forwarded> {
        self.prefix.as_deref()?.proxied.as_ref()?.forwarded()
    }

    /// Marks the connection as handed over by another worker. `forwarded` and `moved` are what that
    /// worker knew of it.
    pub(crate) fn take_over(&mut self, forwarded: Option<Forwarded>, moved: Moved) {
        let prefix = self.prefix();
        prefix.origin = Origin::Worker;
        prefix.proxied = forwarded.map(|forwarded| Box::new(Proxied::read_before(forwarded)));
        prefix.moved = moved;
    }

    /// Gives back what [`HandoverTarget::hand_over`](crate::http::HandoverTarget) was given.
    pub(crate) fn put_back(&mut self, moved: Moved) {
        if moved != Moved::default() {
            self.prefix().moved = moved;
        }
    }

    fn prefix(&mut self) -> &mut Prefix {
        self.prefix.get_or_insert_default()
    }

    /// Takes at most `max` of the bytes that another worker has read; none if there are none.
    pub(crate) fn take_read_ahead(&mut self, max: usize) -> Bytes {
        let Some(prefix) = &mut self.prefix else {
            return Bytes::new();
        };
        let bytes = &mut prefix.moved.read_ahead;
        let taken = bytes.split_to(bytes.len().min(max));
        if bytes.is_empty() && prefix.proxied.is_none() {
            self.prefix = None;
        }
        taken
    }

    /// Fails if the worker before spoke TLS or HTTP/2 on it, and this one would not go on with
    /// that: it is of [`Prefork::run`](crate::Prefork::run). Bytes that came within TLS are not to
    /// be answered without.
    fn check_bytes(&self) -> io::Result<()> {
        let moved = self.prefix.as_deref().map(|prefix| &prefix.moved);
        match moved {
            Some(moved) if moved.tls.is_some() || moved.http2.is_some() => {
                let why = "the worker before spoke TLS or HTTP/2 on it, and this one does not";
                Err(io::Error::new(io::ErrorKind::InvalidData, why))
            }
            _ => Ok(()),
        }
    }

    /// Whether it counts for the limit on its client's connections.
    pub(crate) fn counts_for_client(&self) -> bool {
        self.admission.counts_for_client()
    }

    /// The address of the other end.
    #[must_use]
    pub fn peer(&self) -> Peer {
        self.admission.peer
    }

    /// The address of the listener that accepted the connection, which may be a wildcard address.
    #[must_use]
    pub fn local(&self) -> &Address {
        &self.local
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.check_bytes()?;
        let read_ahead = this.take_read_ahead(buf.remaining());
        if !read_ahead.is_empty() {
            buf.put_slice(&read_ahead);
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut this.stream).poll_read(cx, buf)
    }
}

impl Socket for Connection {
    fn has_unread(&self) -> bool {
        self.stream.has_unread()
    }

    fn unacknowledged(&self) -> usize {
        self.stream.unacknowledged()
    }

    fn read_first(&mut self, put: impl FnOnce(&[u8])) {
        let read_ahead = self.take_read_ahead(usize::MAX);
        match read_ahead.is_empty() {
            true => self.stream.read_first(put),
            false => put(&read_ahead),
        }
    }

    fn take_tls(&mut self) -> Option<Moved> {
        let moved = &mut self.prefix.as_mut()?.moved;
        moved.tls.as_ref()?;
        // What the worker before knew of the client stays.
        Some(mem::take(moved))
    }

    fn take_http2(&mut self) -> Option<Moved> {
        let prefix = self.prefix.as_mut()?;
        prefix.moved.http2.as_ref()?;
        let moved = mem::take(&mut prefix.moved);
        if prefix.proxied.is_none() {
            self.prefix = None;
        }
        Some(moved)
    }

    fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        // The next read returns the error.
        self.stream.poll_read_ready(cx).map(drop)
    }

    fn poll_open(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Version>> {
        if let Some(prefix) = &mut self.prefix
            && let Some(proxied) = &mut prefix.proxied
        {
            ready!(proxied.poll_header(&mut self.stream, cx))?;
        }
        if self.take_tls().is_some() {
            let why = "the worker before spoke TLS on it, and this one does not";
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, why)));
        }
        Poll::Ready(Ok(Version::Http1))
    }

    fn open_stage(&self) -> Stage {
        let prefix = self.prefix.as_deref();
        let proxied = prefix.and_then(|prefix| prefix.proxied.as_deref());
        match proxied.is_some_and(Proxied::has_begun) {
            true => Stage::Opening,
            false => Stage::Unopened,
        }
    }

    fn info(&self) -> ConnectionInfo {
        let mut info = ConnectionInfo::new(self.peer(), Arc::clone(&self.local));
        if let Some(forwarded) = self.forwarded() {
            info.set_forwarded(forwarded);
        }
        info
    }

    fn was_idle(&self) -> bool {
        let prefix = self.prefix.as_deref();
        prefix.is_some_and(|prefix| prefix.origin == Origin::Worker)
    }

    fn is_bare(&self) -> bool {
        true
    }

    fn poll_read_unconstrained(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.stream.poll_read_unconstrained(cx, buf)
    }

    fn poll_write_unconstrained(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.stream.poll_write_unconstrained(cx, bytes)
    }

    fn sends_files(&self) -> bool {
        true
    }

    fn poll_write_before_file(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.stream.poll_write_before_file(cx, bytes)
    }

    fn poll_send_file(
        &mut self,
        cx: &mut Context<'_>,
        file: &File,
        at: u64,
        length: usize,
    ) -> Poll<io::Result<usize>> {
        self.stream.poll_send_file(cx, file, at, length)
    }

    fn poll_write_last(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.stream.poll_write_last(cx, bytes)
    }

    fn closed(&self) -> Closed {
        self.stream.closed()
    }
}

impl AsFd for Connection {
    /// # Panics
    ///
    /// If the last read or write failed because the runtime could not register the connection
    /// (epoll_ctl(2): `ENOMEM`, `ENOSPC`). The connection is then closed.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

/// So that tonic's own server works in [`Prefork::run`](crate::Prefork::run), and
/// `tonic::Request::remote_addr` there.
#[cfg(feature = "tonic")]
impl tonic::transport::server::Connected for Connection {
    type ConnectInfo = tonic::transport::server::TcpConnectInfo;

    /// The addresses are `None` on a Unix socket.
    fn connect_info(&self) -> Self::ConnectInfo {
        let local_addr = match self.local() {
            Address::Tcp(address) => Some(*address),
            Address::Unix(_) => None,
        };
        let remote_addr = match self.peer() {
            Peer::Tcp(address) => Some(address),
            Peer::Unix => None,
        };
        Self::ConnectInfo {
            local_addr,
            remote_addr,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::future::ready;
    use std::io::{Read, Write};
    use std::net::{Shutdown, TcpListener, TcpStream};
    use std::thread;

    use http_body_util::Empty;
    use hyper::service::service_fn;
    use tokio::io::AsyncReadExt;

    use super::*;
    use crate::http::{Http, Request, Response, Server};
    use crate::secret::Secret;
    use crate::stats::WorkerStats;
    use crate::worker::incoming::{Incoming, Queue};

    fn output_size<T>(_: impl Fn(Connection) -> T) -> usize {
        size_of::<T>()
    }

    /// The memory of an idle connection is mostly that of its task. The runtime rounds the size of
    /// a task up to a multiple of 128 bytes.
    #[test]
    fn the_future_of_a_connection_is_small() {
        let server = Server::new(Http::new(), WorkerStats::own());
        let endpoint = server.endpoint::<Connection, _>(service_fn(async |_: Request| {
            Ok::<Response<Empty<Bytes>>, Infallible>(Response::default())
        }));
        let size = output_size(|connection| endpoint.serve(connection));
        assert!(size <= 144, "{size} bytes");
    }

    /// A worker of `Prefork::run` may follow one of `Prefork::serve` in an upgrade.
    #[tokio::test]
    async fn a_session_of_another_worker_is_not_read_as_bytes() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        listener.set_nonblocking(true).expect("it is open");
        let address = listener.local_addr().expect("it is bound");
        let queue = Queue::new(vec![listener.into()], None, 8, None, WorkerStats::own());
        let mut incoming = Incoming::new(queue.expect("a runtime"));
        for (tls, http2) in [(true, false), (false, true), (false, false)] {
            let _client = TcpStream::connect(address).expect("it listens");
            let mut connection = incoming.accept().await.expect("no drain");
            let moved = Moved {
                tls: tls.then(|| Secret::new(b"keys")),
                http2: http2.then(|| Bytes::from_static(b"record")),
                read_ahead: Bytes::from_static(b"GET /"),
            };
            connection.take_over(None, moved);
            let read = connection.read_u8().await;
            assert_eq!(read.is_ok(), !tls && !http2, "{read:?}");
        }
    }

    /// close(2) resets a connection that has unread bytes, and drops bytes that are not sent yet.
    #[tokio::test]
    async fn a_client_that_sends_more_gets_its_last_response() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        listener.set_nonblocking(true).expect("it is open");
        let address = listener.local_addr().expect("it is bound");
        let mut client = TcpStream::connect(address).expect("it listens");
        client
            .write_all(b"GET / HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n")
            .expect("it is open");
        let more = client.try_clone().expect("descriptors are left");
        let server = Server::new(Http::new(), WorkerStats::own());
        let endpoint = server.endpoint(service_fn(move |_: Request| {
            let sent = (&more).write_all(b"more");
            ready(sent.map(|()| Response::<Empty<Bytes>>::default()))
        }));
        let queue = Queue::new(vec![listener.into()], None, 8, None, WorkerStats::own())
            .expect("a runtime");
        let accepted = Incoming::new(queue).accept().await;
        let reader = thread::spawn(move || {
            let mut response = Vec::new();
            client.read_to_end(&mut response).expect("no reset");
            // The server waits for it.
            client.shutdown(Shutdown::Write).expect("it is open");
            response
        });
        endpoint.serve(accepted.expect("it does not drain")).await;
        let response = reader.join().expect("an end");
        let response = String::from_utf8(response).expect("it is ASCII");
        assert!(response.starts_with("HTTP/1.1 200 OK\r\n"), "{response}");
        assert!(response.ends_with("\r\n\r\n"), "{response}");
    }
}
