//! What a request costs without a kernel: a server that reads from memory and writes to nowhere.
//!
//! As fasthttp's own benchmark does it, with its request: a client that never waits, so that the
//! server finds many requests in one read, and one connection at a time. And with requests as a
//! browser sends them, of which no two are the same. No runtime takes part: what waits for memory
//! has only to be asked again.

use std::convert::Infallible;
use std::io::Write;
use std::pin::pin;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use nix::time::ClockId;
use prefork_server::bench_internals::{Client, InMemory};
use tempfile::NamedTempFile;
use tokio::runtime::{Builder, LocalOptions};

use crate::load::Ask;
use crate::peer::{BODY, Peer};
use crate::process::Trouble;
use crate::programs::Program;
use crate::question::Shown;
use crate::session::Session;
use crate::support::cpus;
use crate::support::tree::time_of;
use crate::support::turns::Turn;

/// The one of fasthttp's own benchmark.
const REQUEST: &str = "GET /foobar?baz HTTP/1.1\r\n\
    Host: google.com\r\n\
    User-Agent: aaa/bbb/ccc/ddd/eee Firefox Chrome MSIE Opera\r\n\
    Referer: http://example.com/aaa?bbb=ccc\r\n\
    Cookie: foo=bar; baz=baraz; aa=aakslsdweriwereowriewroire\r\n\r\n";

/// The requests of a connection: what is sent, and how many.
const CASES: [(Sent, u64, &str, &str); 4] = [
    (Sent::Same, 1, "in_memory_1", "1 per connection"),
    (
        Sent::Same,
        10_000,
        "in_memory_10000",
        "10,000 per connection",
    ),
    (
        Sent::Browsing,
        10_000,
        "in_memory_browsing",
        "10,000 per connection, as a browser sends them",
    ),
    (
        Sent::Posting,
        10_000,
        "in_memory_posting",
        "10,000 per connection, as a service sends bodies of 1 KiB",
    ),
];

#[derive(Clone, Copy)]
enum Sent {
    Same,
    Browsing,
    Posting,
}

impl Sent {
    fn requests(self) -> Arc<[Vec<u8>]> {
        match self {
            Self::Same => [REQUEST.as_bytes().to_vec()].into(),
            Self::Browsing => Ask::browsing().requests().into(),
            Self::Posting => Ask::posting().requests().into(),
        }
    }
}

/// hyper and we are in this process, the others in a program of their own.
pub(crate) const PEERS: [Peer; 4] = [Peer::Prefork, Peer::Hyper, Peer::Fasthttp, Peer::NetHttp];

pub(crate) fn tables() -> Vec<Shown> {
    let title = |how| format!("CPU per request in memory, {how}");
    CASES
        .map(|(_, _, key, how)| Shown::compared(key, title(how), "us"))
        .into()
}

pub(crate) fn turn(session: &Session, peer: Peer) -> Result<Turn, Trouble> {
    let count = session.scale.requests;
    let mut turn = Turn::default();
    for (sent, length, key, _) in CASES {
        let requests = sent.requests();
        let micros = cpus::on(&[session.cpus.server], || match peer {
            Peer::Prefork => {
                let mut runtime = Builder::new_current_thread();
                let runtime = runtime.enable_all().build_local(LocalOptions::default())?;
                // Our clock lives in it, and stands still.
                let _runtime = runtime.enter();
                let server = InMemory::responding(BODY);
                let serve = |client| drive(server.serve(client));
                Ok(here(&requests, length, count, serve))
            }
            Peer::Hyper => Ok(here(&requests, length, count, |client| {
                let service = service_fn(hello);
                let client = TokioIo::new(client);
                let served = drive(http1::Builder::new().serve_connection(client, service));
                served.expect("a client in memory does as it should");
            })),
            _ => go(session, peer, &requests, length),
        });
        turn.set(key, micros?);
    }
    Ok(turn)
}

/// Microseconds of user and system time per request, in this process.
fn here(sent: &Arc<[Vec<u8>]>, length: u64, requests: u64, serve: impl Fn(Client)) -> f64 {
    // Gives the bytes of all responses. All are alike but for the date, which is always as long.
    let connection = |requests: u64, response: u64| {
        let answered = Arc::default();
        let expected = requests * response;
        serve(Client::new(
            Arc::clone(sent),
            requests,
            Arc::clone(&answered),
            expected,
        ));
        answered.load(Relaxed)
    };
    let response = connection(1, 1);
    let run = |requests: u64| {
        let mut left = requests;
        while left > 0 {
            let of_this_one = length.min(left);
            left -= of_this_one;
            connection(of_this_one, response);
        }
    };
    // A tenth of it first, so that pools are filled.
    run(requests / 10 + 1);
    let before = time_of(ClockId::CLOCK_THREAD_CPUTIME_ID);
    run(requests);
    let used = time_of(ClockId::CLOCK_THREAD_CPUTIME_ID) - before;
    used.as_secs_f64() * 1e6 / requests as f64
}

/// Polls until it is done. What waits here waits for the same thread, and so for nothing.
fn drive<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let mut cx = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut cx) {
            return output;
        }
    }
}

async fn hello(_: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let mut response = Response::new(Full::new(Bytes::from_static(BODY.as_bytes())));
    let plain = HeaderValue::from_static("text/plain");
    response.headers_mut().insert(CONTENT_TYPE, plain);
    Ok(response)
}

/// Microseconds per request.
fn go(session: &Session, peer: Peer, sent: &[Vec<u8>], length: u64) -> Result<f64, Trouble> {
    let which = if peer == Peer::Fasthttp {
        "fasthttp"
    } else {
        "net-http"
    };
    // Longer than an argument may be.
    let mut file = NamedTempFile::new()?;
    file.write_all(&sent.join(&0))?;
    let output = Command::new(session.programs.path(Program::InMemory)?)
        .args([which, &length.to_string()])
        .arg(session.scale.requests.to_string())
        .arg(file.path())
        .env("GOMAXPROCS", "1")
        .output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    let nanos: f64 = said.trim().parse().map_err(|_| {
        let why = String::from_utf8_lossy(&output.stderr);
        Trouble::Stuck(format!("{which}: {}", why.trim()))
    })?;
    Ok(nanos / 1e3)
}
