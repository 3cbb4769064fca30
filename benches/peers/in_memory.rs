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

use crate::peer::BODY;
use crate::process::Trouble;
use crate::programs::Program;
use crate::series::{self, Series, Unit};
use crate::session::{Session, Taken, Turn};

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

#[derive(Clone, Copy)]
enum Contender {
    Ours,
    Hyper,
    /// What the Go program calls it.
    Go(&'static str),
}

const CONTENDERS: [(&str, Contender); 4] = [
    (series::OURS, Contender::Ours),
    ("hyper", Contender::Hyper),
    ("fasthttp", Contender::Go("fasthttp")),
    ("net/http", Contender::Go("net-http")),
];

/// How long all turns should take.
pub(crate) const EXPECTED: Duration = Duration::from_secs(3);

pub(crate) fn measure(session: &mut Session) -> Vec<Series> {
    let rounds = session.scale.rounds;
    let requests = Requests(session.scale.requests);
    let mut all = CONTENDERS.map(|(name, contender)| (Taken::new(name), contender));
    for round in 1..=rounds.0 {
        session
            .progress
            .begin(format_args!("in memory, round {round}"), EXPECTED);
        for (taken, contender) in &mut all {
            let result = (!taken.is_out()).then(|| turn(session, *contender, requests));
            taken.take(result);
        }
    }
    let series = LENGTHS.iter().enumerate().map(|(index, length)| Series {
        key: format!("in_memory_{}", length.0),
        title: format!("CPU per request in memory, {} per connection", length.0),
        unit: Unit::Micros,
        rows: all.iter().map(|(taken, _)| taken.row(index)).collect(),
    });
    series.collect()
}

fn turn(session: &Session, contender: Contender, requests: Requests) -> Result<Turn, Trouble> {
    let mut figures = Vec::new();
    for length in LENGTHS {
        let nanos = session.cpus.on_server(|| match contender {
            Contender::Ours => {
                let runtime = Builder::new_current_thread()
                    .enable_all()
                    .build_local(LocalOptions::default())?;
                // Our clock lives in it, and stands still.
                let _runtime = runtime.enter();
                let server = InMemory::responding(BODY);
                here(length, requests, |client| drive(server.serve(client)))
            }
            Contender::Hyper => here(length, requests, |client| {
                let service = service_fn(hello);
                // A client in memory does nothing that makes this fail.
                let _ = drive(http1::Builder::new().serve_connection(client, service));
            }),
            Contender::Go(which) => {
                let program = session.programs.path(Program::InMemory)?;
                go(program, which, length, requests)
            }
        })??;
        figures.push(nanos / 1e3);
    }
    Ok(Turn {
        figures,
        failures: 0,
    })
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
