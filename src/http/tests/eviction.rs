//! Idle connections that are closed for new ones.

use super::*;

/// Evicts until this many connections are left.
async fn evict_idle(host: &Host, left: usize) {
    while host.server.connections() > left {
        host.server.evict_idle();
        tokio::task::yield_now().await;
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
            while host.server.registry.now() == now {
                tokio::task::yield_now().await;
            }
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
