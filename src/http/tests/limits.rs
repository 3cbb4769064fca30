//! Requests that are too large, and their responses.

use std::cell::Cell;

use super::*;
use crate::stats::Count;

const TOO_LARGE: &str =
    "HTTP/1.1 413 Payload Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
const HEAD_TOO_LARGE: &str = "HTTP/1.1 431 Request Header Fields Too Large\r\n\
                              connection: close\r\ncontent-length: 0\r\n\r\n";

#[test]
fn a_head_over_the_limit_gets_431() {
    run_each_kind(async || {
        let host = Host::start(options().max_header_size(1024), hello).await;
        // The first head is read to its end, the other ones are not.
        for filler in [2000, 1024 + 8 * 1024, 200_000] {
            let mut client = host.connect().await;
            let filler = "f".repeat(filler);
            client
                .send(format!(
                    "GET / HTTP/1.1\r\nhost: test\r\nfiller: {filler}\r\n\r\n"
                ))
                .await;
            client.expect(HEAD_TOO_LARGE).await;
            client.expect_end().await;
        }
        assert_eq!(host.server.count(Count::Requests), 1);
    });
}

#[test]
fn a_head_at_the_limit_is_served() {
    run_each_kind(async || {
        let head = |filler: usize| {
            format!(
                "GET / HTTP/1.1\r\nhost: test\r\nfiller: {}\r\n\r\n",
                "f".repeat(filler)
            )
        };
        let host = Host::start(options().max_header_size(1024), hello).await;
        let filler = 1024 - head(0).len();
        let mut client = host.connect().await;
        client.send(head(filler)).await;
        client.expect(HELLO_RESPONSE).await;
        client.send(head(filler + 1)).await;
        client.expect(HEAD_TOO_LARGE).await;
    });
}

#[test]
fn more_than_100_fields_get_431() {
    run_each_kind(async || {
        let host = Host::start(options(), hello).await;
        let mut client = host.connect().await;
        client
            .send(format!(
                "GET / HTTP/1.1\r\nhost: test\r\n{}\r\n",
                "a: b\r\n".repeat(99)
            ))
            .await;
        client.expect(HELLO_RESPONSE).await;
        client
            .send(format!(
                "GET / HTTP/1.1\r\nhost: test\r\n{}\r\n",
                "a: b\r\n".repeat(100)
            ))
            .await;
        client.expect(HEAD_TOO_LARGE).await;
        client.expect_end().await;
    });
}

#[test]
fn a_target_over_the_limit_gets_414() {
    run_each_kind(async || {
        // Targets of 9 and 12 KiB break the limit of heads too. Bytes above both limits together
        // are not read.
        for (limit, target, status) in [
            (8 << 10, 8 << 10, "200 OK"),
            (8 << 10, (8 << 10) + 1, "414 URI Too Long"),
            (4 << 10, 9 << 10, "414 URI Too Long"),
            (4 << 10, 12 << 10, "414 URI Too Long"),
            (4 << 10, 70_000, "414 URI Too Long"),
            (80 << 10, 65_534, "200 OK"),
            (80 << 10, 65_535, "414 URI Too Long"),
        ] {
            let http = options()
                .max_target_size(limit)
                .max_header_size(limit + 100);
            let http = if limit == 4 << 10 {
                http.max_header_size(9 << 10)
            } else {
                http
            };
            let host = Host::start(http, hello).await;
            let mut client = host.connect().await;
            let filler = "t".repeat(target - 1);
            client
                .send(format!("GET /{filler} HTTP/1.1\r\nhost: test\r\n\r\n"))
                .await;
            client.expect(&format!("HTTP/1.1 {status}\r\n")).await;
        }
    });
}

#[test]
fn a_refused_head_is_counted_as_a_response() {
    run_each_kind(async || {
        let host = Host::start(options(), hello).await;
        let mut client = host.connect().await;
        client.send("GET / HTTP/1.1\r\n\r\n").await;
        client
            .expect("HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
            .await;
        client.expect_end().await;
        let stats = host.server.registry.counters.stats();
        assert_eq!(stats.count(Count::ClientError), 1);
        assert_eq!(stats.count(Count::Requests), 1);
    });
}

#[test]
fn a_content_length_over_the_limit_is_refused_before_the_body_is_sent() {
    run_each_kind(async || {
        let called = Rc::new(Cell::new(false));
        let set_by_handler = Rc::clone(&called);
        let app = move |request| {
            set_by_handler.set(true);
            echo(request)
        };
        let host = Host::start(options().max_body_size(10), app).await;
        for expect in ["", "expect: 100-continue\r\n"] {
            let mut client = host.connect().await;
            let head = "POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 11\r\n";
            client.send(format!("{head}{expect}\r\n")).await;
            client.expect(TOO_LARGE).await;
            client.expect_end().await;
        }
        assert!(!called.get());
    });
}

#[test]
fn a_client_that_continues_to_send_can_read_its_413() {
    run_each_kind(async || {
        let host = Host::start(options().max_body_size(10), echo).await;
        let mut client = host.connect().await;
        client
            .send("POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 8000000\r\n\r\n")
            .await;
        // Far more than the sockets' buffers hold: the server must read it, without a reset.
        client.send(vec![b'x'; 8_000_000]).await;
        client.expect(TOO_LARGE).await;
        client.expect_end().await;
        drop(client);
        host.emptied().await;
    });
}

#[test]
fn a_chunked_body_over_the_limit_gets_413() {
    run_each_kind(async || {
        let host = Host::start(options().max_body_size(10), echo).await;
        let mut client = host.connect().await;
        let head = "POST / HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n";
        client
            .send(format!("{head}a\r\n0123456789\r\n0\r\n\r\n"))
            .await;
        client
            .expect("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n0123456789")
            .await;
        client
            .send(format!("{head}a\r\n0123456789\r\n1\r\n0\r\n0\r\n\r\n"))
            .await;
        client.expect(TOO_LARGE).await;
        client.expect_end().await;
    });
}

#[test]
fn a_response_that_streams_a_body_over_the_limit_breaks_off() {
    run_each_kind(async || {
        let host = Host::start(options().max_body_size(4), echo_as_it_comes).await;
        let mut client = host.connect().await;
        let head = "POST / HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n";
        client.send(format!("{head}3\r\nabc\r\n")).await;
        client
            .expect("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n")
            .await;
        client.send("2\r\nde\r\n0\r\n\r\n").await;
        assert_eq!(client.rest().await, "", "no last chunk");
    });
}

#[test]
fn without_a_limit_a_body_may_be_of_any_size() {
    run_each_kind(async || {
        let host = Host::start(options().max_body_size(None), echo).await;
        let mut client = host.connect().await;
        let body = "x".repeat(5 * 1024 * 1024);
        let head = format!(
            "POST / HTTP/1.1\r\nhost: test\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        client.send(head).await;
        client.send(&body).await;
        client
            .expect(&format!(
                "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n",
                body.len()
            ))
            .await;
        client.expect(&body).await;
    });
}
