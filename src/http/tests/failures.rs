//! Handlers that fail, bodies that fail, clients that leave: each hurts its own request only.

use http::HeaderValue;
use http_body::Frame;
use http_body_util::StreamBody;

use super::*;

const FAILED: &str = "HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\n\r\n";

/// As [`hello`], but what `/fail` and `/panic` ask for happens.
async fn unsteady(request: Request) -> Answer {
    match request.uri().path() {
        "/fail" => Err("on request".into()),
        "/panic" => panic!("on request"),
        _ => hello(request).await,
    }
}

#[test]
fn a_handler_that_fails_or_panics_costs_its_request_a_500() {
    run(async {
        let host = Host::start(options(), unsteady).await;
        let mut client = host.connect().await;
        for path in ["/fail", "/panic"] {
            client
                .send(format!("GET {path} HTTP/1.1\r\nhost: test\r\n\r\n"))
                .await;
            client.expect(FAILED).await;
            client.send(HELLO).await;
            client.expect(HELLO_ANSWER).await;
        }
        assert_eq!(host.server.counts().panics, 1);
        drop(client);
        host.emptied().await;
    });
}

#[test]
fn a_service_that_panics_when_called_is_no_worse() {
    run(async {
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
        client.send(HELLO).await;
        client.expect(HELLO_ANSWER).await;
        assert_eq!(host.server.counts().panics, 1);
    });
}

#[test]
fn a_panic_that_leaves_the_body_unread_closes() {
    run(async {
        let host = Host::start(options(), unsteady).await;
        let mut client = host.connect().await;
        client
            .send("POST /panic HTTP/1.1\r\nhost: test\r\ncontent-length: 5\r\n\r\n")
            .await;
        let answer = "HTTP/1.1 500 Internal Server Error\r\n\
                      connection: close\r\ncontent-length: 0\r\n\r\n";
        client.expect(answer).await;
        client.expect_end().await;
    });
}

#[test]
fn chunks_that_are_none_are_400() {
    run(async {
        let host = Host::start(options(), echo).await;
        let mut client = host.connect().await;
        let head = "POST / HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n";
        client.send(format!("{head}not hexadecimal\r\n")).await;
        let answer = "HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
        client.expect(answer).await;
        client.expect_end().await;
    });
}

/// A body of one chunk and then what `/error` or `/panic` asks for.
async fn half_a_body(request: Request) -> Answer {
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
        StreamBody::new(Iterated(frames)).boxed_unsync(),
    ))
}

/// What does not end well.
struct Cursed(&'static [u8]);

impl AsRef<[u8]> for Cursed {
    fn as_ref(&self) -> &[u8] {
        self.0
    }
}

impl Drop for Cursed {
    fn drop(&mut self) {
        panic!("on request");
    }
}

#[test]
fn a_body_that_panics_when_it_is_dropped_ends_the_connection_behind_its_answer() {
    run(async {
        let cursed = async |request: Request| {
            if request.uri().path() != "/cursed" {
                return hello(request).await;
            }
            let held = Cursed(b"");
            let body = Full::from("whole").map_err(move |never| {
                let _held = &held;
                match never {}
            });
            Ok(Response::new(body.boxed_unsync()))
        };
        let host = Host::start(options(), cursed).await;
        let mut client = host.connect().await;
        let fatal = b"GET /cursed HTTP/1.1\r\nhost: test\r\n\r\n";
        client.send([HELLO, fatal, HELLO].concat()).await;
        let whole = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nwhole";
        client.expect(&[HELLO_ANSWER, whole].concat()).await;
        client.expect_end().await;
        host.emptied().await;
        let totals = host.server.registry.counters.stats().totals();
        assert_eq!(totals.responses, [0, 2, 0, 0, 0]);
        assert_eq!(host.server.counts().panics, 1);
    });
}

#[test]
fn no_answer_follows_one_that_was_begun() {
    run(async {
        let cursed = async |_| {
            let value = Bytes::from_owner(Cursed(b"value"));
            let mut response = text("body");
            let value = HeaderValue::from_maybe_shared(value).expect("a value");
            response.headers_mut().insert("x-cursed", value);
            Ok(response)
        };
        let host = Host::start(options(), cursed).await;
        let mut client = host.connect().await;
        client.send("GET / HTTP/1.1\r\nhost: test\r\n\r\n").await;
        assert_eq!(client.rest().await, "");
        assert_eq!(host.server.counts().panics, 1);
    });
}

/// An iterator as a stream.
struct Iterated<I>(I);

impl<I: Iterator + Unpin> futures_core::Stream for Iterated<I> {
    type Item = I::Item;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<I::Item>> {
        Poll::Ready(self.0.next())
    }
}

#[test]
fn a_response_whose_body_fails_midway_is_not_ended_cleanly() {
    run(async {
        let host = Host::start(options(), half_a_body).await;
        for path in ["/error", "/panic"] {
            let mut client = host.connect().await;
            client
                .send(format!("GET {path} HTTP/1.1\r\nhost: test\r\n\r\n"))
                .await;
            let answer = client.rest().await;
            assert!(!answer.contains("0\r\n\r\n"), "no last chunk: {answer}");
        }
        host.emptied().await;
        let counts = host.server.counts();
        assert_eq!((counts.broken_responses, counts.panics), (1, 1));
    });
}
