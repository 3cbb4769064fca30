//! What a request costs without a kernel: a server that reads from memory and writes to nowhere.
//!
//! As fasthttp's own benchmark does it, with its request: a client that never waits, so that the
//! server finds many requests in one read, and one connection at a time. No runtime takes part:
//! what waits for memory has only to be asked again.

use std::convert::Infallible;
use std::path::Path;
use std::pin::pin;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use nix::sys::resource::{UsageWho, getrusage};
use prefork_server::bench_internals::{Client, InMemory};
use tokio::runtime::{Builder, LocalOptions};

use crate::peer::{BODY, Peer};
use crate::process::Trouble;
use crate::programs::Program;
use crate::question::Figure;
use crate::session::Session;
use crate::support::turns::Turn;

/// The one of fasthttp's own benchmark.
const REQUEST: &str = "GET /foobar?baz HTTP/1.1\r\n\
    Host: google.com\r\n\
    User-Agent: aaa/bbb/ccc/ddd/eee Firefox Chrome MSIE Opera\r\n\
    Referer: http://example.com/aaa?bbb=ccc\r\n\
    Cookie: foo=bar; baz=baraz; aa=aakslsdweriwereowriewroire\r\n\r\n";

/// How long the connections of a run are.
#[derive(Clone, Copy)]
struct PerConnection(u64);

const LENGTHS: [PerConnection; 2] = [PerConnection(1), PerConnection(10_000)];

/// How many requests a run answers.
#[derive(Clone, Copy)]
struct Requests(u64);

/// Bytes of one response. All are alike but for the date, which is always as long.
#[derive(Clone, Copy)]
struct ResponseLength(u64);

/// hyper and we are in this process, the others in a program of their own.
pub(crate) const PEERS: [Peer; 4] = [Peer::Prefork, Peer::Hyper, Peer::Fasthttp, Peer::NetHttp];

pub(crate) fn program(peer: Peer) -> Option<Program> {
    matches!(peer, Peer::Fasthttp | Peer::NetHttp).then_some(Program::InMemory)
}

fn key(length: PerConnection) -> String {
    format!("in_memory_{}", length.0)
}

pub(crate) fn figures() -> Vec<Figure> {
    let title = |length| format!("CPU per request in memory, {length} per connection");
    LENGTHS
        .map(|length| Figure::compared(key(length), title(length.0), "us"))
        .into()
}

pub(crate) fn turn(session: &Session, peer: Peer) -> Result<Turn, Trouble> {
    let requests = Requests(session.scale.requests);
    let mut turn = Turn::default();
    for length in LENGTHS {
        let nanos = session.cpus.on_server(|| match peer {
            Peer::Prefork => {
                let mut runtime = Builder::new_current_thread();
                let runtime = runtime.enable_all().build_local(LocalOptions::default())?;
                // Our clock lives in it, and stands still.
                let _runtime = runtime.enter();
                let server = InMemory::responding(BODY);
                here(length, requests, |client| drive(server.serve(client)))
            }
            Peer::Hyper => here(length, requests, |client| {
                let service = service_fn(hello);
                let served = drive(http1::Builder::new().serve_connection(client, service));
                served.expect("a client in memory does as it should");
            }),
            _ => {
                let program = session.programs.path(Program::InMemory)?;
                let which = if peer == Peer::Fasthttp {
                    "fasthttp"
                } else {
                    "net-http"
                };
                go(program, which, length, requests)
            }
        })?;
        turn.set(key(length), nanos / 1e3);
    }
    Ok(turn)
}

/// Nanoseconds of user and system time per request, in this process.
fn here(length: PerConnection, requests: Requests, serve: impl Fn(Client)) -> Result<f64, Trouble> {
    let connection = |requests: u64, response: ResponseLength| {
        let answered = Arc::default();
        let expected = requests * response.0;
        serve(Client::new(
            REQUEST,
            requests,
            Arc::clone(&answered),
            expected,
        ));
        ResponseLength(answered.load(Relaxed))
    };
    let response = connection(1, ResponseLength(1));
    let run = |requests: Requests| {
        let mut left = requests.0;
        while left > 0 {
            let of_this_one = length.0.min(left);
            left -= of_this_one;
            connection(of_this_one, response);
        }
    };
    // A tenth of it first, so that pools are filled.
    run(Requests(requests.0 / 10 + 1));
    let before = used()?;
    run(requests);
    let used = used()? - before;
    Ok(used.as_nanos() as f64 / requests.0 as f64)
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

fn used() -> Result<Duration, Trouble> {
    let usage = getrusage(UsageWho::RUSAGE_THREAD)?;
    let times = [usage.user_time(), usage.system_time()];
    let micros = times.map(|it| it.tv_sec() * 1_000_000 + it.tv_usec());
    Ok(Duration::from_micros(
        micros.iter().sum::<i64>().unsigned_abs(),
    ))
}

/// Nanoseconds per request.
fn go(
    program: &Path,
    which: &str,
    length: PerConnection,
    requests: Requests,
) -> Result<f64, Trouble> {
    let output = Command::new(program)
        .args([
            which,
            &length.0.to_string(),
            &requests.0.to_string(),
            REQUEST,
        ])
        .env("GOMAXPROCS", "1")
        .output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    said.trim().parse().map_err(|_| {
        let why = String::from_utf8_lossy(&output.stderr);
        Trouble::Stuck(format!("{which}: {}", why.trim()))
    })
}
