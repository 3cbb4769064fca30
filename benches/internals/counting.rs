//! For `benches/scoreboard.rs`.

use std::sync::atomic::AtomicU64;

use crate::row::{Count, Row, Stopwatch, WORDS, Words};

/// A row of the scoreboard, and what decides which requests are timed.
#[derive(Debug)]
pub struct Counting {
    row: Row,
    stopwatch: Stopwatch,
}

impl Counting {
    #[expect(clippy::new_without_default, reason = "it leaks a row")]
    pub fn new() -> Self {
        let words: Words = [const { AtomicU64::new(0) }; WORDS];
        Self {
            // As a worker's row is: shared, and never given back.
            row: Row::shared(Box::leak(Box::new(words))),
            stopwatch: Stopwatch::new(),
        }
    }

    /// Counts all that is counted of one request and its response.
    #[inline]
    pub fn request(&self, tick: u64) {
        self.row.add(Count::BytesIn, 100);
        self.row.request_begins();
        let timing = self.stopwatch.start(tick);
        self.row.add(Count::Success, 1);
        self.row.request_ends(timing);
        self.row.add(Count::BytesOut, 200);
    }
}
