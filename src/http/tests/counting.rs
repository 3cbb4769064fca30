//! Counters in the worker's page.

use std::future::pending;

use tokio::sync::oneshot;

use super::protocol::{UPGRADE, UPGRADED, upgrade_to_echo};
use super::*;
use crate::stats::{Count, Gauge, WorkerStats};

fn stats(host: &Host) -> WorkerStats {
    host.server.registry.counters.stats()
}

#[test]
fn each_byte_and_each_response_is_counted_once() {
    run(async {
        let app = async |request: Request| match request.uri().path() {
            "/fail" => Err("on request".into()),
            _ => hello(request).await,
        };
        let host = Host::start(options(), app).await;
        let mut client = host.connect().await;
        let fail = "GET /fail HTTP/1.1\r\nhost: test\r\n\r\n";
        let failed = "HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\n\r\n";
        // Pipelined, so that responses are gathered; then one alone.
        client.send([HELLO, fail.as_bytes(), HELLO].concat()).await;
        client.expect(HELLO_RESPONSE).await;
        client.expect(failed).await;
        client.expect(HELLO_RESPONSE).await;
        client.hello().await;
        drop(client);
        host.emptied().await;
        let totals = stats(&host).totals();
        assert_eq!(totals.requests, 4);
        assert_eq!(totals.responses, [0, 3, 0, 0, 1]);
        assert_eq!(totals.bytes_in, (3 * HELLO.len() + fail.len()) as u64);
        assert_eq!(
            totals.bytes_out,
            (3 * HELLO_RESPONSE.len() + failed.len()) as u64
        );
        assert!(totals.latency_p99 < Duration::from_secs(5));
        assert_eq!(stats(&host).gauge(Gauge::Requests), 0);
    });
}

/// Responses by hyper, and by the server for a head that is not complete in time. No service sees
/// these requests.
#[test]
fn responses_to_invalid_and_incomplete_heads_are_counted() {
    run(async {
        let host = Host::start(options().header_timeout(SHORT * 10), hello).await;
        let long = format!("GET / HTTP/1.1\r\na: {}", "x".repeat(1 << 20));
        for (request, status) in [
            ("no request\r\n\r\n", "400"),
            ("GET / HTTP/1.1\r\nno field\r\n\r\n", "400"),
            (&long, "431"),
            ("GET / HTTP/1.1\r\n", "408"),
        ] {
            let before = stats(&host).totals();
            let mut client = host.connect().await;
            // The response may come before all of the request is sent.
            let _ = client.stream.write_all(request.as_bytes()).await;
            let begin = format!("HTTP/1.1 {status} ");
            client.expect(&begin).await;
            let rest = client.rest().await;
            let after = stats(&host).totals();
            let sent = after.bytes_out - before.bytes_out;
            assert_eq!(sent, (begin.len() + rest.len()) as u64, "{status}");
            let responses = [0, 0, 0, before.responses[3] + 1, 0];
            assert_eq!(after.responses, responses, "{status}");
            assert_eq!(after.requests, 0, "{status}");
        }
    });
}

#[test]
fn connections_that_end_without_a_response_are_not_counted() {
    run(async {
        let http2 = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
        for bytes in ["", "GET / HTTP/1.1\r\nho", http2] {
            let host = Host::start(options(), hello).await;
            let mut client = host.connect().await;
            client.hello().await;
            client.send(bytes).await;
            client.stream.shutdown().await.expect("it is connected");
            client.expect_end().await;
            drop(client);
            host.emptied().await;
            assert_eq!(
                stats(&host).totals().responses,
                [0, 1, 0, 0, 0],
                "{bytes:?}"
            );
        }
    });
}

#[test]
fn a_request_is_active_until_its_client_closes() {
    run(async {
        let (begun, has_begun) = oneshot::channel();
        let begun = Rc::new(RefCell::new(Some(begun)));
        let app = move |_request: Request| {
            let begun = begun.take();
            async move {
                begun
                    .expect("one request")
                    .send(())
                    .expect("the test waits");
                pending().await
            }
        };
        let host = Host::start(options(), app).await;
        let mut client = host.connect().await;
        client.send(HELLO).await;
        has_begun.await.expect("the handler is called");
        assert_eq!(stats(&host).gauge(Gauge::Requests), 1);
        drop(client);
        host.emptied().await;
        assert_eq!(stats(&host).gauge(Gauge::Requests), 0);
    });
}

#[test]
fn bytes_after_a_refused_upgrade_are_those_of_http() {
    run(async {
        let host = Host::start(options(), hello).await;
        let mut client = host.connect().await;
        client.send(UPGRADE).await;
        client.expect(HELLO_RESPONSE).await;
        client.hello().await;
        drop(client);
        host.emptied().await;
        let stats = stats(&host);
        let read = UPGRADE.len() + HELLO.len();
        assert_eq!(stats.count(Count::BytesIn), read as u64);
        assert_eq!(
            stats.count(Count::BytesOut),
            2 * HELLO_RESPONSE.len() as u64
        );
    });
}

/// An upgraded stream may be on another thread, so its bytes are counted in words of their own.
#[test]
fn bytes_after_an_upgrade_have_counters_of_their_own() {
    run(async {
        let host = Host::start(options(), upgrade_to_echo).await;
        let mut client = host.connect().await;
        client.send(UPGRADE).await;
        client.expect(UPGRADED).await;
        client.send("twelve bytes").await;
        client.expect("twelve bytes").await;
        drop(client);
        host.emptied().await;
        let stats = stats(&host);
        assert_eq!(stats.count(Count::TunnelBytesIn), 12);
        assert_eq!(stats.count(Count::TunnelBytesOut), 12);
        assert_eq!(stats.totals().bytes_in, UPGRADE.len() as u64 + 12);
        assert_eq!(stats.totals().bytes_out, UPGRADED.len() as u64 + 12);
        assert_eq!(stats.totals().responses, [1, 0, 0, 0, 0]);
    });
}

/// Latency is not measured in ticks or in turns of the event loop: a handler that blocks would look
/// like one that does not.
#[test]
fn the_latency_includes_time_in_which_a_handler_blocks() {
    run(async {
        let app = async |request: Request| {
            let begun = std::time::Instant::now();
            while begun.elapsed() < SHORT {}
            hello(request).await
        };
        let host = Host::start(options(), app).await;
        let mut client = host.connect().await;
        client.hello().await;
        drop(client);
        host.emptied().await;
        assert!(stats(&host).totals().latency_p50 >= SHORT.mul_f64(0.93));
    });
}
