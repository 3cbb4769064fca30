//! The heartbeat: a stamp in the worker's row whenever its event loop goes round, about ten times a
//! second while a connection is open. Without one there is nothing that could be late, and an idle
//! worker sleeps; an old stamp alone is never held against it.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use crate::row::{Gauge, Row};
use crate::sys::clock;
use crate::worker::incoming::Queue;

/// How often. A tenth of the shortest hang timeout.
const PERIOD: Duration = Duration::from_millis(100);

/// Stamps for as long as the worker lives, and notes by how much a stamp was late at the most.
pub(crate) async fn beat(row: Row, queue: Arc<Queue>) {
    loop {
        queue.occupied().await;
        let mut last = stamp(&row);
        while queue.active() > 0 {
            sleep(PERIOD).await;
            let now = stamp(&row);
            note_stall(&row, now.saturating_sub(last).saturating_sub(PERIOD));
            last = now;
        }
    }
}

/// Stamps once, and tells the time.
pub(crate) fn stamp(row: &Row) -> Duration {
    let now = clock::monotonic();
    row.set(Gauge::HeartbeatMillis, millis(now));
    now
}

fn note_stall(row: &Row, late: Duration) {
    let late = millis(late);
    if late > row.gauge(Gauge::LongestStallMillis) {
        row.set(Gauge::LongestStallMillis, late);
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
