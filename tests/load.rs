//! The benches' load driver against servers that misbehave: it must count each failure.

#![allow(
    clippy::unwrap_used,
    reason = "a test is over when something goes wrong"
)]

#[path = "../benches/support/mod.rs"]
mod support;
#[path = "load/tls.rs"]
mod tls;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use self::support::load::{Ask, Driver, Extent, Failure, Outcome, Plan};

const HELLO: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
const STALL: Duration = Duration::from_millis(400);

/// A server that calls `serve` on each connection, in a thread of its own. No thread is joined:
/// each ends with its connection.
fn server(serve: impl Fn(TcpStream) + Clone + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            let serve = serve.clone();
            thread::spawn(move || serve(stream));
        }
    });
    address
}

/// Reads one head; `None` at the end of the connection.
fn request(stream: &mut impl Read) -> Option<String> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        let count = stream.read(&mut byte).unwrap_or(0);
        head.push(*byte[..count].first()?);
    }
    Some(String::from_utf8(head).unwrap())
}

/// Sends the same bytes for each request.
fn repeat(mut stream: impl Read + Write, response: &[u8]) {
    while request(&mut stream).is_some() {
        if stream.write_all(response).is_err() {
            return;
        }
    }
}

fn hello() -> Ask {
    Ask::get("/").expecting("hello")
}

/// Ten requests of two clients, a short timeout.
fn ten(address: SocketAddr, ask: Ask) -> Outcome {
    let mut plan = Plan::new(2, ask);
    plan.timeout = Duration::from_millis(200);
    let mut driver = Driver::new(address, plan);
    driver.closed(Extent::Requests(10)).clone()
}

fn assert_all_fail(outcome: &Outcome, failure: Failure) {
    let counted = outcome.failures.count(failure);
    assert_eq!((outcome.answered, counted), (0, 10), "{}", outcome.failures);
    assert_eq!(outcome.failures.total(), 10, "{}", outcome.failures);
}

#[test]
fn right_responses_are_counted_and_timed() {
    let address = server(|stream| repeat(stream, HELLO));
    let outcome = ten(address, hello());
    assert_eq!((outcome.answered, outcome.failures.total()), (10, 0));
    assert_eq!(outcome.response_bytes, HELLO.len());
    assert_eq!(outcome.latencies.len(), 10);
    assert!(outcome.latency(1.0) <= outcome.elapsed.mul_f64(1.01));
}

#[test]
fn pipelined_responses_are_told_apart() {
    let address = server(|stream| repeat(stream, HELLO));
    let mut plan = Plan::new(2, hello());
    plan.pipeline = 16;
    let mut driver = Driver::new(address, plan);
    let outcome = driver.closed(Extent::Requests(320));
    assert_eq!((outcome.answered, outcome.failures.total()), (320, 0));
}

#[test]
fn a_response_in_small_parts_is_one_response() {
    let address = server(|mut stream| {
        stream.set_nodelay(true).unwrap();
        while request(&mut stream).is_some() {
            for part in HELLO.chunks(3) {
                stream.write_all(part).unwrap();
                thread::yield_now();
            }
        }
    });
    let outcome = ten(address, hello());
    assert_eq!((outcome.answered, outcome.failures.total()), (10, 0));
}

#[test]
fn a_large_body_is_compared_to_its_last_byte() {
    const SIZE: usize = 1 << 20;
    fn response(last: u8) -> Vec<u8> {
        let mut response =
            format!("HTTP/1.1 200 OK\r\ncontent-length: {SIZE}\r\n\r\n").into_bytes();
        response.resize(response.len() + SIZE, b'x');
        *response.last_mut().unwrap() = last;
        response
    }
    let right = server(|stream| repeat(stream, &response(b'x')));
    let ask = Ask::get("/").expecting(vec![b'x'; SIZE]);
    let outcome = ten(right, ask.clone());
    assert_eq!((outcome.answered, outcome.failures.total()), (10, 0));
    let wrong = server(|stream| repeat(stream, &response(b'y')));
    assert_all_fail(&ten(wrong, ask), Failure::Body);
}

#[test]
fn closing_waits_for_the_end_of_each_connection() {
    let address = server(|mut stream| {
        let head = request(&mut stream).unwrap();
        assert!(head.ends_with("\r\nConnection: close\r\n\r\n"), "{head}");
        stream.write_all(HELLO).unwrap();
    });
    let outcome = ten(address, hello().closing());
    assert_eq!((outcome.answered, outcome.failures.total()), (10, 0));
    let kept = server(|stream| repeat(stream, HELLO));
    let outcome = ten(kept, hello().closing());
    assert_eq!(outcome.answered, 0, "the server closed no connection");
    assert_eq!(outcome.failures.count(Failure::Silent), 2);
}

#[test]
fn a_client_connects_again_after_connection_close() {
    let address = server(|mut stream| {
        request(&mut stream);
        let response = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello";
        stream.write_all(response).unwrap();
    });
    let outcome = ten(address, hello());
    assert_eq!((outcome.answered, outcome.failures.total()), (10, 0));
}

#[test]
fn wrong_responses_are_counted_by_kind() {
    let cases: [(&'static [u8], Failure); 4] = [
        (
            b"HTTP/1.1 500 No\r\nContent-Length: 5\r\n\r\nhello",
            Failure::Status,
        ),
        (b"HTTP/1.1 200 OK\r\n\r\nhello", Failure::Head),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nhell",
            Failure::Length,
        ),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhellO",
            Failure::Body,
        ),
    ];
    for (response, failure) in cases {
        assert_all_fail(
            &ten(server(move |stream| repeat(stream, response)), hello()),
            failure,
        );
    }
}

#[test]
fn bytes_after_the_response_are_a_failure() {
    let more = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello!";
    let outcome = ten(server(|stream| repeat(stream, more)), hello());
    assert_eq!(outcome.failures.count(Failure::Length), 10);
}

#[test]
fn a_cut_response_is_a_failure() {
    let address = server(|mut stream| {
        request(&mut stream);
        stream.write_all(&HELLO[..HELLO.len() - 1]).unwrap();
    });
    assert_all_fail(&ten(address, hello()), Failure::Eof);
}

#[test]
fn refused_connections_end_the_run_at_its_budget() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let mut plan = Plan::new(2, hello());
    plan.budget = 50;
    let mut driver = Driver::new(address, plan);
    let outcome = driver.closed(Extent::Requests(u64::MAX));
    assert!(outcome.is_over_budget);
    assert_eq!(outcome.failures.count(Failure::Connect), 51);
}

#[test]
fn a_silent_server_ends_the_run_and_its_requests_count() {
    let address = server(|mut stream| while request(&mut stream).is_some() {});
    let outcome = ten(address, hello());
    assert_eq!(
        outcome.failures.count(Failure::Silent),
        2,
        "one for each client"
    );
    let mut plan = Plan::new(2, hello());
    plan.timeout = Duration::from_millis(100);
    let time = Duration::from_millis(100);
    let mut driver = Driver::new(address, plan);
    let outcome = driver.open(1000.0, time);
    assert_eq!(
        outcome.failures.count(Failure::Silent),
        100,
        "all that should have been sent"
    );
    assert_eq!(outcome.latencies.len(), 100);
}

#[test]
fn requests_are_mixed_by_their_share() {
    let address = server(|mut stream| {
        while let Some(head) = request(&mut stream) {
            let seldom = head.starts_with("GET /seldom ");
            let body = if seldom { "rare!" } else { "hello" };
            let response = format!("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n{body}");
            stream.write_all(response.as_bytes()).unwrap();
        }
    });
    // The seldom response has another body than expected, so each of them counts as a failure.
    let seldom = Ask::get("/seldom").expecting("hello");
    let mut plan = Plan::new(2, hello());
    plan.seldom = Some((100, seldom));
    let mut driver = Driver::new(address, plan);
    let outcome = driver.closed(Extent::Requests(2000));
    let seldom = outcome.failures.count(Failure::Body);
    assert!((150..250).contains(&seldom), "{seldom} of 2000 at 10 %");
    assert_eq!(outcome.answered + seldom, 2000);
}

#[test]
fn each_client_gets_its_own_response() {
    let address = server(|mut stream| {
        let port = stream.peer_addr().unwrap().port().to_string();
        while request(&mut stream).is_some() {
            let response = format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{port}",
                port.len()
            );
            stream.write_all(response.as_bytes()).unwrap();
        }
    });
    let mut driver = Driver::new(address, Plan::new(3, Ask::get("/")));
    let mut heard = Vec::new();
    driver.ask_each(&Ask::get("/"), |id, body| heard.push((id, body.to_vec())));
    let first = heard.clone();
    heard.clear();
    driver.ask_each(&Ask::get("/"), |id, body| heard.push((id, body.to_vec())));
    assert_eq!(first, heard, "connections are kept");
    assert_eq!(first.len(), 3);
    assert!(first[0].1 != first[1].1 && first[1].1 != first[2].1);
}

/// One connection stalls. A closed loop sees one slow response. The open loop also counts the
/// requests that it should have sent meanwhile.
#[test]
fn the_open_loop_omits_nothing_while_a_server_stalls() {
    let address = server(|mut stream| {
        let born = Instant::now();
        let mut stalled = false;
        while request(&mut stream).is_some() {
            if !stalled && born.elapsed() > Duration::from_millis(100) {
                stalled = true;
                let end = Instant::now() + STALL;
                while Instant::now() < end {
                    thread::park_timeout(end - Instant::now());
                }
            }
            stream.write_all(HELLO).unwrap();
        }
    });
    let second = Duration::from_secs(1);
    let mut driver = Driver::new(address, Plan::new(1, hello()));
    let open = driver.open(500.0, second);
    assert_eq!((open.answered, open.failures.total()), (500, 0));
    let slow = open.latencies.count_between(50_000_000, u64::MAX);
    assert!(slow >= 150, "{slow} of 500 waited for 50 ms or longer");
    assert!(open.latency(1.0) >= STALL - Duration::from_millis(5));

    let mut driver = Driver::new(address, Plan::new(1, hello()));
    let closed = driver.closed(Extent::For(second));
    assert!(closed.latencies.count_between(50_000_000, u64::MAX) < 20);
}
