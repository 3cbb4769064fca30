//! Pipelined requests: their responses are gathered into few sends, and never delayed.

use super::pieces::Pieces;
use super::*;
use crate::stats::Count;

#[test]
fn sixteen_requests_in_one_write_get_their_responses_in_one_send() {
    run_each_kind(async || {
        let host = Host::start(options(), hello).await;
        let mut client = host.connect().await;
        client.send(HELLO.repeat(16)).await;
        client.expect(&HELLO_RESPONSE.repeat(16)).await;
        assert_eq!(host.sockets.sends.load(Relaxed), 1);
        assert_eq!(host.server.count(Count::Requests), 16);
    });
}

#[test]
fn a_long_pipeline_gets_all_responses() {
    run_each_kind(async || {
        let host = Host::start(options(), hello).await;
        let mut client = host.connect().await;
        client.send(HELLO.repeat(1000)).await;
        client.expect(&HELLO_RESPONSE.repeat(1000)).await;
    });
}

#[test]
fn pipelined_requests_with_bodies_get_all_responses() {
    run_each_kind(async || {
        let host = Host::start(options(), echo).await;
        let mut client = host.connect().await;
        let post = "POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 3\r\n\r\nabc";
        client.send(post.repeat(5)).await;
        let response = "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabc";
        client.expect(&response.repeat(5)).await;
    });
}

#[test]
fn a_response_does_not_wait_for_the_rest_of_the_next_request() {
    run_each_kind(async || {
        let host = Host::start(options(), hello).await;
        let mut client = host.connect().await;
        let half = HELLO.len() / 2;
        client.send([HELLO, &HELLO[..half]].concat()).await;
        client.expect(HELLO_RESPONSE).await;
        client.send(&HELLO[half..]).await;
        client.expect(HELLO_RESPONSE).await;
    });
}

#[test]
fn a_line_break_after_a_request_does_not_delay_the_response() {
    run_each_kind(async || {
        let host = Host::start(options(), hello).await;
        let mut client = host.connect().await;
        for _ in 0..2 {
            client.send([HELLO, b"\r\n"].concat()).await;
            client.expect(HELLO_RESPONSE).await;
        }
    });
}

#[test]
fn a_response_does_not_wait_for_the_next_handler() {
    run_each_kind(async || {
        let (gate, app) = gated(async |gate, request| {
            if request.uri().path() == "/wait" {
                gate.pass().await;
            }
            Ok(text("hello"))
        });
        let host = Host::start(options(), app).await;
        let mut client = host.connect().await;
        let wait = b"GET /wait HTTP/1.1\r\nhost: test\r\n\r\n".as_slice();
        client.send([HELLO, wait, HELLO].concat()).await;
        client.expect(HELLO_RESPONSE).await;
        gate.go.notify_one();
        client.expect(&HELLO_RESPONSE.repeat(2)).await;
    });
}

#[test]
fn a_part_of_a_streamed_response_does_not_wait_for_the_rest() {
    run_each_kind(async || {
        let gate = Arc::new(Notify::new());
        let go = Arc::clone(&gate);
        let app = move |_| {
            let body = Pieces::gated(None, &["one ", "", "half"], Arc::clone(&gate));
            async { Ok(Response::new(body.boxed_unsync())) }
        };
        let host = Host::start(options(), app).await;
        let mut client = host.connect().await;
        client.send([HELLO, HELLO].concat()).await;
        let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\none \r\n";
        client.expect(head).await;
        go.notify_one();
        client.expect("4\r\nhalf\r\n0\r\n\r\n").await;
        client.expect(head).await;
    });
}

#[test]
fn responses_before_a_connection_close_are_sent() {
    run_each_kind(async || {
        let host = Host::start(options(), hello).await;
        let mut client = host.connect().await;
        let last = b"GET / HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n".as_slice();
        client.send([HELLO, last, HELLO].concat()).await;
        client.expect(HELLO_RESPONSE).await;
        client.expect_last_hello().await;
        assert_eq!(host.server.count(Count::Requests), 2);
    });
}

#[test]
fn responses_before_invalid_bytes_are_sent() {
    run_each_kind(async || {
        let host = Host::start(options(), hello).await;
        let mut client = host.connect().await;
        client.send([HELLO, b"\0\r\n\r\n"].concat()).await;
        client.expect(HELLO_RESPONSE).await;
        let refusal = "HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
        client.expect(refusal).await;
        client.expect_end().await;
    });
}

#[test]
fn responses_before_an_http2_preface_are_sent() {
    run_each_kind(async || {
        let host = Host::start(options(), hello).await;
        let mut client = host.connect().await;
        client
            .send([HELLO, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"].concat())
            .await;
        client.expect(HELLO_RESPONSE).await;
        client.expect_end().await;
    });
}

/// Bytes and room come at the same time, as on a new connection whose first write waits until the
/// runtime has looked at the socket.
#[test]
fn a_request_that_comes_as_a_blocked_write_goes_on_does_not_stop_the_responses() {
    run_each_kind(async || {
        let host = Host::start(options(), hello).await;
        let mut client = host.connect().await;
        let by_hyper = b"GET / HTTP/1.1\r\nhost: test\r\nconnection: x\r\n\r\n";
        host.sockets.room.limit(0);
        client.send(by_hyper).await;
        until(|| host.sockets.sends.load(Relaxed) > 0).await;
        client.send(by_hyper).await;
        // The runtime looks at the sockets, and then this test goes on before the connection.
        yield_now().await;
        host.sockets.room.open();
        client.expect(&HELLO_RESPONSE.repeat(2)).await;
    });
}
