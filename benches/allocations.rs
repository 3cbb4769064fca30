//! How often is the allocator asked for a request, and what does a connection at rest hold?
//!
//! Counted, not timed, so the figures are the same on any machine and however busy it is. The
//! server is this package's, in this process; the clients use standard sockets and buffers of
//! their own and allocate nothing while they are counted.
//!
//! Not counted: what the kernel holds for a socket.

#[allow(dead_code, reason = "shared by several benches")]
#[path = "support/options.rs"]
mod options;

use std::convert::Infallible;
use std::fmt::Display;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use clap::Parser;
use http::HeaderValue;
use http::header::CONTENT_TYPE;
use http_body_util::Full;
use prefork_server::{
    Address, Buffer, Handle, Prefork, Request, Response, Stop, reply, service_fn,
};

use self::options::{Common, Extent};

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
    let mut server = Prefork::bind("127.0.0.1:0").in_process();
    let handle = server.handle().expect("a socket pair");
    let clients = thread::spawn(move || {
        let address = address(&handle);
        print("case", "allocations", "bytes");
        for case in CASES {
            count(case, address, requests);
        }
        count_at_rest(address);
        handle.stop(Stop::Drain).expect("it runs");
    });
    server
        .serve(async |_worker| Ok(service_fn(answer)))
        .expect("a free port");
    clients.join().expect("the clients are answered");
}

fn address(handle: &Handle) -> SocketAddr {
    let addresses = handle.wait_serving().expect("it serves");
    let Some(Address::Tcp(address)) = addresses.first() else {
        panic!("TCP");
    };
    *address
}

async fn answer(request: Request) -> Result<Response<Full<Buffer>>, Infallible> {
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

const HELLO: &str = "GET / HTTP/1.1\r\nHost: bench\r\nAccept: */*\r\n\r\n";
const WRITTEN: &str = "GET /written HTTP/1.1\r\nHost: bench\r\nAccept: */*\r\n\r\n";

/// What it is called, the request, and how many are sent at once.
const CASES: [(&str, &str, usize); 3] = [
    ("kept alive, a static body", HELLO, 1),
    ("kept alive, a body written into a buffer", WRITTEN, 1),
    ("pipelined x16, a static body", HELLO, 16),
];

fn print(case: &str, allocations: impl Display, bytes: impl Display) {
    println!("{case:<60} {allocations:>12} {bytes:>14}");
}

fn count((name, request, at_once): (&str, &str, usize), address: SocketAddr, requests: usize) {
    let mut client = Client::connect(address);
    let batch = request.repeat(at_once);
    // What grows at first: buffers, header maps, the tables of the runtime.
    let answer = client.measure(batch.as_bytes());
    for _ in 0..1000 {
        client.ask(batch.as_bytes(), answer);
    }
    let before = dhat::HeapStats::get();
    for _ in 0..requests / at_once {
        client.ask(batch.as_bytes(), answer);
    }
    let after = dhat::HeapStats::get();
    print(
        &format!("{requests} requests {name}"),
        after.total_blocks - before.total_blocks,
        after.total_bytes - before.total_bytes,
    );
}

/// Connections that were served once and are at rest.
fn count_at_rest(address: SocketAddr) {
    let mut clients = Vec::with_capacity(AT_REST);
    let answer = Client::connect(address).measure(HELLO.as_bytes());
    let before = when_at_rest();
    for _ in 0..AT_REST {
        let mut client = Client::connect(address);
        client.ask(HELLO.as_bytes(), answer);
        clients.push(client);
    }
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

struct Client {
    stream: TcpStream,
    buffer: [u8; 16 * 1024],
}

impl Client {
    fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("the server accepts");
        stream.set_nodelay(true).expect("a TCP socket");
        Self {
            stream,
            buffer: [0; 16 * 1024],
        }
    }

    /// Asks once, and says how long the response is.
    fn measure(&mut self, request: &[u8]) -> usize {
        self.stream.write_all(request).expect("the server reads");
        let wait = Duration::from_millis(200);
        self.stream.set_read_timeout(Some(wait)).expect("not zero");
        let mut len = 0;
        // The response is whole when nothing more comes.
        while let Ok(more @ 1..) = self.stream.read(&mut self.buffer[len..]) {
            len += more;
        }
        self.stream.set_read_timeout(None).expect("none is fine");
        assert!(self.buffer.starts_with(b"HTTP/1.1 200 OK\r\n"));
        len
    }

    fn ask(&mut self, request: &[u8], answer: usize) {
        self.stream.write_all(request).expect("the server reads");
        self.stream
            .read_exact(&mut self.buffer[..answer])
            .expect("a response as long as the first");
    }
}
