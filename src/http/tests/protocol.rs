//! HTTP/1 requests and responses: hyper's protocol with the server's stream, service and bodies.

use http::header::CONNECTION;
use http::{HeaderValue, Method};
use hyper_util::rt::TokioIo;

use super::pieces::Pieces;
use super::*;
use crate::stats::Count;

#[test]
fn a_connection_is_kept_alive() {
    run(async {
        let host = Host::start(options(), hello).await;
        let mut client = host.connect().await;
        for _ in 0..3 {
            client.hello().await;
        }
        assert_eq!(host.server.connections(), 1);
        assert_eq!(host.server.count(Count::Requests), 3);
        assert_eq!(host.sockets.sends.load(Relaxed), 3, "one send per response");
        drop(client);
        host.emptied().await;
    });
}

#[test]
fn a_request_with_connection_close_ends_the_connection() {
    run(async {
        let host = Host::start(options(), hello).await;
        let mut client = host.connect().await;
        client
            .send("GET / HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n")
            .await;
        client.expect_last_hello().await;
        host.emptied().await;
    });
}

#[test]
fn keep_alive_can_be_disabled() {
    run(async {
        let host = Host::start(
            options().keep_alive(super::super::KeepAlive::Disabled),
            hello,
        )
        .await;
        let mut client = host.connect().await;
        client.last_hello().await;
    });
}

#[test]
fn a_request_may_come_in_any_two_pieces() {
    run(async {
        let request = b"POST /echo HTTP/1.1\r\nhost: test\r\ncontent-length: 4\r\n\r\nabcd";
        let host = Host::start(options(), echo).await;
        let mut client = host.connect().await;
        for split in 1..request.len() {
            client.send(&request[..split]).await;
            // Lets the server read the first piece alone.
            yield_now().await;
            yield_now().await;
            client.send(&request[split..]).await;
            client
                .expect("HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nabcd")
                .await;
        }
    });
}

#[test]
fn an_http_1_0_connection_ends_after_the_response_without_keep_alive() {
    run(async {
        let host = Host::start(options(), hello).await;
        let mut client = host.connect().await;
        client.send("GET / HTTP/1.0\r\n\r\n").await;
        client
            .expect("HTTP/1.0 200 OK\r\ncontent-length: 5\r\n\r\nhello")
            .await;
        client.expect_end().await;

        let mut client = host.connect().await;
        for _ in 0..2 {
            client
                .send("GET / HTTP/1.0\r\nconnection: keep-alive\r\n\r\n")
                .await;
            let response = "HTTP/1.0 200 OK\r\nconnection: keep-alive\r\n\
                          content-length: 5\r\n\r\nhello";
            client.expect(response).await;
        }
    });
}

/// Old clients look for `keep-alive`, and not for a `close` beside it.
#[test]
fn a_last_response_in_http_1_0_has_no_keep_alive() {
    run(async {
        let closing = async |request: Request| {
            if request.method() == Method::PUT {
                return Ok(Response::new(Pieces::new(None, &["bye"]).boxed_unsync()));
            }
            let mut response = text("bye");
            let options = HeaderValue::from_static("x, Close");
            response.headers_mut().insert(CONNECTION, options);
            Ok(response)
        };
        let host = Host::start(options(), closing).await;
        for (method, fields, response) in [
            ("PUT", "", "200 OK\r\nconnection: close\r\n\r\nbye"),
            (
                "GET",
                "",
                "200 OK\r\nconnection: x, Close\r\ncontent-length: 3\r\n\r\nbye",
            ),
            (
                "GET",
                "host: no host\r\n",
                "400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n",
            ),
        ] {
            let mut client = host.connect().await;
            let request = format!("{method} / HTTP/1.0\r\nconnection: keep-alive\r\n{fields}\r\n");
            client.send(&request).await;
            client.expect(&format!("HTTP/1.0 {response}")).await;
            client.expect_end().await;
        }
    });
}

#[test]
fn the_response_to_head_has_a_length_and_no_body() {
    run(async {
        let host = Host::start(options(), hello).await;
        let mut client = host.connect().await;
        client.send("HEAD / HTTP/1.1\r\nhost: test\r\n\r\n").await;
        client
            .expect("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n")
            .await;
        client.hello().await;
    });
}

#[test]
fn a_chunked_body_is_streamed_back_while_it_comes() {
    run(async {
        let host = Host::start(options(), echo_as_it_comes).await;
        let mut client = host.connect().await;
        client
            .send("POST / HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n")
            .await;
        client
            .expect("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
            .await;
        for _ in 0..3 {
            client.send("3\r\nabc\r\n").await;
            client.expect("3\r\nabc\r\n").await;
        }
        client.send("0\r\n\r\n").await;
        client.expect("0\r\n\r\n").await;
    });
}

#[test]
fn the_body_has_the_addresses_of_the_connection() {
    run(async {
        let app = async |request: Request| Ok(text(format!("{:?}", request.body().connection())));
        let host = Host::start(options(), app).await;
        let mut client = host.connect().await;
        client.send("GET / HTTP/1.0\r\n\r\n").await;
        let response = client.rest().await;
        let peer = client.stream.local_addr().expect("an address");
        assert!(
            response.contains(&format!("peer: Tcp({peer})")),
            "{response}"
        );
        assert!(
            response.contains(&format!("local: Tcp({})", host.address)),
            "{response}"
        );
    });
}

#[test]
fn the_server_header_is_added_unless_the_handler_sets_it() {
    run(async {
        let app = async |request: Request| {
            let mut response = text("");
            if request.uri().path() == "/own" {
                response.headers_mut().insert("server", "own".parse()?);
            }
            Ok(response)
        };
        let server_header = http::HeaderValue::from_static("ours");
        let host = Host::start(options().server_header(server_header), app).await;
        let mut client = host.connect().await;
        client.send(HELLO).await;
        client
            .expect("HTTP/1.1 200 OK\r\nserver: ours\r\ncontent-length: 0\r\n\r\n")
            .await;
        client.send("GET /own HTTP/1.1\r\nhost: test\r\n\r\n").await;
        client
            .expect("HTTP/1.1 200 OK\r\nserver: own\r\ncontent-length: 0\r\n\r\n")
            .await;
    });
}

pub(super) const UPGRADE: &str =
    "GET / HTTP/1.1\r\nhost: test\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n";
pub(super) const UPGRADED: &str =
    "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n";

/// Switches to a protocol in which the server sends all bytes back.
pub(super) async fn upgrade_to_echo(mut request: Request) -> HandlerResult {
    let upgrade = hyper::upgrade::on(&mut request);
    spawn_local(async move {
        let stream = upgrade.await.expect("the response switches protocols");
        let (mut from, mut to) = tokio::io::split(TokioIo::new(stream));
        // An error is the end of the connection.
        let _ = tokio::io::copy(&mut from, &mut to).await;
    });
    switching()
}

/// The response that accepts [`UPGRADE`].
pub(super) fn switching() -> HandlerResult {
    let mut response = text("");
    *response.status_mut() = http::StatusCode::SWITCHING_PROTOCOLS;
    response
        .headers_mut()
        .insert("connection", "upgrade".parse()?);
    response.headers_mut().insert("upgrade", "echo".parse()?);
    Ok(response)
}

#[test]
fn the_handler_reads_and_writes_an_upgraded_connection() {
    run(async {
        let host = Host::start(options(), upgrade_to_echo).await;
        let mut client = host.connect().await;
        // The first bytes of the new protocol come with the request.
        client.send(format!("{UPGRADE}early ")).await;
        client.expect(UPGRADED).await;
        client.expect("early ").await;
        for _ in 0..3 {
            client.send("and often").await;
            client.expect("and often").await;
        }
        assert_eq!(host.server.connections(), 1);
        drop(client);
        host.emptied().await;
    });
}

#[test]
fn responses_after_a_refused_upgrade_are_sent() {
    run(async {
        let host = Host::start(options(), hello).await;
        let mut client = host.connect().await;
        // hyper remembers the request to upgrade until the last response.
        let last = "GET / HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n";
        client.send(format!("{UPGRADE}{last}")).await;
        client.expect(HELLO_RESPONSE).await;
        client.expect_last_hello().await;
        host.emptied().await;
    });
}
