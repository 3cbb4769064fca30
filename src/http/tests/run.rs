//! How a test of connections runs.

use std::pin::pin;
use std::time::Duration;

use tokio::runtime::{Builder, LocalOptions};
use tokio::task::yield_now;
use tokio::time::timeout;

use super::Host;

/// Runs a test on the kind of runtime that workers have.
pub(super) fn run(test: impl Future<Output = ()>) {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build_local(LocalOptions::default())
        .expect("a runtime");
    runtime.block_on(async {
        let (mut test, mut left) = (pin!(test), Duration::from_secs(10));
        let mut waited = waited_for_a_cpu();
        while timeout(left, test.as_mut()).await.is_err() {
            // What other processes took of the time does not count.
            left = waited_for_a_cpu() - waited;
            waited += left;
            assert!(left > Duration::from_millis(100), "the test ends in time");
        }
    });
}

/// Lets the clock tick once.
pub(super) async fn tick(host: &Host) {
    host.server.registry.tick();
    let_turn().await;
}

/// Lets the event loop turn, as often as what is ready may need.
pub(super) async fn let_turn() {
    for _ in 0..100 {
        yield_now().await;
    }
}

/// How long this thread has been ready to run while others had the CPU (the kernel's
/// Documentation/scheduler/sched-stats).
fn waited_for_a_cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let waited = stat.split_whitespace().nth(1).map(str::parse);
    waited.map_or(Duration::ZERO, |waited| {
        Duration::from_nanos(waited.expect("a number"))
    })
}
