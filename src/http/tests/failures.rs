//! Handlers and bodies that fail: a failure affects its own request only.

use futures_util::stream;
use http::HeaderValue;
use http_body::Frame;
use http_body_util::StreamBody;

use super::protocol::{UPGRADE, switching};
use super::*;
use crate::stats::Count;

const FAILED: &str = "HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\n\r\n";

/// As [`hello`], but fails for `/fail` and panics for `/panic`.
async fn unsteady(request: Request) -> HandlerResult {
    match request.uri().path() {
        "/fail" => Err("on request".into()),
        "/panic" => panic!("on request"),
        _ => hello(request).await,
    }
}

#[test]
fn a_request_whose_handler_fails_or_panics_gets_a_500() {
    run_each_kind(async || {
        let host = Host::start(options(), unsteady).await;
        let mut client = host.connect().await;
        for path in ["/fail", "/panic"] {
            client
                .send(format!("GET {path} HTTP/1.1\r\nhost: test\r\n\r\n"))
                .await;
            client.expect(FAILED).await;
            client.hello().await;
        }
        assert_eq!(host.server.count(Count::Panics), 1);
        drop(client);
        host.emptied().await;
    });
}

/// hyper serves the connection from the second request on.
#[test]
fn a_101_that_the_client_has_not_offered_and_any_other_1xx_is_a_500() {
    run_each_kind(async || {
        let app = async |request: Request| match request.uri().path() {
            "/101" => switching(),
            "/103" => Ok(with_status(text(""), 103)),
            _ => hello(request).await,
        };
        let host = Host::start(options(), app).await;
        let mut client = host.connect().await;
        let request = "GET /101 HTTP/1.1\r\nhost: test\r\n\r\n";
        let hints = "GET /103 HTTP/1.1\r\nhost: test\r\n\r\n";
        for request in [request, hints] {
            client.send(request).await;
            client.expect(FAILED).await;
        }
        // What the client offers with one request is not offered with the next.
        client.send(UPGRADE).await;
        client.expect(HELLO_RESPONSE).await;
        for request in [request, hints] {
            client.send(request).await;
            client.expect(FAILED).await;
        }
        drop(client);
        host.emptied().await;
        let totals = host.server.registry.counters.stats().totals();
        assert_eq!(totals.responses, [0, 1, 0, 0, 4]);
    });
}

#[test]
fn a_request_whose_service_panics_when_called_gets_a_500() {
    run_each_kind(async || {
        let app = |request: Request| {
            assert_ne!(request.uri().path(), "/panic");
            hello(request)
        };
        let host = Host::start(options(), app).await;
        let mut client = host.connect().await;
        client
            .send("GET /panic HTTP/1.1\r\nhost: test\r\n\r\n")
            .await;
        client.expect(FAILED).await;
        client.hello().await;
        assert_eq!(host.server.count(Count::Panics), 1);
    });
}

#[test]
fn a_panic_with_an_unread_body_ends_the_connection() {
    run_each_kind(async || {
        let host = Host::start(options(), unsteady).await;
        let mut client = host.connect().await;
        client
            .send("POST /panic HTTP/1.1\r\nhost: test\r\ncontent-length: 5\r\n\r\n")
            .await;
        let response = "HTTP/1.1 500 Internal Server Error\r\n\
                      connection: close\r\ncontent-length: 0\r\n\r\n";
        client.expect(response).await;
        client.expect_end().await;
    });
}

/// The first bytes of the body come with the head, so that hyper has begun to read it.
#[test]
fn a_response_that_leaves_a_long_body_unread_says_that_the_connection_ends() {
    run_each_kind(async || {
        let host = Host::start(options(), hello).await;
        let mut client = host.connect().await;
        let body = "x".repeat(LONG);
        let length = 10 * LONG;
        let head = format!("POST / HTTP/1.1\r\nhost: test\r\ncontent-length: {length}\r\n\r\n");
        client.send(head + &body).await;
        client.expect(HELLO_LAST_RESPONSE).await;
        client.send(body.repeat(9)).await;
        client.expect_end().await;
    });
}

#[test]
fn a_short_body_that_was_not_read_does_not_end_the_connection() {
    run_each_kind(async || {
        let host = Host::start(options(), hello).await;
        let mut client = host.connect().await;
        let head = "POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 1000\r\n\r\n";
        let request = [head.as_bytes(), &[b'x'; 1000]].concat();
        client.send([&request[..], HELLO].concat()).await;
        client.expect(HELLO_RESPONSE).await;
        client.expect(HELLO_RESPONSE).await;
    });
}

#[test]
fn a_body_with_invalid_chunks_gets_a_400() {
    run_each_kind(async || {
        let host = Host::start(options(), echo).await;
        let mut client = host.connect().await;
        let head = "POST / HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n";
        client.send(format!("{head}not hexadecimal\r\n")).await;
        let response = "HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
        client.expect(response).await;
        client.expect_end().await;
    });
}

/// Responds with a body of one chunk and then an error (`/error`) or a panic (`/panic`).
async fn half_a_body(request: Request) -> HandlerResult {
    let panics = match request.uri().path() {
        "/error" => false,
        "/panic" => true,
        _ => return hello(request).await,
    };
    let mut frames = 0;
    let frames = std::iter::from_fn(move || {
        frames += 1;
        match frames {
            1 => Some(Ok(Frame::data(Bytes::from_static(b"half")))),
            _ if panics => panic!("on request"),
            _ => Some(Err(BoxError::from("on request"))),
        }
    });
    Ok(Response::new(
        StreamBody::new(stream::iter(frames)).boxed_unsync(),
    ))
}

/// Bytes whose drop panics.
struct PanicOnDrop(&'static [u8]);

impl AsRef<[u8]> for PanicOnDrop {
    fn as_ref(&self) -> &[u8] {
        self.0
    }
}

impl Drop for PanicOnDrop {
    fn drop(&mut self) {
        panic!("on request");
    }
}

#[test]
fn a_body_whose_drop_panics_ends_the_connection_after_its_response() {
    run_each_kind(async || {
        let app = async |request: Request| {
            if request.uri().path() != "/panic" {
                return hello(request).await;
            }
            let held = PanicOnDrop(b"");
            let body = Full::from("whole").map_err(move |never| {
                let _held = &held;
                match never {}
            });
            Ok(Response::new(body.boxed_unsync()))
        };
        let host = Host::start(options(), app).await;
        let mut client = host.connect().await;
        let fatal = b"GET /panic HTTP/1.1\r\nhost: test\r\n\r\n";
        client.send([HELLO, fatal, HELLO].concat()).await;
        let whole = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nwhole";
        client.expect(&[HELLO_RESPONSE, whole].concat()).await;
        client.expect_end().await;
        host.emptied().await;
        let totals = host.server.registry.counters.stats().totals();
        assert_eq!(totals.responses, [0, 2, 0, 0, 0]);
        assert_eq!(host.server.count(Count::Panics), 1);
    });
}

#[test]
fn no_second_response_follows_one_that_was_begun() {
    run_each_kind(async || {
        let app = async |_| {
            let value = Bytes::from_owner(PanicOnDrop(b"value"));
            let mut response = text("body");
            let value = HeaderValue::from_maybe_shared(value).expect("a value");
            response.headers_mut().insert("x-panic", value);
            Ok(response)
        };
        let host = Host::start(options(), app).await;
        let mut client = host.connect().await;
        client.send("GET / HTTP/1.1\r\nhost: test\r\n\r\n").await;
        assert_eq!(client.rest().await, "");
        assert_eq!(host.server.count(Count::Panics), 1);
    });
}

#[test]
fn a_response_whose_body_fails_has_no_last_chunk() {
    run_each_kind(async || {
        let host = Host::start(options(), half_a_body).await;
        for path in ["/error", "/panic"] {
            let mut client = host.connect().await;
            client
                .send(format!("GET {path} HTTP/1.1\r\nhost: test\r\n\r\n"))
                .await;
            let response = client.rest().await;
            assert!(!response.contains("0\r\n\r\n"), "no last chunk: {response}");
        }
        host.emptied().await;
        assert_eq!(host.server.count(Count::BrokenResponses), 1);
        assert_eq!(host.server.count(Count::Panics), 1);
    });
}

/// A framework responds with 400 or 500 to a body that it cannot read, whatever the cause.
#[test]
fn a_400_or_500_for_a_body_that_failed_gets_the_status_of_the_failure() {
    run(async {
        let app = async |request: Request| {
            let status = request.uri().path()[1..].parse().expect("a status");
            let response = match request.into_body().collect().await {
                Ok(_) => text("a body"),
                Err(_) => text("no body"),
            };
            Ok(with_status(response, status))
        };
        let http = options().max_body_size(4).body_timeout(SHORT);
        let host = Host::start(http, app).await;
        let chunked = "transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
        for (named, rest, status) in [
            (400, chunked, "413 Payload Too Large"),
            (500, chunked, "413 Payload Too Large"),
            (503, chunked, "503 Service Unavailable"),
            (400, "content-length: 4\r\n\r\nhal", "408 Request Timeout"),
            (500, "content-length: 4\r\n\r\nhal", "408 Request Timeout"),
            (
                500,
                "transfer-encoding: chunked\r\n\r\nx\r\n",
                "400 Bad Request",
            ),
        ] {
            let mut client = host.connect().await;
            client
                .send(format!("POST /{named} HTTP/1.1\r\nhost: test\r\n{rest}"))
                .await;
            let response = client.rest().await;
            assert!(
                response.starts_with(&format!("HTTP/1.1 {status}\r\n")),
                "{response}"
            );
            assert!(response.ends_with("\r\n\r\nno body"), "{response}");
        }
        let mut client = host.connect().await;
        let whole = "content-length: 4\r\nconnection: close\r\n\r\nhalf";
        client
            .send(format!("POST /500 HTTP/1.1\r\nhost: test\r\n{whole}"))
            .await;
        let response = client.rest().await;
        assert!(response.starts_with("HTTP/1.1 500 "), "{response}");
    });
}

fn with_status<B>(mut response: Response<B>, status: u16) -> Response<B> {
    *response.status_mut() = http::StatusCode::from_u16(status).expect("a status");
    response
}
