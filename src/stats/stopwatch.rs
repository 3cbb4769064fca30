//! Which requests are timed.
//!
//! To read the clock twice for each request would cost several times as much as all other counting
//! (the figures are in `benches/scoreboard.rs`). So every request is timed while there are few, and
//! one in [`SAMPLED`] while there are many. A sampled request counts as [`SAMPLED`] requests.

use std::cell::Cell;
use std::time::Instant;

/// How many requests are timed in each tick of the coarse clock, before only samples are timed.
/// They cost some microseconds.
const TIMED_PER_TICK: u32 = 64;

/// One in so many of the further requests is timed. A power of two.
const SAMPLED: u64 = 16;

/// When a request began, if it is timed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Timing {
    Untimed,
    Timed { begun: Instant, weight: u64 },
}

/// Decides which requests are timed.
#[derive(Debug)]
pub(crate) struct Stopwatch {
    tick: Cell<u64>,
    timed: Cell<u32>,
    seed: Cell<u64>,
}

impl Stopwatch {
    pub(crate) fn new() -> Self {
        Self {
            tick: Cell::new(0),
            timed: Cell::new(0),
            // Any seed will do. A pattern of requests must not meet a pattern of draws.
            seed: Cell::new(0x9E37_79B9_7F4A_7C15),
        }
    }

    /// A request begins in this tick of the coarse clock.
    #[inline]
    pub(crate) fn start(&self, tick: u64) -> Timing {
        match self.draw(tick) {
            0 => Timing::Untimed,
            weight => Timing::Timed {
                begun: Instant::now(),
                weight,
            },
        }
    }

    /// How many requests this one counts for; 0 if it is not timed.
    fn draw(&self, tick: u64) -> u64 {
        if self.tick.replace(tick) != tick {
            self.timed.set(0);
        }
        if self.timed.get() < TIMED_PER_TICK {
            self.timed.set(self.timed.get() + 1);
            return 1;
        }
        // A linear congruential generator. Its high bits are good enough for this.
        let seed = self
            .seed
            .get()
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        self.seed.set(seed);
        if seed >> (u64::BITS - SAMPLED.ilog2()) == 0 {
            SAMPLED
        } else {
            0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_requests_are_all_timed_and_many_are_sampled() {
        let stopwatch = Stopwatch::new();
        for tick in 1..10 {
            let few = (0..TIMED_PER_TICK).all(|_| stopwatch.draw(tick) == 1);
            assert!(few, "in tick {tick}");
        }
        let draws: Vec<_> = (0..160_000).map(|_| stopwatch.draw(9)).collect();
        let timed = draws.iter().filter(|&&weight| weight > 0).count();
        assert!((9_000..11_000).contains(&timed), "one in 16: {timed}");
        let weight: u64 = draws.iter().sum();
        assert!(
            weight.abs_diff(160_000) < 16_000,
            "they stand for all: {weight}"
        );
    }
}
