//! HTTP/2 connections that rest at any moment. The client must get the responses that it gets if
//! its connection never rests.
//!
//! The input chooses what the client does: requests whose header blocks use the dynamic table in
//! each way, uploads, settings, windows, and frames of any kind.

mod client;
mod responses;

use std::collections::VecDeque;
use std::fmt::Write;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Response};
use http_body_util::{BodyExt, Full};
use hyper::service::service_fn;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use self::client::{Step, steps};
use self::responses::Responses;
use super::Woken;
use crate::address::{Address, Peer};
use crate::fuzz;
use crate::http::{
    BodyError, Closed, ConnectionInfo, DateHeader, Http, Request, Server, Socket, Version,
};
use crate::stats::{Count, WorkerStats};

/// Enough ticks for a connection to go to rest, if it can.
const TICKS: usize = 16;

/// How often a connection has rested, in all inputs.
static RESTS: AtomicUsize = AtomicUsize::new(0);

#[test]
fn sequences() {
    fuzz::check("http-rests-sequences", |bytes| {
        let steps = steps(bytes);
        assert_eq!(play(&steps, Rest::IfAsked), play(&steps, Rest::Never));
    });
    assert!(
        cfg!(fuzzing) || RESTS.load(Relaxed) > 100,
        "{RESTS:?} rests"
    );
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Rest {
    IfAsked,
    Never,
}

/// Serves one connection to its end, and returns what the client gets.
fn play(steps: &[Step], rest: Rest) -> Responses {
    let hours = Duration::from_secs(36_000);
    let options = Http::new()
        .date_header(DateHeader::Omitted)
        .header_timeout(hours)
        .body_timeout(hours)
        .write_timeout(hours)
        .idle_timeout(hours);
    let server = Server::new(options, WorkerStats::own());
    let endpoint = server.endpoint(service_fn(respond));
    let pipe = Arc::<Mutex<Pipe>>::default();
    let mut serving = Box::pin(endpoint.serve(End(Arc::clone(&pipe))));
    let mut settle = || {
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(Arc::clone(&woken));
        let mut rounds = 10_000;
        while serving
            .as_mut()
            .poll(&mut Context::from_waker(&waker))
            .is_pending()
        {
            if !woken.0.swap(false, Relaxed) {
                return false;
            }
            rounds -= 1;
            assert!(rounds > 0, "it waits for nothing");
        }
        true
    };
    let mut responses = Responses::default();
    let mut is_over = false;
    for step in steps {
        match step {
            _ if is_over => break,
            Step::Send(bytes) => {
                lock(&pipe).to_server.extend(bytes);
                is_over = settle();
            }
            Step::Rest if rest == Rest::IfAsked => {
                for _ in 0..TICKS {
                    server.registry.tick();
                    is_over = is_over || settle();
                }
                RESTS.fetch_add(usize::from(server.served() == 0), Relaxed);
            }
            Step::Rest => {}
            Step::Drain => {
                server.drain();
                is_over = settle();
            }
        }
        responses.read(&std::mem::take(&mut lock(&pipe).to_client));
    }
    lock(&pipe).is_closed = true;
    assert!(is_over || settle(), "the client has left");
    responses.read(&std::mem::take(&mut lock(&pipe).to_client));
    assert_eq!(server.connections(), 0);
    assert_eq!(server.count(Count::Panics), 0);
    responses
}

/// The response has the request's fields, and the request itself in another one.
async fn respond(request: Request) -> Result<Response<Full<Bytes>>, BodyError> {
    let (head, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    let mut received = format!("{} {} {}", head.method, head.uri, body.len());
    let length = head.uri.path().len() * 97;
    let mut response = Response::new(Full::new(vec![b'-'; length].into()));
    for (name, value) in &head.headers {
        write!(received, " {name}: {value:?}").expect("a string takes all");
        if name.as_str().starts_with("x-") {
            response.headers_mut().append(name, value.clone());
        }
    }
    let received = HeaderValue::from_str(&received).expect("no control characters");
    response.headers_mut().insert("x-received", received);
    Ok(response)
}

/// The bytes on their way in both directions.
#[derive(Default)]
struct Pipe {
    to_server: VecDeque<u8>,
    to_client: Vec<u8>,
    is_closed: bool,
}

fn lock(pipe: &Mutex<Pipe>) -> MutexGuard<'_, Pipe> {
    pipe.lock().expect("one thread")
}

/// The server's end of the pipe.
struct End(Arc<Mutex<Pipe>>);

impl Socket for End {
    fn info(&self) -> ConnectionInfo {
        let address: SocketAddr = ([127, 0, 0, 1], 1).into();
        ConnectionInfo::new(Peer::Tcp(address), Address::Tcp(address))
    }

    fn poll_open(&mut self, _: &mut Context<'_>) -> Poll<io::Result<Version>> {
        Poll::Ready(Ok(Version::Http2))
    }

    fn has_unread(&self) -> bool {
        !lock(&self.0).to_server.is_empty()
    }

    fn poll_readable(&mut self, _: &mut Context<'_>) -> Poll<()> {
        match self.has_unread() || lock(&self.0).is_closed {
            true => Poll::Ready(()),
            // The test polls the connection when bytes come.
            false => Poll::Pending,
        }
    }

    fn is_bare(&self) -> bool {
        true
    }

    fn closed(&self) -> Closed {
        Closed::Nothing
    }
}

impl AsyncRead for End {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut pipe = lock(&self.0);
        if pipe.to_server.is_empty() && !pipe.is_closed {
            return Poll::Pending;
        }
        let count = buf.remaining().min(pipe.to_server.len());
        let bytes: Vec<u8> = pipe.to_server.drain(..count).collect();
        buf.put_slice(&bytes);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for End {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        lock(&self.0).to_client.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
