//! Recycling: when a worker asks the master to replace it.

use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval, sleep};

use crate::worker::Worker;

/// How often the number of requests is checked.
const LOOK_EVERY: Duration = Duration::from_millis(250);

// If the worker still runs after it has asked, its replacement may have failed. Before each further
// request it waits twice as long, so that the master does not start failing workers without end.

/// Asks when the worker is `age` old, or up to a quarter older, and then again.
pub(crate) async fn by_age(worker: Worker, age: Duration) {
    let extra = extra(age.as_millis().try_into().unwrap_or(u64::MAX));
    let age = age.saturating_add(Duration::from_millis(extra));
    let mut wait = age;
    loop {
        sleep(wait).await;
        tracing::info!("this worker is over {age:?} old and is to be replaced");
        worker.recycle();
        wait = wait.saturating_mul(2);
    }
}

/// Asks when the worker has answered `max` requests, or up to a quarter more, and then again.
pub(crate) async fn by_requests(worker: Worker, max: u64, answered: impl Fn() -> u64) {
    let mut wait = max.saturating_add(extra(max)).max(1);
    let mut asks_at = wait;
    let mut looks = interval(LOOK_EVERY);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        looks.tick().await;
        let answered = answered();
        if answered >= asks_at {
            tracing::info!("this worker has answered {answered} requests and is to be replaced");
            worker.recycle();
            wait = wait.saturating_mul(2);
            asks_at = answered.saturating_add(wait);
        }
    }
}

/// Up to a quarter of the limit, so that workers that were started together do not ask together.
/// The pid decides, so it is not random.
fn extra(limit: u64) -> u64 {
    part(limit, std::process::id())
}

fn part(limit: u64, pid: u32) -> u64 {
    // Multiplication by 2^32 over the golden ratio puts pids that are close far from each other.
    let place = u64::from(pid.wrapping_mul(0x9e37_79b9) >> 24);
    (limit / 4).saturating_mul(place) / 256
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_with_close_pids_are_spread_over_a_quarter() {
        let mut parts: Vec<_> = (1000..1008).map(|pid| part(1000, pid)).collect();
        assert!(parts.iter().all(|&part| part < 250), "{parts:?}");
        parts.sort_unstable();
        let gaps = parts.windows(2).map(|pair| pair[1] - pair[0]);
        assert!(gaps.min() >= Some(10), "{parts:?}");
        assert_eq!(part(3, 1000), 0);
        assert!(part(u64::MAX, 1001) < u64::MAX / 4);
    }
}
