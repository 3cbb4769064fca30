//! Decides whether a new connection goes to a sibling, and to which. It reads no clock and makes no
//! system call; `mod.rs` does both.

use std::time::Duration;

/// A difference of up to the worker's own load divided by this is left as it is, as the master
/// leaves it when it compares the loads of all.
const TOLERANCE: u64 = 4;

/// How often a worker may give a connection away, on average: that costs as much as a request.
/// Where connections live for one request, their numbers differ all the time, and it is of no use
/// to even them out.
const INTERVAL: Duration = Duration::from_millis(4);

/// So many may be given away at once.
const BURST: u32 = 250;

/// Whether the loads would differ too much, if a worker with the load `own` kept a new connection.
pub(super) fn is_uneven(own: u64, other: u64) -> bool {
    let difference = (own + 1).saturating_sub(other);
    difference >= 2 && difference * TOLERANCE > own
}

/// The index of the sibling that gets a new connection; `None` if the worker keeps it. `siblings`
/// are indices and loads. Of several with the same load, the first is chosen.
pub(super) fn choose(own: u64, siblings: impl Iterator<Item = (usize, u64)>) -> Option<usize> {
    let least = siblings.min_by_key(|&(_, load)| load);
    let (at, _) = least.filter(|&(_, load)| is_uneven(own, load))?;
    Some(at)
}

/// How many connections may still be given away.
#[derive(Debug, Default)]
pub(super) struct Budget {
    /// When it is whole again.
    whole_at: Duration,
}

impl Budget {
    /// Whether one connection may be given away now.
    pub(super) fn is_left(&self, now: Duration) -> bool {
        self.after_one(now) <= now + INTERVAL * BURST
    }

    /// One connection is given away.
    pub(super) fn take(&mut self, now: Duration) {
        self.whole_at = self.after_one(now);
    }

    fn after_one(&self, now: Duration) -> Duration {
        self.whole_at.max(now) + INTERVAL
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The loads after so many connections have come to the first worker.
    fn after<const N: usize>(mut loads: [u64; N], connections: usize) -> [u64; N] {
        for _ in 0..connections {
            let [own, others @ ..] = &loads[..] else {
                panic!("a worker")
            };
            let siblings = (1..).zip(others.iter().copied());
            let chosen = choose(*own, siblings).unwrap_or(0);
            loads[chosen] += 1;
        }
        loads
    }

    #[test]
    fn few_connections_are_spread_exactly() {
        assert_eq!(after([0, 0], 4), [2, 2]);
        assert_eq!(after([0, 3], 3), [3, 3]);
        assert_eq!(after([0, 0, 0], 6), [2, 2, 2]);
        assert_eq!(after([0; 9], 9), [1; 9]);
        assert_eq!(after([5, 0], 4), [5, 4]);
    }

    #[test]
    fn a_worker_without_load_keeps_a_connection_and_so_does_one_with_little_more() {
        for (own, other) in [
            (0, 0),
            (0, 7),
            (1, 1),
            (3, 3),
            (2, 3),
            (40, 31),
            (1000, 751),
        ] {
            assert!(!is_uneven(own, other), "{own} {other}");
        }
        for (own, other) in [(1, 0), (3, 2), (40, 30), (1000, 750)] {
            assert!(is_uneven(own, other), "{own} {other}");
        }
        assert_eq!(choose(9, std::iter::empty()), None);
    }

    #[test]
    fn the_first_of_those_with_the_least_load_is_chosen() {
        let siblings = [(5, 2), (6, 1), (7, 1)].into_iter();
        assert_eq!(choose(9, siblings), Some(6));
    }

    #[test]
    fn a_burst_is_spread_and_then_some_connections_in_each_second() {
        let mut budget = Budget::default();
        let start = Duration::from_secs(1000);
        let mut taken = |now| {
            let mut count = 0;
            while budget.is_left(now) {
                budget.take(now);
                count += 1;
            }
            count
        };
        assert_eq!(taken(start), 250);
        assert_eq!(taken(start + Duration::from_millis(40)), 10);
        assert_eq!(taken(start + Duration::from_secs(100)), 250);
    }
}
