//! Tests with raw bytes over loopback TCP.
//!
//! Responses have no `Date` here, so that their bytes are constant. Tests wait for bytes, for the
//! end of file, or until the server has no connection. A timeout ends a test that waits too long.

mod counting;
mod deadlines;
mod direct;
mod draining;
mod event_streams;
mod eviction;
mod expect;
mod failures;
mod gate;
mod gone_clients;
mod handover;
#[cfg(feature = "http2")]
mod http2;
mod last_responses;
mod late_bodies;
mod lengths;
mod limits;
mod pieces;
mod pipelines;
mod protocol;
mod request_ids;
mod rest;
mod room;
mod run;
mod slow_readers;
mod tower;

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::io::Write;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::service::{Service, service_fn};
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::{JoinHandle, spawn_local, yield_now};
use tokio::time::timeout;

use self::gate::{gated, gated_hello};
use self::room::Room;
use self::run::{run, tick};
use super::exchange::tower::tower_service;
use super::server::Endpoint;
use super::{
    Closed, ConnectionInfo, DateHeader, HandoverTarget, Http, Request, Server, Socket, Version,
};
use crate::address::{Address, Peer};
use crate::error::BoxError;
use crate::moved::Moved;

type HandlerResult = Result<Response<UnsyncBoxBody<Bytes, BoxError>>, BoxError>;

const HELLO: &[u8] = b"GET /hello HTTP/1.1\r\nhost: test\r\n\r\n";
const HELLO_RESPONSE: &str = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello";
const HELLO_LAST_RESPONSE: &str =
    "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 5\r\n\r\nhello";

/// Length of a body that is sent at once and not gathered with the next response.
const LONG: usize = 20_000;

/// A request whose body has two chunks. The second chunk looks like another request.
fn request_within_a_body() -> Vec<u8> {
    let head = "POST / HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n";
    let end = "0\r\n\r\n";
    let tail = [
        format!("{:x}\r\n", HELLO.len()).as_bytes(),
        HELLO,
        b"\r\n",
        end.as_bytes(),
    ]
    .concat();
    [head.as_bytes(), b"1\r\nx\r\n", &tail].concat()
}

fn long_last_response() -> String {
    let body = "x".repeat(LONG);
    let head = "HTTP/1.1 200 OK\r\nconnection: close\r\n";
    format!("{head}content-length: {LONG}\r\n\r\n{body}")
}

/// A timeout that a test lets pass.
const SHORT: Duration = Duration::from_millis(30);

/// What [`Host::start`] makes of an app.
#[derive(Clone, Copy)]
enum Kind {
    ServiceFn,
    Tower,
}

thread_local! {
    static KIND: Cell<Kind> = const { Cell::new(Kind::ServiceFn) };
}

/// Runs a test with apps of each kind.
fn run_each_kind(test: impl AsyncFn()) {
    for kind in [Kind::ServiceFn, Kind::Tower] {
        KIND.set(kind);
        run(test());
    }
}

/// Lets the event loop turn until this is so.
async fn until(mut is_so: impl FnMut() -> bool) {
    while !is_so() {
        yield_now().await;
    }
}

fn options() -> Http {
    Http::new().date_header(DateHeader::Omitted)
}

/// A server with an accept loop and a clock. It counts its sends.
struct Host {
    server: Server,
    address: SocketAddr,
    sockets: Arc<Sockets>,
    connections: Rc<RefCell<Vec<JoinHandle<()>>>>,
}

impl Host {
    async fn start<F>(http: Http, app: impl Fn(Request) -> F + 'static) -> Self
    where
        F: Future<Output = HandlerResult> + 'static,
    {
        Self::start_app(http, boxed(app)).await
    }

    async fn start_app(http: Http, app: App) -> Self {
        let app = move |request| app(request);
        match KIND.get() {
            Kind::ServiceFn => Self::start_service(http, service_fn(app)).await,
            Kind::Tower => {
                let service = tower_service(::tower::service_fn(app));
                Self::start_service(http, service).await
            }
        }
    }

    async fn start_service<S>(http: Http, service: S) -> Self
    where
        S: Service<Request, Response = Response<UnsyncBoxBody<Bytes, BoxError>>>,
        S: 'static,
        S::Error: Into<BoxError>,
    {
        let endpoint = |server: &Server| server.endpoint(service);
        Self::start_endpoint(Version::Http1, http, endpoint).await
    }

    /// Starts a host whose connections use HTTP/2, as if ALPN had chosen it.
    #[cfg(feature = "http2")]
    async fn start_http2(http: Http) -> Self {
        let endpoint = |server: &Server| server.endpoint(service_fn(hello));
        Self::start_endpoint(Version::Http2, http, endpoint).await
    }

    async fn start_with_target<H, F>(
        http: Http,
        target: &Rc<H>,
        app: impl Fn(Request) -> F + 'static,
    ) -> Self
    where
        H: HandoverTarget<Counted> + 'static,
        F: Future<Output = HandlerResult> + 'static,
    {
        let app = boxed(app);
        let target = Rc::clone(target);
        let endpoint = |server: &Server| {
            let service = service_fn(move |request| app(request));
            server.endpoint(service).with_handover_target(target)
        };
        Self::start_endpoint(Version::Http1, http, endpoint).await
    }

    async fn start_endpoint(
        version: Version,
        http: Http,
        endpoint: impl FnOnce(&Server) -> Endpoint<Counted>,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let host = Self {
            server: Server::new(http, crate::stats::WorkerStats::own()),
            address: listener.local_addr().expect("an address"),
            sockets: Arc::default(),
            connections: Rc::default(),
        };
        spawn_local(host.server.clock());
        let endpoint = endpoint(&host.server);
        let sockets = Arc::clone(&host.sockets);
        let connections = Rc::clone(&host.connections);
        spawn_local(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let stream = Counted {
                    stream,
                    version,
                    past: None,
                    sockets: Arc::clone(&sockets),
                };
                let serving = endpoint.serve(stream);
                connections.borrow_mut().push(spawn_local(serving));
            }
        });
        host
    }

    async fn connect(&self) -> Client {
        let stream = TcpStream::connect(self.address)
            .await
            .expect("the server accepts");
        stream.set_nodelay(true).expect("a TCP socket");
        Client { stream }
    }

    /// Waits until the server has checked whether a client is still connected.
    async fn looked(&self) {
        let looks = &self.sockets.looks;
        let before = looks.load(Relaxed);
        until(|| looks.load(Relaxed) != before).await;
    }

    /// Waits until the server has no connection. No connection's task has panicked.
    async fn emptied(&self) {
        self.server.drained().await;
        assert_eq!(self.server.connections(), 0);
        for task in self.connections.take() {
            task.await.expect("a connection's task does not panic");
        }
    }
}

struct Client {
    stream: TcpStream,
}

impl Client {
    async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream
            .write_all(bytes.as_ref())
            .await
            .expect("the server is there");
    }

    /// Sends a request, and reads its response.
    async fn hello(&mut self) {
        self.send(HELLO).await;
        self.expect(HELLO_RESPONSE).await;
    }

    /// As `hello`, and the response must be the last one.
    async fn last_hello(&mut self) {
        self.send(HELLO).await;
        self.expect_last_hello().await;
    }

    /// Reads the response to `hello`, which must be the last one.
    async fn expect_last_hello(&mut self) {
        self.expect(HELLO_LAST_RESPONSE).await;
        self.expect_end().await;
    }

    /// Reads the next bytes, which must be these.
    async fn expect(&mut self, response: &str) {
        let mut bytes = vec![0; response.len()];
        let mut count = 0;
        while count < bytes.len() && bytes[..count] == response.as_bytes()[..count] {
            match self
                .stream
                .read(&mut bytes[count..])
                .await
                .expect("the server is there")
            {
                0 => break,
                more => count += more,
            }
        }
        assert_eq!(String::from_utf8_lossy(&bytes[..count]), response);
    }

    /// Reads the end of the connection, which must be no reset and have no bytes before it.
    async fn expect_end(&mut self) {
        let mut rest = Vec::new();
        self.stream
            .read_to_end(&mut rest)
            .await
            .expect("an end, not a reset");
        assert_eq!(String::from_utf8_lossy(&rest), "");
    }

    /// Reads the bytes until the connection ends. A reset is an end too.
    async fn rest(&mut self) -> String {
        let mut rest = Vec::new();
        let _ = self.stream.read_to_end(&mut rest).await;
        String::from_utf8(rest).expect("text")
    }
}

/// All tests' apps have this type, so that the code of a connection is compiled once for all.
type App = Rc<dyn Fn(Request) -> Pin<Box<dyn Future<Output = HandlerResult>>>>;

fn boxed<F>(app: impl Fn(Request) -> F + 'static) -> App
where
    F: Future<Output = HandlerResult> + 'static,
{
    Rc::new(move |request| Box::pin(app(request)))
}

/// Responds with `hello` to every request.
async fn hello(_request: Request) -> HandlerResult {
    Ok(text("hello"))
}

/// A request for `/echo` gets its body back.
async fn hello_or_echo(request: Request) -> HandlerResult {
    match request.uri().path() {
        "/echo" => echo(request).await,
        _ => hello(request).await,
    }
}

/// Responds with the request's body.
async fn echo(request: Request) -> HandlerResult {
    let body = request.into_body().collect().await?.to_bytes();
    Ok(Response::new(Full::new(body).map_err(never).boxed_unsync()))
}

/// Responds with the request's body, piece by piece.
async fn echo_as_it_comes(request: Request) -> HandlerResult {
    Ok(Response::new(
        request.into_body().map_err(BoxError::from).boxed_unsync(),
    ))
}

fn text(text: impl Into<Bytes>) -> Response<UnsyncBoxBody<Bytes, BoxError>> {
    Response::new(Full::new(text.into()).map_err(never).boxed_unsync())
}

fn never(error: Infallible) -> BoxError {
    match error {}
}

/// What all sockets of a host have in common.
#[derive(Default)]
struct Sockets {
    /// The system calls that send.
    sends: AtomicUsize,
    /// The checks whether the client is connected.
    looks: AtomicUsize,
    /// Clients that send a request at the moment when the first connection is closed.
    last_moment: Mutex<Vec<std::net::TcpStream>>,
    /// What [`Socket::unacknowledged`] returns as soon as something was sent.
    unacknowledged: AtomicUsize,
    room: Room,
}

impl Sockets {
    fn last_moment(&self) -> MutexGuard<'_, Vec<std::net::TcpStream>> {
        self.last_moment.lock().expect("one thread")
    }
}

struct Counted {
    stream: TcpStream,
    version: Version,
    /// Another server has handed the connection over, or had to give it back. It was idle.
    past: Option<Moved>,
    sockets: Arc<Sockets>,
}

impl Socket for Counted {
    fn info(&self) -> ConnectionInfo {
        let ends = (self.stream.peer_addr(), self.stream.local_addr());
        let (Ok(peer), Ok(local)) = ends else {
            // The client has already reset the connection.
            return ConnectionInfo::new(Peer::Unix, Address::Unix("/".into()));
        };
        ConnectionInfo::new(Peer::Tcp(peer), Address::Tcp(local))
    }

    fn has_unread(&self) -> bool {
        let socket = SockRef::from(&self.stream);
        socket
            .peek(&mut [MaybeUninit::uninit()])
            .is_ok_and(|len| len > 0)
    }

    fn unacknowledged(&self) -> usize {
        match self.sockets.sends.load(Relaxed) {
            0 => 0,
            _ => self.sockets.unacknowledged.load(Relaxed),
        }
    }

    fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.stream.poll_read_ready(cx).map(drop)
    }

    /// False if a test uses `last_moment`: then `poll_shutdown` is called, as with TLS.
    fn is_bare(&self) -> bool {
        self.sockets.last_moment().is_empty()
    }

    fn closed(&self) -> Closed {
        self.sockets.looks.fetch_add(1, Relaxed);
        Closed::of(self.stream.ready(Closed::INTEREST))
    }

    fn poll_open(&mut self, _cx: &mut Context<'_>) -> Poll<std::io::Result<Version>> {
        Poll::Ready(Ok(self.version))
    }

    fn was_idle(&self) -> bool {
        self.past.is_some()
    }

    fn take_http2(&mut self) -> Option<Moved> {
        let moved = self.past.as_mut().filter(|moved| moved.http2.is_some());
        moved.map(std::mem::take)
    }
}

impl AsyncRead for Counted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Counted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        self.sockets.sends.fetch_add(1, Relaxed);
        let taken = ready!(self.sockets.room.poll_take(cx, buf.len()));
        Pin::new(&mut self.stream).poll_write(cx, &buf[..taken])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        if self.sockets.room.is_limited() {
            return self.poll_write(cx, bufs.first().expect("it is not empty"));
        }
        self.sockets.sends.fetch_add(1, Relaxed);
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        // As the end of TLS, it takes room.
        ready!(self.sockets.room.poll_take(cx, 1));
        for mut client in self.sockets.last_moment().drain(..) {
            client.write_all(HELLO).expect("the socket accepts it");
        }
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
