//! The servers that prefork is compared with: hyper as most people run it, on the same sockets,
//! with the same handlers and the same allocator. Within TLS: tokio-rustls between the two.

use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::Path;
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use socket2::{Domain, Socket, Type};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{self, Runtime};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tower_http::services::ServeDir;
use tower_http::services::fs::ServeFileSystemResponseBody;

use super::Model;
use super::handlers::{self, Place};
use super::role::announce;

/// As many connections may wait as the kernel allows; it cuts this to `net.core.somaxconn`.
const BACKLOG: i32 = 4096;

/// Longer than a bench: a thread that ends takes its CPU time with it.
const BLOCKING_THREADS_LIVE: Duration = Duration::from_secs(24 * 3600);

/// What answers requests, a copy for each connection.
pub(super) trait Respond: Clone + Send + Sync + 'static {
    type Body: Body<Data: Send, Error: std::error::Error + Send + Sync> + Send + 'static;

    fn respond(
        &self,
        request: Request<Incoming>,
    ) -> impl Future<Output = io::Result<Response<Self::Body>>> + Send;
}

/// What a connection goes through before HTTP, a copy for each.
pub(super) trait Wire: Clone + Send + 'static {
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    fn open(self, stream: TcpStream) -> impl Future<Output = io::Result<Self::Stream>> + Send;
}

/// As the model has it. `app` is called with the number of each worker that has connections of its
/// own, from 0.
pub(super) fn serve<R: Respond>(
    model: Model,
    workers: NonZeroUsize,
    wire: impl Wire,
    app: impl Fn(usize) -> R,
) -> ! {
    match model {
        Model::MultiThread => multi_thread(workers, wire, app(0)),
        _ => current_threads(workers, wire, app),
    }
}

/// One runtime of `workers` threads behind one listener.
fn multi_thread(workers: NonZeroUsize, wire: impl Wire, app: impl Respond) -> ! {
    let listener = listen(Sharing::Exclusive, (Ipv4Addr::LOCALHOST, 0).into());
    announce(address_of(&listener), workers);

    let mut runtime = runtime::Builder::new_multi_thread();
    let runtime = build(runtime.worker_threads(workers.get()));
    // On the runtime's own threads: accepting in `block_on`, as most programs do, costs a thread
    // more and a hop for each connection. We want to be compared with the best of its kind.
    let accepting = runtime.spawn(accept(listener, wire, app));
    match runtime.block_on(accepting) {
        Ok(never) => match never {},
        Err(error) => panic!("{error}"),
    }
}

/// `workers` threads, each with a runtime and a listener on the same port.
fn current_threads<R: Respond>(
    workers: NonZeroUsize,
    wire: impl Wire,
    app: impl Fn(usize) -> R,
) -> ! {
    let first = listen(Sharing::ReusePort, (Ipv4Addr::LOCALHOST, 0).into());
    let address = address_of(&first);
    for number in 1..workers.get() {
        let listener = listen(Sharing::ReusePort, address);
        let (wire, app) = (wire.clone(), app(number));
        thread::spawn(|| on_this_thread(listener, wire, app));
    }
    announce(address, workers);
    on_this_thread(first, wire, app(0))
}

/// Nothing.
#[derive(Clone, Copy)]
pub(super) struct Plain;

impl Wire for Plain {
    type Stream = TcpStream;

    async fn open(self, stream: TcpStream) -> io::Result<TcpStream> {
        Ok(stream)
    }
}

impl Wire for TlsAcceptor {
    type Stream = TlsStream<TcpStream>;

    async fn open(self, stream: TcpStream) -> io::Result<Self::Stream> {
        self.accept(stream).await
    }
}

/// The handlers that prefork serves too.
#[derive(Clone, Copy)]
pub(super) struct Handlers(pub(super) Place);

impl Respond for Handlers {
    type Body = Full<Bytes>;

    async fn respond(&self, request: Request<Incoming>) -> io::Result<Response<Self::Body>> {
        let Ok(response) = handlers::answer(request, self.0).await;
        Ok(response)
    }
}

/// A directory, as axum and every other program on tower-http serves it.
#[derive(Clone)]
pub(super) struct Files(ServeDir);

impl Files {
    pub(super) fn new(directory: &Path) -> Self {
        Self(ServeDir::new(directory))
    }
}

impl Respond for Files {
    type Body = ServeFileSystemResponseBody;

    async fn respond(&self, request: Request<Incoming>) -> io::Result<Response<Self::Body>> {
        self.0.clone().try_call(request).await
    }
}

fn on_this_thread(listener: Socket, wire: impl Wire, app: impl Respond) -> ! {
    let runtime = build(&mut runtime::Builder::new_current_thread());
    match runtime.block_on(accept(listener, wire, app)) {}
}

fn build(runtime: &mut runtime::Builder) -> Runtime {
    let runtime = runtime.thread_keep_alive(BLOCKING_THREADS_LIVE);
    runtime
        .enable_all()
        .build()
        .expect("a runtime can be built")
}

async fn accept(listener: Socket, wire: impl Wire, app: impl Respond) -> Infallible {
    let listener = TcpListener::from_std(listener.into()).expect("the listener is non-blocking");
    loop {
        let (stream, _) = listener.accept().await.expect("accept(2)");
        let (wire, app) = (wire.clone(), app.clone());
        tokio::spawn(async move {
            // The client counts handshakes that fail.
            let Ok(stream) = wire.open(stream).await else {
                return;
            };
            let service = service_fn(|request| app.respond(request));
            // Off by default, and worth a factor of four if sixteen requests come at once.
            // prefork has it on; left off here, a switch would be taken for the model.
            let connection = http1::Builder::new()
                .pipeline_flush(true)
                .serve_connection(TokioIo::new(stream), service);
            // Clients leave when they are done; what they think of it is checked on their side.
            let _ = connection.await;
        });
    }
}

#[derive(Clone, Copy)]
enum Sharing {
    Exclusive,
    ReusePort,
}

fn listen(sharing: Sharing, address: SocketAddr) -> Socket {
    let listener = Socket::new(Domain::IPV4, Type::STREAM.nonblocking(), None);
    let listener = listener.expect("socket(2)");
    if let Sharing::ReusePort = sharing {
        listener.set_reuse_port(true).expect("SO_REUSEPORT");
    }
    // Accepted connections inherit it, as in prefork.
    listener.set_tcp_nodelay(true).expect("TCP_NODELAY");
    listener.bind(&address.into()).expect("bind(2)");
    listener.listen(BACKLOG).expect("listen(2)");
    listener
}

fn address_of(listener: &Socket) -> SocketAddr {
    let address = listener.local_addr().expect("getsockname(2)");
    address.as_socket().expect("an IPv4 listener")
}
