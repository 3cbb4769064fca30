//! Responses whose `Content-Length` is not the length of their body. hyper's debug builds panic at
//! some of them.

use futures_util::stream;
use http_body::{Frame, SizeHint};
use http_body_util::StreamBody;

use super::*;
use crate::stats::Count;

/// Responds with `hello` and the `Content-Length` that is the last part of the path.
///
/// | path begins with | body |
/// |---|---|
/// | `/whole` | of a known length |
/// | `/pieces` | of an unknown length, in two pieces |
/// | `/unchanged` | as `/pieces`, and the status is 304 |
/// | `/cached` | as `/whole`, and the status is 304 |
/// | `/nothing` | as `/whole`, and the status is 204 |
/// | `/coded` | as `/whole`, and the head names a transfer coding |
/// | `/lies` | says that its length is 20 |
/// | `/empty` | none |
pub(super) async fn app(request: Request) -> HandlerResult {
    let mut parts = request.uri().path()[1..].split('/');
    let (kind, length) = (parts.next(), parts.next());
    let mut response = match kind {
        Some("whole" | "cached" | "nothing" | "coded") => text("hello"),
        Some("pieces" | "unchanged") => {
            let pieces = ["hel", "lo"].map(|piece| Ok(Frame::data(Bytes::from(piece))));
            Response::new(StreamBody::new(stream::iter(pieces)).boxed_unsync())
        }
        Some("lies") => Response::new(Lies(text("hello").into_body()).boxed_unsync()),
        _ => text(""),
    };
    match kind {
        Some("unchanged" | "cached") => *response.status_mut() = http::StatusCode::NOT_MODIFIED,
        Some("nothing") => *response.status_mut() = http::StatusCode::NO_CONTENT,
        Some("coded") => {
            let coding = "chunked".parse().expect("a value");
            response.headers_mut().insert("transfer-encoding", coding);
        }
        _ => {}
    }
    if let Some(length) = length {
        let length = length.parse().expect("a value");
        response.headers_mut().insert("content-length", length);
    }
    Ok(response)
}

/// A body that says that it has 20 bytes.
struct Lies<B>(B);

impl<B: http_body::Body + Unpin> http_body::Body for Lies<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.0).poll_frame(cx)
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(20)
    }
}

/// The first is served directly, the other by hyper.
fn requests(path: &str) -> [String; 2] {
    ["GET / HTTP/1.1", "GET http://test/ HTTP/1.1"]
        .map(|line| line.replace("/ ", &format!("{path} ")) + "\r\nhost: test\r\n\r\n")
}

#[test]
fn a_response_whose_content_length_is_wrong_becomes_a_500() {
    run_each_kind(async || {
        let host = Host::start(options(), app).await;
        let mut client = host.connect().await;
        for path in [
            "/whole/4",
            "/whole/6",
            "/whole/+5",
            "/whole/x",
            "/pieces/x",
            "/pieces/+5",
        ] {
            for request in requests(path) {
                client.send(request).await;
                client
                    .expect("HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\n\r\n")
                    .await;
            }
        }
        client.send(&requests("/whole/5")[0]).await;
        client.expect(HELLO_RESPONSE).await;
        drop(client);
        host.emptied().await;
        let totals = host.server.registry.counters.stats().totals();
        assert_eq!(totals.responses, [0, 1, 0, 0, 12]);
        assert_eq!(host.server.count(Count::BrokenResponses), 0);
    });
}

#[test]
fn a_response_that_is_shorter_than_its_length_breaks_off() {
    run_each_kind(async || {
        let host = Host::start(options(), app).await;
        for request in requests("/pieces/20").into_iter().chain(requests("/lies")) {
            let mut client = host.connect().await;
            client.send(request).await;
            let response = client.rest().await;
            assert!(!response.contains("500"), "{response}");
        }
        host.emptied().await;
        assert_eq!(host.server.count(Count::BrokenResponses), 4);
    });
}

/// A file that grows while it is sent.
#[test]
fn a_response_ends_at_its_length() {
    run_each_kind(async || {
        let host = Host::start(options(), app).await;
        let mut client = host.connect().await;
        for request in requests("/pieces/4") {
            client.send(request).await;
            client
                .expect("HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nhell")
                .await;
        }
        assert_eq!(host.server.count(Count::BrokenResponses), 0);
    });
}

#[test]
fn a_response_to_head_may_name_the_length_of_another() {
    run_each_kind(async || {
        let host = Host::start(options(), app).await;
        let mut client = host.connect().await;
        let paths = ["/empty/20", "/whole/20", "/pieces/20"];
        for request in paths.into_iter().flat_map(requests) {
            client.send(request.replace("GET", "HEAD")).await;
            client
                .expect("HTTP/1.1 200 OK\r\ncontent-length: 20\r\n\r\n")
                .await;
        }
        assert_eq!(host.server.count(Count::BrokenResponses), 0);
    });
}

#[test]
fn a_length_that_is_no_number_is_not_sent_in_a_response_to_head() {
    run_each_kind(async || {
        let host = Host::start(options(), app).await;
        let mut client = host.connect().await;
        for path in ["/empty/x", "/empty/+5", "/whole/x"] {
            for request in requests(path) {
                client.send(request.replace("GET", "HEAD")).await;
                client
                    .expect("HTTP/1.1 500 Internal Server Error\r\n\r\n")
                    .await;
            }
        }
    });
}

/// The body may be a text for people, and not what a response with 200 would have.
#[test]
fn a_304_does_not_name_the_length_of_its_body() {
    run_each_kind(async || {
        let host = Host::start(options(), app).await;
        let mut client = host.connect().await;
        for request in requests("/cached") {
            for method in ["GET", "HEAD"] {
                client.send(request.replace("GET", method)).await;
                client.expect("HTTP/1.1 304 Not Modified\r\n\r\n").await;
            }
        }
    });
}

#[test]
fn a_response_without_a_length_has_none() {
    run_each_kind(async || {
        let host = Host::start(options(), app).await;
        let mut client = host.connect().await;
        let coded = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
        let nothing = "HTTP/1.1 204 No Content\r\n\r\n";
        for (path, response) in [("/coded/5", coded), ("/nothing/5", nothing)] {
            for request in requests(path) {
                client.send(request).await;
                client.expect(response).await;
            }
        }
        let tunnel = async |_request: Request| {
            let mut response = text("");
            let length = "0".parse().expect("a value");
            response.headers_mut().insert("content-length", length);
            Ok(response)
        };
        let host = Host::start(options(), tunnel).await;
        let mut client = host.connect().await;
        client
            .send("CONNECT a:1 HTTP/1.1\r\nhost: a:1\r\n\r\n")
            .await;
        client.expect("HTTP/1.1 200 OK\r\n\r\n").await;
    });
}
