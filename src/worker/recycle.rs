//! Recycling: when a worker asks to be replaced. How it is done is the master's.

use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval, sleep};

use crate::worker::Worker;

/// How often the requests are counted.
const LOOK_EVERY: Duration = Duration::from_millis(250);

// Who is still there after it has asked has perhaps had a replacement that failed. Each time it
// waits twice as long as before, so that what cannot start is not started without end.

/// Asks when the worker is as old as its share of `age`, and again.
pub(crate) async fn by_age(worker: Worker, age: Duration) {
    let extra = extra(age.as_millis().try_into().unwrap_or(u64::MAX));
    let age = age.saturating_add(Duration::from_millis(extra));
    let mut wait = age;
    loop {
        sleep(wait).await;
        tracing::info!(slot = %worker.slot(), "a worker is over {age:?} old and is to be replaced");
        worker.recycle();
        wait = wait.saturating_mul(2);
    }
}

/// Asks when the worker has answered its share of `max` requests, and again.
pub(crate) async fn by_requests(worker: Worker, max: u64, answered: impl Fn() -> u64) {
    let mut wait = max.saturating_add(extra(max)).max(1);
    let mut asks_at = wait;
    let mut looks = interval(LOOK_EVERY);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        looks.tick().await;
        let answered = answered();
        if answered >= asks_at {
            tracing::info!(
                slot = %worker.slot(),
                "a worker has answered {answered} requests and is to be replaced"
            );
            worker.recycle();
            wait = wait.saturating_mul(2);
            asks_at = answered.saturating_add(wait);
        }
    }
}

/// Up to a quarter more, so that workers that were started together do not all ask together. Not
/// random: the pid decides.
fn extra(limit: u64) -> u64 {
    part(limit, std::process::id())
}

fn part(limit: u64, pid: u32) -> u64 {
    // Multiplied by 2^32 over the golden ratio, neighbours are far from each other.
    let place = u64::from(pid.wrapping_mul(0x9e37_79b9) >> 24);
    (limit / 4).saturating_mul(place) / 256
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_spread_over_a_quarter() {
        let mut parts: Vec<_> = (1000..1008).map(|pid| part(1000, pid)).collect();
        assert!(parts.iter().all(|&part| part < 250), "{parts:?}");
        parts.sort_unstable();
        let gaps = parts.windows(2).map(|pair| pair[1] - pair[0]);
        assert!(gaps.min() >= Some(10), "{parts:?}");
        assert_eq!(part(3, 1000), 0);
        assert!(part(u64::MAX, 1001) < u64::MAX / 4);
    }
}
