//! For `benches/scoreboard.rs`.

use std::sync::atomic::AtomicU64;

use crate::stats::{Count, Stopwatch, WORDS, Words, WorkerStats};

/// The counters of a worker, and what decides which requests are timed.
#[derive(Debug)]
pub struct Counting {
    stats: WorkerStats,
    stopwatch: Stopwatch,
}

impl Counting {
    #[expect(clippy::new_without_default, reason = "it leaks a page")]
    pub fn new() -> Self {
        let words: Words = [const { AtomicU64::new(0) }; WORDS];
        Self {
            // As the counters of a worker: shared, and never given back.
            stats: WorkerStats::shared(Box::leak(Box::new(words))),
            stopwatch: Stopwatch::new(),
        }
    }

    /// Counts all that is counted of one request and its response.
    #[inline]
    pub fn request(&self, tick: u64) {
        self.stats.add(Count::BytesIn, 100);
        self.stats.request_begins();
        let timing = self.stopwatch.start(tick);
        self.stats.add(Count::Success, 1);
        self.stats.request_ends(timing);
        self.stats.add(Count::BytesOut, 200);
    }
}
