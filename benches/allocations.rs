//! How often is the allocator asked for a request, and what does a connection at rest hold?
//!
//! Counted, not timed, so the figures are the same on any machine and however busy it is. The
//! server is this package's, in this process; the load driver in another thread allocates nothing
//! while they are counted.
//!
//! Not counted: what the kernel holds for a socket.

#[path = "support/mod.rs"]
mod support;

use std::convert::Infallible;
use std::fmt::Display;
use std::fs;
use std::io::Write;
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use clap::Parser;
use http::HeaderValue;
use http::header::CONTENT_TYPE;
use http_body_util::Full;
use prefork_server::files::Files;
use prefork_server::{
    Address, BoxError, Buffer, Handle, IntoService, Prefork, Request, Response, Stop, Worker,
    reply, service_fn,
};

use self::support::load::{self, Ask, Driver, Plan};
use self::support::options::{Common, Extent};

#[global_allocator]
static ALLOCATOR: dhat::Alloc = dhat::Alloc;

const REQUESTS: usize = 100_000;

/// Enough for an average.
const AT_REST: usize = 400;

fn main() {
    let requests = match Common::parse().extent() {
        Extent::Smoke => REQUESTS / 100,
        Extent::Quick => REQUESTS / 10,
        Extent::Full => REQUESTS,
    };
    let _profiler = dhat::Profiler::builder().testing().build();
    beside(
        async |_worker| Ok(service_fn(respond)),
        move |address| {
            print("case", "allocations", "bytes");
            for (name, path, at_once) in CASES {
                count(name, Ask::get(path), at_once, address, requests);
            }
            let browsing = "kept alive, as a browser sends them";
            count(browsing, Ask::browsing(), 1, address, requests);
            let posting = "kept alive, bodies of 1 KiB as a service sends them";
            count(posting, Ask::posting(), 1, address, requests);
            count_at_rest(address);
        },
    );
    let directory = tempfile::tempdir().expect("a directory");
    fs::write(directory.path().join("1KiB"), [b'x'; 1024]).expect("space");
    let files = Files::new(directory.path());
    beside(
        async |_worker| Ok(files.open()?),
        move |address| {
            let name = "kept alive, a file of 1 KiB";
            count(name, Ask::get("/1KiB"), 1, address, requests);
        },
    );
}

/// Runs `clients` beside a server with this app.
fn beside<A, S, Kind>(app: A, clients: impl FnOnce(SocketAddr) + Send + 'static)
where
    A: AsyncFnOnce(Worker) -> Result<S, BoxError>,
    S: IntoService<Kind>,
{
    let mut server = Prefork::bind("127.0.0.1:0").in_process();
    let handle = server.handle().expect("a socket pair");
    let clients = thread::spawn(move || {
        clients(address(&handle));
        handle.stop(Stop::Drain).expect("it runs");
    });
    server.serve(app).expect("a free port");
    clients.join().expect("the clients have their responses");
}

fn address(handle: &Handle) -> SocketAddr {
    let addresses = handle.wait_serving().expect("it serves");
    let Some(Address::Tcp(address)) = addresses.first() else {
        panic!("TCP");
    };
    *address
}

async fn respond(request: Request) -> Result<Response<Full<Buffer>>, Infallible> {
    let (head, _unread) = request.into_parts();
    let body = if head.uri.path() == "/written" {
        let mut text = Buffer::take();
        write!(text, "You asked for {}", head.uri.path()).expect("memory does not fail");
        text
    } else {
        "Hello, World!".into()
    };
    let response = reply(head)
        .header(CONTENT_TYPE, HeaderValue::from_static("text/plain"))
        .body(Full::new(body));
    Ok(response.expect("a constant header"))
}

/// What it is called, what is asked for, and how many requests are sent at once.
const CASES: [(&str, &str, usize); 3] = [
    ("kept alive, a static body", "/", 1),
    ("kept alive, a body written into a buffer", "/written", 1),
    ("pipelined x16, a static body", "/", 16),
];

fn print(case: &str, allocations: impl Display, bytes: impl Display) {
    println!("{case:<60} {allocations:>12} {bytes:>14}");
}

fn count(name: &str, ask_for: Ask, at_once: usize, address: SocketAddr, requests: usize) {
    let mut plan = Plan::new(1, ask_for);
    plan.pipeline = at_once;
    let mut driver = Driver::new(address, plan);
    // What grows at first: buffers, header maps, the tables of the runtime.
    ask(&mut driver, 1000 * at_once);
    let before = dhat::HeapStats::get();
    ask(&mut driver, requests);
    let after = dhat::HeapStats::get();
    print(
        &format!("{requests} requests {name}"),
        after.total_blocks - before.total_blocks,
        after.total_bytes - before.total_bytes,
    );
}

fn ask(driver: &mut Driver, requests: usize) {
    let outcome = driver.closed(load::Extent::Requests(requests as u64));
    assert_eq!(outcome.failures.total(), 0, "{}", outcome.failures);
}

/// Connections that were served once and are at rest.
fn count_at_rest(address: SocketAddr) {
    let mut driver = Driver::new(address, Plan::new(AT_REST, Ask::get("/")));
    let before = when_at_rest();
    driver.warm();
    let warm = dhat::HeapStats::get();
    let after = when_at_rest();
    for (case, now) in [
        ("a connection between requests", warm),
        ("a connection at rest", after),
    ] {
        let bytes = now.curr_bytes.saturating_sub(before.curr_bytes);
        let blocks = now.curr_blocks - before.curr_blocks;
        print(case, blocks / AT_REST, bytes / AT_REST);
    }
}

/// What is allocated when all connections have gone to rest.
#[expect(
    clippy::disallowed_methods,
    reason = "the server rests when nothing has happened for a second; it does not announce that"
)]
fn when_at_rest() -> dhat::HeapStats {
    let mut before = dhat::HeapStats::get();
    loop {
        thread::sleep(Duration::from_millis(1500));
        let now = dhat::HeapStats::get();
        if now.curr_bytes >= before.curr_bytes {
            return now;
        }
        before = now;
    }
}
