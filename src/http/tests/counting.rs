//! What ends up in the worker's page.

use std::future::pending;

use tokio::sync::oneshot;

use super::protocol::{UPGRADE, UPGRADED, upgrade_to_echo};
use super::*;
use crate::stats::{Count, Gauge, WorkerStats};

fn stats(host: &Host) -> WorkerStats {
    host.server.registry.counters.stats()
}

#[test]
fn each_byte_and_each_answer_is_counted_once() {
    run(async {
        let app = async |request: Request| match request.uri().path() {
            "/fail" => Err("on request".into()),
            _ => hello(request).await,
        };
        let host = Host::start(options(), app).await;
        let mut client = host.connect().await;
        let fail = "GET /fail HTTP/1.1\r\nhost: test\r\n\r\n";
        let failed = "HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\n\r\n";
        // Pipelined, so that answers are gathered, and one by one.
        client.send([HELLO, fail.as_bytes(), HELLO].concat()).await;
        client.expect(HELLO_ANSWER).await;
        client.expect(failed).await;
        client.expect(HELLO_ANSWER).await;
        client.send(HELLO).await;
        client.expect(HELLO_ANSWER).await;
        drop(client);
        host.emptied().await;
        let totals = stats(&host).totals();
        assert_eq!(totals.requests, 4);
        assert_eq!(totals.responses, [0, 3, 0, 0, 1]);
        assert_eq!(totals.bytes_in, (3 * HELLO.len() + fail.len()) as u64);
        assert_eq!(
            totals.bytes_out,
            (3 * HELLO_ANSWER.len() + failed.len()) as u64
        );
        assert!(totals.latency_p99 < Duration::from_secs(5));
        assert_eq!(stats(&host).gauge(Gauge::Requests), 0);
    });
}

/// Those too that no service has seen: hyper's, and ours for a head that does not end.
#[test]
fn what_is_answered_before_its_head_is_whole_is_counted() {
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
            // It may be told before all of it is sent.
            let _ = client.stream.write_all(request.as_bytes()).await;
            client.expect(&format!("HTTP/1.1 {status} ")).await;
            client.rest().await;
            let after = stats(&host).totals();
            let answers = [0, 0, 0, before.responses[3] + 1, 0];
            assert_eq!(after.responses, answers, "{status}");
            assert_eq!(after.requests, 0, "{status}");
        }
    });
}

#[test]
fn what_ends_without_an_answer_is_not_counted() {
    run(async {
        let http2 = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
        for bytes in ["", "GET / HTTP/1.1\r\nho", http2] {
            let host = Host::start(options(), hello).await;
            let mut client = host.connect().await;
            client.send(HELLO).await;
            client.expect(HELLO_ANSWER).await;
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
fn a_request_is_active_until_its_client_leaves() {
    run(async {
        let (begun, has_begun) = oneshot::channel();
        let begun = Rc::new(RefCell::new(Some(begun)));
        let app = move |_request: Request| {
            let begun = begun.take();
            async move {
                begun.expect("one request").send(()).expect("heard");
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

/// An upgraded stream may be on another thread, so what moves there has words of its own.
#[test]
fn bytes_after_an_upgrade_are_counted_apart() {
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
        assert_eq!(stats.totals().bytes_in, UPGRADE.len() as u64 + 12);
        assert_eq!(stats.totals().bytes_out, UPGRADED.len() as u64 + 12);
        assert_eq!(stats.totals().responses, [1, 0, 0, 0, 0]);
    });
}

/// Not the time of the loop's turn, nor of a tick: a handler that blocks is told from one that
/// does not.
#[test]
fn the_time_a_handler_blocks_is_seen() {
    run(async {
        let app = async |request: Request| {
            let begun = std::time::Instant::now();
            while begun.elapsed() < SHORT {}
            hello(request).await
        };
        let host = Host::start(options(), app).await;
        let mut client = host.connect().await;
        client.send(HELLO).await;
        client.expect(HELLO_ANSWER).await;
        drop(client);
        host.emptied().await;
        assert!(stats(&host).totals().latency_p50 >= SHORT.mul_f64(0.93));
    });
}
