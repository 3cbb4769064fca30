//! HTTP/2 connections that rest at any moment, or move to another server. The client must get the
//! responses that it gets if its connection does neither.
//!
//! The input chooses what the client does: requests whose header blocks use the dynamic table in
//! each way, uploads, settings, windows, and frames of any kind.

mod client;
mod responses;
mod windows;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt::Write;
use std::future::ready;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
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

use self::client::{Sends, Step, steps};
use self::responses::Responses;
use self::windows::Windows;
use super::Woken;
use crate::address::{Address, Peer};
use crate::fuzz;
use crate::http::conn::handover::HandoverFuture;
use crate::http::http2::scan::{ACK, SETTINGS};
use crate::http::{
    BodyError, Closed, ConnectionInfo, DateHeader, HandoverTarget, Http, Request, Server, Socket,
    Version,
};
use crate::moved::Moved;
use crate::stats::{Count, WorkerStats};

/// Enough ticks for a connection to go to rest, if it can.
const TICKS: usize = 16;

/// The smallest one, so that uploads use it up.
const UPLOAD_WINDOW: u32 = 64 * 1024;

/// How often a connection has rested, in all inputs, how often one has moved, and how often with
/// requests that had waited.
static RESTS: AtomicUsize = AtomicUsize::new(0);
static MOVES: AtomicUsize = AtomicUsize::new(0);
static WAITS: AtomicUsize = AtomicUsize::new(0);

#[test]
fn sequences() {
    fuzz::check("http-rests-sequences", |bytes| {
        let any = steps(bytes, Sends::AnyFrames);
        let expected = play(&any, When::Never, None);
        for (when, name) in [(When::Rests, "rests"), (When::Moves, "moves")] {
            let played = play(&any, when, None);
            // The seconds of a rest give credits for frames, and so does a move.
            if !expected.end_with_calm() {
                assert_eq!(played, expected, "{name}");
            }
        }
        // What a client gets that has made an error depends on the order.
        let requests = steps(bytes, Sends::Requests);
        let expected = play(&requests, When::Never, Some(Windows::new(0)));
        let late = Windows::new(bytes.len() % 4);
        let waited = play(&requests, When::Waits, Some(late));
        if !expected.end_with_error() {
            assert_eq!(waited, expected, "waits");
        }
    });
    for (count, least, of) in [
        (&RESTS, 100, "rests"),
        (&MOVES, 100, "moves"),
        (&WAITS, 10, "waits"),
    ] {
        let count = count.load(Relaxed);
        assert!(cfg!(fuzzing) || count > least, "{count} {of}");
    }
}

/// What the connection does at each [`Step::Rest`], if it can.
#[derive(Clone, Copy, PartialEq, Eq)]
enum When {
    Never,
    Rests,
    Moves,
    /// New streams wait until no other one is open. Then the connection moves.
    Waits,
}

/// A server, and the task of its only connection.
struct Serving {
    server: Server,
    task: Pin<Box<dyn Future<Output = ()>>>,
}

/// The next server takes the connection from here.
#[derive(Default)]
struct Inbox(RefCell<Option<End>>);

impl HandoverTarget<End> for Inbox {
    fn hand_over(self: Rc<Self>, mut end: End, moved: Moved) -> HandoverFuture<End> {
        end.moved = Some(moved);
        self.0.replace(Some(end));
        Box::pin(ready(Ok(())))
    }
}

impl Serving {
    fn begin(end: End, inbox: &Rc<Inbox>) -> Self {
        let hours = Duration::from_secs(36_000);
        let options = Http::new()
            .upload_window(UPLOAD_WINDOW)
            .date_header(DateHeader::Omitted)
            .header_timeout(hours)
            .body_timeout(hours)
            .write_timeout(hours)
            .idle_timeout(hours);
        let server = Server::new(options, WorkerStats::own());
        let endpoint = server.endpoint(service_fn(respond));
        let inbox = Rc::clone(inbox);
        let task = Box::pin(endpoint.with_handover_target(inbox).serve(end));
        Self { server, task }
    }

    /// Polls the connection until it waits for something. Returns whether it is over.
    fn settle(&mut self) -> bool {
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(Arc::clone(&woken));
        let mut rounds = 10_000;
        let mut cx = Context::from_waker(&waker);
        while self.task.as_mut().poll(&mut cx).is_pending() {
            if !woken.0.swap(false, Relaxed) {
                return false;
            }
            rounds -= 1;
            assert!(rounds > 0, "it waits for nothing");
        }
        true
    }
}

/// Serves one connection to its end, and returns what the client gets. A client without windows
/// sends all at once.
fn play(steps: &[Step], when: When, windows: Option<Windows>) -> Responses {
    let mut connection = Played::begin(when, windows);
    for step in steps {
        if connection.is_over {
            break;
        }
        connection.step(step);
        connection.exchange();
    }
    connection.end()
}

/// A connection, and its client.
struct Played {
    when: When,
    pipe: Arc<Mutex<Pipe>>,
    inbox: Rc<Inbox>,
    serving: Serving,
    windows: Option<Windows>,
    responses: Responses,
    is_over: bool,
}

impl Played {
    fn begin(when: When, windows: Option<Windows>) -> Self {
        let pipe = Arc::<Mutex<Pipe>>::default();
        let inbox = Rc::<Inbox>::default();
        let end = End {
            pipe: Arc::clone(&pipe),
            moved: None,
        };
        Self {
            when,
            serving: Serving::begin(end, &inbox),
            pipe,
            inbox,
            windows,
            responses: Responses::default(),
            is_over: false,
        }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Send(bytes) => match &mut self.windows {
                Some(windows) => windows.add(bytes),
                None => self.send(bytes),
            },
            Step::Rest if self.when == When::Rests => {
                for _ in 0..TICKS {
                    self.serving.server.registry.tick();
                    self.settle();
                }
                RESTS.fetch_add(usize::from(self.serving.server.served() == 0), Relaxed);
            }
            Step::Rest if self.when == When::Moves => {
                self.serving.server.share(1, || Duration::ZERO);
                self.settle();
            }
            Step::Rest if self.when == When::Waits => {
                self.serving.server.hand_over();
                self.settle();
            }
            Step::Rest => {}
            Step::Drain => {
                self.serving.server.drain();
                self.settle();
            }
        }
    }

    fn send(&mut self, bytes: &[u8]) {
        lock(&self.pipe).to_server.extend(bytes);
        self.settle();
    }

    /// Until the connection waits for something, here or in the server that it has moved to.
    fn settle(&mut self) {
        self.is_over = self.is_over || self.serving.settle();
        while let Some(end) = self.inbox.0.take() {
            let moved = end.moved.as_ref();
            let has_waited = moved.is_some_and(|moved| !moved.read_ahead.is_empty());
            MOVES.fetch_add(usize::from(self.when == When::Moves), Relaxed);
            WAITS.fetch_add(usize::from(self.when == When::Waits && has_waited), Relaxed);
            self.serving = Serving::begin(end, &self.inbox);
            self.is_over = self.serving.settle();
        }
    }

    /// The client reads what has come, and sends what it may. Returns whether anything was sent.
    fn exchange(&mut self) -> bool {
        let mut bytes = std::mem::take(&mut lock(&self.pipe).to_client);
        let has_come = !bytes.is_empty();
        if let Some(windows) = &mut self.windows {
            bytes = windows.read(bytes);
        }
        self.responses.read(&bytes);
        while !self.is_over && self.responses.unacknowledged > 0 {
            self.responses.unacknowledged -= 1;
            self.send(&[0, 0, 0, SETTINGS, ACK, 0, 0, 0, 0]);
        }
        let sent = self.windows.as_mut().map(Windows::take).unwrap_or_default();
        if !self.is_over {
            self.send(&sent);
        }
        has_come || !sent.is_empty()
    }

    /// The client sends the rest of its uploads, and closes.
    fn end(mut self) -> Responses {
        if let Some(windows) = &mut self.windows {
            windows.are_late = 0;
        }
        while self.windows.is_some() && !self.is_over && self.exchange() {}
        let stalls = (self.windows.as_ref()).is_some_and(Windows::are_used_up);
        assert!(
            !stalls || self.is_over || self.responses.end_with_error(),
            "an upload has no window"
        );
        lock(&self.pipe).is_closed = true;
        self.settle();
        assert!(self.is_over, "the client has left");
        self.exchange();
        assert_eq!(self.serving.server.connections(), 0);
        assert_eq!(self.serving.server.count(Count::Panics), 0);
        self.responses
    }
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
struct End {
    pipe: Arc<Mutex<Pipe>>,
    /// What another server knew.
    moved: Option<Moved>,
}

impl Socket for End {
    fn info(&self) -> ConnectionInfo {
        let address: SocketAddr = ([127, 0, 0, 1], 1).into();
        ConnectionInfo::new(Peer::Tcp(address), Address::Tcp(address))
    }

    fn poll_open(&mut self, _: &mut Context<'_>) -> Poll<io::Result<Version>> {
        Poll::Ready(Ok(Version::Http2))
    }

    fn was_idle(&self) -> bool {
        self.moved.is_some()
    }

    fn take_http2(&mut self) -> Option<Moved> {
        self.moved.take()
    }

    fn has_unread(&self) -> bool {
        !lock(&self.pipe).to_server.is_empty()
    }

    fn poll_readable(&mut self, _: &mut Context<'_>) -> Poll<()> {
        match self.has_unread() || lock(&self.pipe).is_closed {
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
        let mut pipe = lock(&self.pipe);
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
        lock(&self.pipe).to_client.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
