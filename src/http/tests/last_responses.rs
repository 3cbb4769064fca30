//! Connections that end for their age or the number of their requests.

use std::num::NonZeroU32;

use tokio::net::TcpSocket;

use super::*;
use crate::http::registry::clock::TAKEN_MIN;
use crate::stats::Count;

#[test]
fn the_response_to_the_last_allowed_request_ends_the_connection() {
    run(async {
        let http = options().max_connection_requests(NonZeroU32::new(3));
        let host = Host::start(http, hello).await;
        for pipelined in [false, true] {
            let mut client = host.connect().await;
            if pipelined {
                client.send(HELLO.repeat(3)).await;
            }
            for response in [HELLO_RESPONSE, HELLO_RESPONSE, HELLO_LAST_RESPONSE] {
                if !pipelined {
                    client.send(HELLO).await;
                }
                client.expect(response).await;
            }
            client.expect_end().await;
        }
        host.emptied().await;
        assert_eq!(host.server.count(Count::Spent), 2);
    });
}

#[test]
fn an_old_connection_ends_with_its_next_response_and_not_earlier() {
    run(async {
        let http = options()
            .max_connection_age(SHORT)
            .header_timeout(SHORT * 10);
        let host = Host::start(http, hello).await;
        let mut client = host.connect().await;
        client.hello().await;
        until(|| host.server.count(Count::Spent) > 0).await;
        assert_eq!(host.server.connections(), 1, "an old connection stays open");
        client.last_hello().await;
        host.emptied().await;
        assert_eq!(host.server.count(Count::Spent), 1, "counted once");
    });
}

/// More than the kernel buffers for a client that does not read.
const HUGE: usize = 2 * 1024 * 1024;

/// The server has written them, and the client's kernel has no room for them yet.
const TAIL: usize = 16 * 1024;

fn huge_last_response() -> String {
    let head = format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {HUGE}\r\n\r\n");
    head + &"x".repeat(HUGE)
}

/// Connects a client whose kernel has room for few bytes.
pub(super) async fn connect_small(host: &Host) -> Client {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_recv_buffer_size(4096).expect("a TCP socket");
    let stream = socket.connect(host.address).await;
    Client {
        stream: stream.expect("the server accepts"),
    }
}

#[test]
fn a_last_response_is_whole_if_more_requests_were_pipelined() {
    run_each_kind(async || {
        let http = options().max_connection_requests(NonZeroU32::new(1));
        let host = Host::start(http, async |_| Ok(text(vec![b'x'; HUGE]))).await;
        let mut client = connect_small(&host).await;
        // More than one read.
        client.send(HELLO.repeat(4000)).await;
        client.expect(&huge_last_response()).await;
        client.expect_end().await;
    });
}

#[test]
fn a_last_response_is_whole_if_the_client_sends_while_it_receives_it() {
    run_each_kind(async || {
        let host = Host::start(options(), async |_| Ok(text(vec![b'x'; HUGE]))).await;
        host.sockets.unacknowledged.store(1, Relaxed);
        let mut client = connect_small(&host).await;
        let request = "GET / HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n";
        client.send(request).await;
        let response = huge_last_response();
        let (start, tail) = response.split_at(response.len() - TAIL);
        client.expect(start).await;
        until(|| host.server.count(Count::BytesOut) >= response.len() as u64).await;
        client.send("\r\n").await;
        client.expect(tail).await;
        client.expect_end().await;
        drop(client);
        host.emptied().await;
    });
}

/// Whether the server reads what the client sends after the last response.
async fn is_read_after_the_last_response(http: Http, request: &[u8], drains: bool) -> bool {
    let (gate, app) = gated(gated_hello);
    let host = Host::start(http, app).await;
    let mut client = host.connect().await;
    client.send(request).await;
    gate.begun.notified().await;
    if drains {
        host.server.drain();
    }
    // Of the last response, and the end of file.
    host.sockets.unacknowledged.store(1, Relaxed);
    gate.go.notify_one();
    client.expect(HELLO_LAST_RESPONSE).await;
    client.expect_end().await;
    host.server.connections() > 0
}

/// The kernel would respond with a reset, and drop what it has to send again. A client that asked
/// for the end sends no more.
#[test]
fn requests_that_follow_a_last_response_are_discarded() {
    run(async {
        let one = options().max_connection_requests(NonZeroU32::new(1));
        assert!(is_read_after_the_last_response(one, HELLO, false).await);
        assert!(is_read_after_the_last_response(options(), HELLO, true).await);
        let closes = b"GET / HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n";
        assert!(!is_read_after_the_last_response(options(), closes, false).await);
    });
}

/// A client sends frames or requests as long as it reads a response.
#[test]
fn the_close_waits_while_the_client_takes_the_last_response() {
    run(async {
        let http = options()
            .max_connection_requests(NonZeroU32::new(1))
            .header_timeout(SHORT);
        let host = Host::start(http, hello).await;
        let mut client = host.connect().await;
        let left = &host.sockets.unacknowledged;
        left.store(1 << 20, Relaxed);
        client.last_hello().await;
        client.expect_end().await;
        let registry = &host.server.registry;
        for _ in 0..100 {
            left.fetch_sub(TAKEN_MIN, Relaxed);
            registry.tick();
            yield_now().await;
            assert_eq!(host.server.connections(), 1);
        }
        host.emptied().await;
        drop(client);
    });
}
