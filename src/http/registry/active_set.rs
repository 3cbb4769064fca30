//! Which connections are served right now, and which of them is the next to rest.
//!
//! The most recently active ones stay served, approximately: when there are too many, a hand goes
//! round and picks one that is idle, rather one that has been so since an earlier tick. That costs
//! a request nothing, where a list in the order of use would be touched by each.

use crate::stats::{Gauge, WorkerStats};

/// How many the hand looks at before it takes what it has seen, or lets there be one too many.
const PROBES: usize = 8;

/// "Not among them."
const NONE: u32 = u32::MAX;

/// A connection's place among the served ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Index(u32);

impl Index {
    pub(crate) const ABSENT: Self = Self(NONE);

    pub(crate) fn is_present(self) -> bool {
        self.0 != NONE
    }
}

/// How good a connection is as the next to rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EvictionScore {
    /// It works.
    None,
    /// It is idle, but was active a moment ago.
    Low,
    High,
}

/// The keys of those that are served.
#[derive(Debug)]
pub(crate) struct ActiveSet {
    keys: Vec<u32>,
    hand: usize,
    max: usize,
    /// Where it is told how many there are.
    stats: WorkerStats,
}

impl ActiveSet {
    pub(crate) fn new(max: usize, stats: WorkerStats) -> Self {
        Self {
            keys: Vec::new(),
            hand: 0,
            max,
            stats,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    pub(crate) fn enter(&mut self, key: usize) -> Index {
        self.keys.push(narrow(key));
        self.tell();
        Index(narrow(self.keys.len() - 1))
    }

    /// Says who is at that place now.
    #[must_use]
    pub(crate) fn leave(&mut self, index: Index) -> Option<usize> {
        self.keys.swap_remove(index.0 as usize);
        self.tell();
        self.keys.get(index.0 as usize).map(|&key| key as usize)
    }

    fn tell(&self) {
        self.stats.set(Gauge::Served, self.len() as u64);
    }

    /// Who is to rest, if there are too many.
    pub(crate) fn surplus(&mut self, claim: impl Fn(usize) -> EvictionScore) -> Option<usize> {
        if self.keys.len() <= self.max {
            return None;
        }
        let mut second_best = None;
        for _ in 0..PROBES.min(self.keys.len()) {
            self.hand = (self.hand + 1) % self.keys.len();
            let key = self.keys[self.hand] as usize;
            match claim(key) {
                EvictionScore::High => return Some(key),
                EvictionScore::Low => second_best = second_best.or(Some(key)),
                EvictionScore::None => {}
            }
        }
        second_best
    }
}

fn narrow(key: usize) -> u32 {
    u32::try_from(key).expect("a process has fewer than 2^32 descriptors")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_leaves_is_replaced_by_the_last() {
        let mut active = ActiveSet::new(2, WorkerStats::own());
        let places = [7, 8, 9].map(|key| active.enter(key));
        assert_eq!(active.leave(places[0]), Some(9));
        assert_eq!(active.leave(places[1]), None, "9 is where 7 was");
        assert_eq!(active.leave(places[0]), None);
    }

    #[test]
    fn only_a_surplus_rests_and_rather_the_older() {
        let mut active = ActiveSet::new(2, WorkerStats::own());
        for key in 0..2 {
            active.enter(key);
        }
        assert_eq!(
            active.surplus(|_| EvictionScore::High),
            None,
            "there is room"
        );
        active.enter(2);
        assert_eq!(active.surplus(|_| EvictionScore::None), None, "all work");
        let one = |best| {
            move |key| {
                if key == best {
                    EvictionScore::High
                } else {
                    EvictionScore::Low
                }
            }
        };
        assert_eq!(active.surplus(one(1)), Some(1));
        assert_eq!(active.surplus(one(0)), Some(0));
        let weak = |key| {
            if key == 2 {
                EvictionScore::Low
            } else {
                EvictionScore::None
            }
        };
        assert_eq!(active.surplus(weak), Some(2));
    }

    #[test]
    fn the_hand_goes_round() {
        let mut active = ActiveSet::new(1, WorkerStats::own());
        for key in 0..100 {
            active.enter(key);
        }
        let mut seen: Vec<_> = (0..100)
            .filter_map(|_| active.surplus(|_| EvictionScore::High))
            .collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 100);
    }
}
