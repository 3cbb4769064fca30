//! Which connections are served now, and which of them goes to rest next.
//!
//! The most recently active connections stay served, approximately. If there are too many, a cursor
//! moves over them and picks an idle one, preferably one that has been idle since an earlier tick.
//! That costs a request nothing; a list in the order of use would change with each request.

use crate::stats::{Gauge, WorkerStats};

/// Number of connections that the cursor looks at before it picks the best of them. If these are
/// all busy, there is one connection too many.
const PROBES: usize = 8;

/// Not in the set.
const NONE: u32 = u32::MAX;

/// Index of a connection in the set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Index(u32);

impl Index {
    pub(crate) const ABSENT: Self = Self(NONE);

    pub(crate) fn is_present(self) -> bool {
        self.0 != NONE
    }
}

/// How suitable a connection is as the next to rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EvictionScore {
    /// It is busy.
    None,
    /// It is idle, but was active a moment ago.
    Low,
    /// It has been idle since an earlier tick.
    High,
}

/// Whether a connection is work. One that was never served is, because its first request may come
/// at any moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Load {
    Counts,
    Rests,
}

/// The keys of the connections that are served.
#[derive(Debug)]
pub(crate) struct ActiveSet {
    keys: Vec<u32>,
    cursor: usize,
    max: usize,
    /// The size of the set is published here.
    stats: WorkerStats,
}

impl ActiveSet {
    pub(crate) fn new(max: usize, stats: WorkerStats) -> Self {
        Self {
            keys: Vec::new(),
            cursor: 0,
            max,
            stats,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    pub(crate) fn insert(&mut self, key: usize) -> Index {
        self.keys.push(narrow(key));
        self.publish_size();
        Index(narrow(self.keys.len() - 1))
    }

    /// Removes the connection at this index. Returns the key of the connection that has this index
    /// now.
    #[must_use]
    pub(crate) fn remove(&mut self, index: Index) -> Option<usize> {
        self.keys.swap_remove(index.0 as usize);
        self.publish_size();
        self.keys.get(index.0 as usize).map(|&key| key as usize)
    }

    /// A connection is work, or no work any more, for workers that compare their loads.
    pub(crate) fn count(&self, load: Load) {
        match load {
            Load::Counts => self.stats.connection_works(),
            Load::Rests => self.stats.connection_rests(),
        }
    }

    fn publish_size(&self) {
        self.stats.set(Gauge::Served, self.len() as u64);
    }

    /// The key of a connection that is to rest, if too many are served.
    pub(crate) fn surplus(&mut self, score: impl Fn(usize) -> EvictionScore) -> Option<usize> {
        if self.keys.len() <= self.max {
            return None;
        }
        let mut second_best = None;
        for _ in 0..PROBES.min(self.keys.len()) {
            self.cursor = (self.cursor + 1) % self.keys.len();
            let key = self.keys[self.cursor] as usize;
            match score(key) {
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
    fn the_last_key_gets_the_index_of_a_removed_one() {
        let mut active = ActiveSet::new(2, WorkerStats::own());
        let indices = [7, 8, 9].map(|key| active.insert(key));
        assert_eq!(active.remove(indices[0]), Some(9));
        assert_eq!(active.remove(indices[1]), None, "9 has the index of 7");
        assert_eq!(active.remove(indices[0]), None);
    }

    #[test]
    fn above_the_limit_the_best_scored_connection_rests() {
        let mut active = ActiveSet::new(2, WorkerStats::own());
        for key in 0..2 {
            active.insert(key);
        }
        assert_eq!(
            active.surplus(|_| EvictionScore::High),
            None,
            "the limit is not exceeded"
        );
        active.insert(2);
        assert_eq!(
            active.surplus(|_| EvictionScore::None),
            None,
            "all are busy"
        );
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
    fn the_cursor_reaches_every_connection() {
        let mut active = ActiveSet::new(1, WorkerStats::own());
        for key in 0..100 {
            active.insert(key);
        }
        let mut seen: Vec<_> = (0..100)
            .filter_map(|_| active.surplus(|_| EvictionScore::High))
            .collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 100);
    }
}
