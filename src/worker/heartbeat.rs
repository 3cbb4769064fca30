//! The heartbeat: the worker's event loop writes the time into the worker's page, about ten times a
//! second while a connection is open. Without a connection the worker sleeps, so an old heartbeat
//! alone means nothing. If the master is in doubt, it asks for a heartbeat.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use crate::stats::{Gauge, WorkerStats};
use crate::sys::clock;
use crate::worker::incoming::Queue;

/// The time between two heartbeats: a tenth of the shortest hang timeout.
const PERIOD: Duration = Duration::from_millis(100);

/// Writes heartbeats as long as the worker runs, and the longest delay of one.
pub(crate) async fn run(stats: WorkerStats, queue: Arc<Queue>) {
    loop {
        queue.occupied().await;
        let mut last = stamp(&stats);
        while queue.active() > 0 {
            sleep(PERIOD).await;
            let now = stamp(&stats);
            note_stall(&stats, now.saturating_sub(last).saturating_sub(PERIOD));
            last = now;
        }
    }
}

/// Writes one heartbeat, and returns its time.
pub(crate) fn stamp(stats: &WorkerStats) -> Duration {
    let now = clock::monotonic();
    stats.beat(millis(now));
    now
}

fn note_stall(stats: &WorkerStats, late: Duration) {
    let late = millis(late);
    if late > stats.gauge(Gauge::LongestStallMillis) {
        stats.set(Gauge::LongestStallMillis, late);
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use tokio::task::{spawn_local, yield_now};

    use super::*;
    use crate::address::Address;
    use crate::sys::listener::{self, Reuse};
    use crate::worker::incoming::Incoming;

    const BLOCKED: Duration = Duration::from_millis(400);

    async fn blocks_while_it_serves() {
        let any = "127.0.0.1:0".parse().expect("valid");
        let listener = listener::tcp(any, Reuse::None, 8).expect("a free port");
        let Ok(Address::Tcp(address)) = listener::address(&listener) else {
            panic!("a TCP address")
        };
        let stats = WorkerStats::own();
        let queue = Queue::new(vec![listener], None, 8, None, stats.clone()).expect("a listener");
        spawn_local(run(stats.clone(), Arc::clone(&queue)));
        yield_now().await;
        assert_eq!(
            stats.gauge(Gauge::HeartbeatMillis),
            0,
            "nothing to beat for"
        );
        let _client = std::net::TcpStream::connect(address).expect("it listens");
        let _connection = Incoming::new(queue).accept().await.expect("one waits");
        let accepted = stats.gauge(Gauge::HeartbeatMillis);
        assert!(accepted > 0, "a stamp at once");
        yield_now().await;
        let begun = Instant::now();
        while begun.elapsed() < BLOCKED {}
        while stats.gauge(Gauge::LongestStallMillis) < millis(BLOCKED - PERIOD) {
            yield_now().await;
        }
        assert!(stats.gauge(Gauge::HeartbeatMillis) >= accepted + millis(BLOCKED));
    }

    #[test]
    fn it_beats_while_a_connection_is_open_and_counts_a_stall() {
        let runtime = crate::worker::runtime().expect("a runtime");
        let ceiling = Duration::from_secs(10);
        runtime.block_on(async {
            tokio::time::timeout(ceiling, blocks_while_it_serves())
                .await
                .expect("the stall is noted");
        });
    }
}
