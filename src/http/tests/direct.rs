//! Plain requests are served without hyper, and the client sees no difference.

use std::cell::Cell;

use http::{HeaderValue, StatusCode};

use super::pieces::Pieces;
use super::*;
use crate::stats::Count;

/// Makes one of many responses. The path says which.
async fn anything(request: Request) -> HandlerResult {
    let pieces =
        |length, pieces: &[&'static str]| Response::new(Pieces::new(length, pieces).boxed_unsync());
    let with = |name: &'static str, value| {
        let mut response = text("body");
        response
            .headers_mut()
            .append(name, HeaderValue::from_static(value));
        response
    };
    let status = |code| {
        let mut response = text("");
        *response.status_mut() = StatusCode::from_u16(code).expect("a status");
        response
    };
    let path = request.uri().path().trim_start_matches('/');
    Ok(match path {
        "length" => with("content-length", "4"),
        "date" => with("date", "Sun, 06 Nov 1994 08:49:37 GMT"),
        "close" => with("connection", "close"),
        "Close" => with("connection", "Close"),
        "keep" => with("connection", "keep-alive"),
        "coding" => with("transfer-encoding", "chunked"),
        "trailer" => with("trailer", "x"),
        "upgrade" => with("upgrade", "websocket"),
        "twice" => {
            let mut response = with("x-b", "1");
            response
                .headers_mut()
                .append("x-a", HeaderValue::from_static("2"));
            response
                .headers_mut()
                .append("x-b", HeaderValue::from_static("3"));
            response
        }
        "reason" => {
            let reason = hyper::ext::ReasonPhrase::from_static(b"Why not");
            let mut response = text("body");
            response.extensions_mut().insert(reason);
            response
        }
        "old" => {
            let mut response = text("body");
            *response.version_mut() = http::Version::HTTP_10;
            response
        }
        "new" => {
            let mut response = text("body");
            *response.version_mut() = http::Version::HTTP_3;
            response
        }
        "panic" => panic!("on request"),
        "error" => return Err("on request".into()),
        "large" => text("x".repeat(LONG)),
        "streamed" => pieces(None, &["one ", "two"]),
        "pieces" => pieces(Some(7), &["one ", "two"]),
        "longer" => pieces(Some(5), &["one ", "two"]),
        "shorter" => pieces(Some(9), &["one ", "two"]),
        "fails" => pieces(Some(7), &["one ", "fail"]),
        "nothing" => pieces(Some(0), &[]),
        "long" => pieces(Some(60_003), &["one", LONG_PIECE, LONG_PIECE, LONG_PIECE]),
        "long-cut" => pieces(Some(30_000), &[LONG_PIECE, LONG_PIECE]),
        "untold" => pieces(None, &[]),
        code => status(code.parse().expect("one of the above, or a status")),
    })
}

/// A piece that is sent without a copy.
const LONG_PIECE: &str = match str::from_utf8(&[b'x'; LONG]) {
    Ok(piece) => piece,
    Err(_) => panic!("it is ASCII"),
};

const PATHS: &[&str] = &[
    "length", "date", "close", "Close", "keep", "coding", "trailer", "upgrade", "twice", "reason",
    "panic", "error", "large", "streamed", "pieces", "longer", "fails", "nothing", "old", "new",
    "200", "long", "long-cut", "untold", "201", "204", "205", "304", "404", "500", "599", "600",
    "999", "101",
];

/// Has hyper serve the rest of the connection too, also plain requests.
const NOT_PLAIN: &str =
    "POST /200 HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n";

/// All bytes that the server sends on a connection with these requests.
async fn responses(http: Http, requests: &str) -> String {
    let host = Host::start(http, anything).await;
    let mut client = host.connect().await;
    client.send(requests).await;
    client.stream.shutdown().await.expect("it is connected");
    client.rest().await
}

#[test]
fn a_plain_response_has_the_same_bytes_as_hypers() {
    run(async {
        let methods = [("GET", ""), ("HEAD", ""), ("POST", "content-length: 3\r\n")];
        for (path, (method, length)) in PATHS.iter().flat_map(|path| methods.map(|it| (path, it))) {
            let body = if length.is_empty() { "" } else { "abc" };
            if method == "POST" && ["panic", "error", "101"].contains(path) {
                // Behind hyper the connection ends, as if the body had not come.
                continue;
            }
            for field in ["", "connection: close\r\n", "connection: keep-alive\r\n"] {
                let ask = |path| {
                    format!("{method} /{path} HTTP/1.1\r\nhost: test\r\n{length}{field}\r\n{body}")
                };
                let requests = [ask("201"), ask(path), ask("404"), ask(path)].concat();
                let direct = responses(options(), &requests).await;
                let by_hyper = responses(options(), &format!("{NOT_PLAIN}{requests}")).await;
                let first = responses(options(), NOT_PLAIN).await;
                assert_eq!(by_hyper, first + &direct, "{method} {path} {field}");
                assert!(direct.starts_with("HTTP/1.1 201 Created\r\n"));
            }
        }
    });
}

/// No part of the response is sent, because its body fails before any byte is sent.
#[test]
fn a_response_whose_body_fails_ends_the_connection() {
    run(async {
        for path in ["shorter", "fails"] {
            let host = Host::start(options(), anything).await;
            let mut client = host.connect().await;
            let get = |path| format!("GET /{path} HTTP/1.1\r\nhost: test\r\n\r\n");
            client
                .send([get("201"), get(path), get("201")].concat())
                .await;
            let before = "HTTP/1.1 201 Created\r\ncontent-length: 0\r\n\r\n";
            assert_eq!(client.rest().await, before, "{path}");
            host.emptied().await;
            assert_eq!(host.server.count(Count::BrokenResponses), 1, "{path}");
        }
    });
}

#[test]
fn a_piece_of_a_body_does_not_wait_for_the_next() {
    run(async {
        let gate = Arc::new(Notify::new());
        let go = Arc::clone(&gate);
        let app = move |_| {
            let body = Pieces::gated(Some(7), &["one ", "", "two"], Arc::clone(&gate));
            async { Ok(Response::new(body.boxed_unsync())) }
        };
        let host = Host::start(options(), app).await;
        let mut client = host.connect().await;
        client.send([HELLO, HELLO].concat()).await;
        let first = "HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\none ";
        client.expect(first).await;
        go.notify_one();
        client.expect("two").await;
        client.expect(first).await;
    });
}

/// The handler has already responded when hyper gets the request.
#[test]
fn a_request_whose_response_is_not_plain_calls_the_handler_once() {
    run(async {
        let calls = Rc::new(Cell::new(0));
        let counted = Rc::clone(&calls);
        let app = move |request| {
            counted.set(counted.get() + 1);
            anything(request)
        };
        let host = Host::start(options(), app).await;
        let mut client = host.connect().await;
        let get = "GET /streamed HTTP/1.1\r\nhost: test\r\n\r\n";
        client.send(get.repeat(3)).await;
        let response = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n\
                      4\r\none \r\n3\r\ntwo\r\n0\r\n\r\n";
        client.expect(&response.repeat(3)).await;
        client.send(get).await;
        client.expect(response).await;
        assert_eq!((calls.get(), host.server.count(Count::Requests)), (4, 4));
        let totals = host.server.registry.counters.stats().totals();
        assert_eq!(totals.responses, [0, 4, 0, 0, 0]);
        assert_eq!(totals.bytes_in, 4 * get.len() as u64);
    });
}

/// Its head is still in the input when hyper gets it.
#[test]
fn a_request_with_a_cached_head_may_go_to_hyper() {
    run(async {
        let calls = Rc::new(Cell::new(0));
        let counted = Rc::clone(&calls);
        let app = move |_| {
            counted.set(counted.get() + 1);
            let streamed = counted.get() == 3;
            async move {
                Ok(match streamed {
                    true => Response::new(Pieces::new(None, &["one"]).boxed_unsync()),
                    false => text("body"),
                })
            }
        };
        let host = Host::start(options(), app).await;
        let mut client = host.connect().await;
        let get = "GET /polled HTTP/1.1\r\nhost: test\r\n\r\n";
        client.send(get.repeat(4)).await;
        let plain = "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nbody";
        let streamed = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n\
                        3\r\none\r\n0\r\n\r\n";
        client
            .expect(&[plain, plain, streamed, plain].concat())
            .await;
        assert_eq!((calls.get(), host.server.count(Count::Requests)), (4, 4));
        let totals = host.server.registry.counters.stats().totals();
        assert_eq!(totals.responses, [0, 4, 0, 0, 0]);
        assert_eq!(totals.bytes_in, 4 * get.len() as u64);
    });
}

/// A body whose `size_hint` panics.
struct BadHint;

impl http_body::Body for BadHint {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, BoxError>>> {
        Poll::Ready(None)
    }

    fn size_hint(&self) -> http_body::SizeHint {
        panic!("on request");
    }
}

#[test]
fn a_response_whose_size_hint_panics_is_counted_once() {
    run(async {
        let bad_hint = async |_| Ok(Response::new(BadHint.boxed_unsync()));
        let host = Host::start(options(), bad_hint).await;
        let mut client = host.connect().await;
        client.send("GET / HTTP/1.1\r\nhost: test\r\n\r\n").await;
        let failed = "HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\n\r\n";
        client.expect(failed).await;
        let totals = host.server.registry.counters.stats().totals();
        assert_eq!(totals.responses, [0, 0, 0, 0, 1]);
        assert_eq!(host.server.count(Count::Panics), 1);
    });
}

#[test]
fn a_head_may_come_in_any_pieces() {
    run(async {
        let host = Host::start(options(), hello).await;
        for first in 1..HELLO.len() {
            for second in [first, HELLO.len() - 1] {
                let mut client = host.connect().await;
                // So that the next request comes behind a response.
                client.send([HELLO, &HELLO[..first]].concat()).await;
                client.expect(HELLO_RESPONSE).await;
                client.send(&HELLO[first..second.max(first)]).await;
                yield_now().await;
                client
                    .send([&HELLO[second.max(first)..], HELLO].concat())
                    .await;
                client.expect(&HELLO_RESPONSE.repeat(2)).await;
            }
        }
    });
}

#[test]
fn every_response_has_a_current_date() {
    run(async {
        let host = Host::start(Http::new(), hello).await;
        let mut client = host.connect().await;
        client.send([HELLO, HELLO].concat()).await;
        client.stream.shutdown().await.expect("it is connected");
        let received = client.rest().await;
        let mut responses = received.split_inclusive("hello");
        for _ in 0..2 {
            let response = responses.next().expect("a response");
            let (_, date) = response.split_once("\r\ndate: ").expect("a date");
            let (date, _) = date.split_once("\r\n\r\n").expect("it is last");
            let date = httpdate::parse_http_date(date).expect("a date");
            let age = std::time::SystemTime::now().duration_since(date);
            assert!(age.expect("it is past") < Duration::from_secs(15));
        }
    });
}

/// The handler has read the body as a whole. Then hyper reads the request again, because the
/// response has no length.
#[test]
fn a_streamed_response_to_a_long_body_does_not_end_the_connection() {
    run_each_kind(async || {
        let app = async |request: Request| {
            let body = request.into_body().collect().await?.to_bytes();
            assert_eq!(body.len(), LONG);
            Ok(Response::new(Pieces::new(None, &["read"]).boxed_unsync()))
        };
        let host = Host::start(options(), app).await;
        let mut client = host.connect().await;
        let head = format!("POST / HTTP/1.1\r\nhost: test\r\ncontent-length: {LONG}\r\n\r\n");
        for _ in 0..2 {
            client.send(head.clone() + &"x".repeat(LONG)).await;
            client
                .expect(
                    "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nread\r\n0\r\n\r\n",
                )
                .await;
        }
    });
}
