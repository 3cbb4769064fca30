//! The servers that prefork is compared with: hyper as most people run it, on the same sockets,
//! with the same answer and the same allocator.

use std::convert::Infallible;
use std::io::{self, IoSlice};
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::thread;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::rt::ReadBufCursor;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use socket2::{Domain, Socket, Type};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime;

use super::answer::BODY;
use super::server::announce;

/// As many connections may wait as the kernel allows; it cuts this to `net.core.somaxconn`.
const BACKLOG: i32 = 4096;

/// One runtime of `workers` threads behind one listener.
pub(crate) fn multi_thread(workers: NonZeroUsize) -> ! {
    let listener = listen(Sharing::Exclusive, (Ipv4Addr::LOCALHOST, 0).into());
    announce(address_of(&listener), workers.get());

    let runtime = runtime::Builder::new_multi_thread()
        .worker_threads(workers.get())
        .enable_io()
        .build();
    let runtime = runtime.expect("a runtime can be built");
    // On the runtime's own threads: accepting in `block_on`, as most programs do, costs a thread
    // more and a hop for each connection. We want to be compared with the best of its kind.
    let accepting = runtime.spawn(accept(listener));
    match runtime.block_on(accepting) {
        Ok(never) => match never {},
        Err(error) => panic!("{error}"),
    }
}

/// `workers` threads, each with a runtime and a listener on the same port.
pub(crate) fn current_threads(workers: NonZeroUsize) -> ! {
    let first = listen(Sharing::ReusePort, (Ipv4Addr::LOCALHOST, 0).into());
    let address = address_of(&first);
    for _ in 1..workers.get() {
        let listener = listen(Sharing::ReusePort, address);
        thread::spawn(|| on_this_thread(listener));
    }
    announce(address, workers.get());
    on_this_thread(first)
}

fn on_this_thread(listener: Socket) -> ! {
    let runtime = runtime::Builder::new_current_thread().enable_io().build();
    let runtime = runtime.expect("a runtime can be built");
    match runtime.block_on(accept(listener)) {}
}

async fn accept(listener: Socket) -> Infallible {
    let listener = TcpListener::from_std(listener.into()).expect("the listener is non-blocking");
    loop {
        let (stream, _) = listener.accept().await.expect("accept(2)");
        tokio::spawn(async move {
            let connection = http1::Builder::new()
                .serve_connection(HyperStream::new(stream), service_fn(respond));
            // Clients leave when they are done; what they think of it is checked on their side.
            let _ = connection.await;
        });
    }
}

async fn respond(_: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let mut response = Response::new(Full::new(Bytes::from_static(BODY.as_bytes())));
    let plain = HeaderValue::from_static("text/plain");
    response.headers_mut().insert(CONTENT_TYPE, plain);
    Ok(response)
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

/// A tokio stream as hyper sees it.
struct HyperStream {
    stream: TcpStream,
    /// Where bytes land before hyper gets them: the only way into its buffer without `unsafe`.
    /// Holds any request of the benches, and copying those is nothing beside receiving them.
    landing: [u8; 1024],
}

impl HyperStream {
    fn new(stream: TcpStream) -> Self {
        Self {
            stream,
            landing: [0; 1024],
        }
    }
}

impl hyper::rt::Read for HyperStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { stream, landing } = &mut *self;
        let room = buffer.remaining().min(landing.len());
        let mut landing = ReadBuf::new(&mut landing[..room]);
        ready!(Pin::new(stream).poll_read(cx, &mut landing))?;
        buffer.put_slice(landing.filled());
        Poll::Ready(Ok(()))
    }
}

impl hyper::rt::Write for HyperStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bytes)
    }
}
