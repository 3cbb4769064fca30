//! Which case a long run is at, how many are left, and for how long.

use std::fmt;
use std::time::{Duration, Instant};

pub(crate) struct Progress {
    start: Instant,
    total: Expected,
    done: Expected,
    cases: usize,
    begun: usize,
}

/// Cases and how long they should take altogether.
#[derive(Clone, Copy, Default)]
pub(crate) struct Expected {
    pub(crate) cases: usize,
    pub(crate) time: Duration,
}

impl Progress {
    pub(crate) fn new(total: Expected) -> Self {
        Self {
            start: Instant::now(),
            cases: total.cases,
            total,
            done: Expected::default(),
            begun: 0,
        }
    }

    /// A case begins that should take `time`. What was expected of those before is corrected by
    /// what they took.
    pub(crate) fn begin(&mut self, case: impl fmt::Display, time: Duration) {
        let left = self.total.time.saturating_sub(self.done.time);
        let pace = match self.done.time.is_zero() {
            true => 1.0,
            false => self.start.elapsed().div_duration_f64(self.done.time),
        };
        let left = left.mul_f64(pace).as_secs();
        self.begun += 1;
        eprintln!(
            "[{:>4}/{}] {case}; {} left, {} min {:02} s",
            self.begun,
            self.cases,
            self.cases.saturating_sub(self.begun),
            left / 60,
            left % 60,
        );
        self.done.cases += 1;
        self.done.time += time;
    }
}
