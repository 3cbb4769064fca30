//! Idle connections that are closed for new ones.

use super::*;

/// Evicts until this many connections are left.
async fn evict_idle(host: &Host, left: usize) {
    while host.server.connections() > left {
        host.server.evict_idle();
        yield_now().await;
    }
}

#[test]
fn the_longest_idle_connection_is_evicted_and_a_busy_one_never() {
    run(async {
        let host = Host::start(options().linger(SHORT).write_timeout(SHORT), echo).await;
        let mut busy = host.connect().await;
        busy.send("POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 5\r\n\r\nhe")
            .await;
        let mut idle = Vec::new();
        for _ in 0..3 {
            let mut client = host.connect().await;
            client.send("GET / HTTP/1.1\r\nhost: test\r\n\r\n").await;
            client
                .expect("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
                .await;
            // The next client becomes idle at a later tick.
            let now = host.server.registry.now();
            until(|| host.server.registry.now() != now).await;
            idle.push(client);
        }
        for left in [3, 2] {
            evict_idle(&host, left).await;
            idle.remove(0).expect_end().await;
        }
        idle[0].send("GET / HTTP/1.1\r\nhost: test\r\n\r\n").await;
        idle[0]
            .expect("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
            .await;
        evict_idle(&host, 1).await;
        host.server.evict_idle();
        busy.send("llo").await;
        busy.expect("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello")
            .await;
    });
}

/// A request that is not plain is served by hyper, which then has the first bytes of the next one.
#[test]
fn a_connection_with_the_first_bytes_of_a_request_is_not_idle() {
    run(async {
        let host = Host::start(options().linger(SHORT), hello).await;
        let not_plain =
            "POST / HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n";
        for before in [HELLO, not_plain.as_bytes()] {
            let [mut busy, mut idle] = [host.connect().await, host.connect().await];
            let (start, end) = HELLO.split_at(10);
            busy.send([before, start].concat()).await;
            busy.expect(HELLO_RESPONSE).await;
            idle.hello().await;
            evict_idle(&host, 1).await;
            idle.expect_end().await;
            busy.send(end).await;
            busy.expect(HELLO_RESPONSE).await;
            drop(busy);
            host.emptied().await;
        }
    });
}
