//! The supervisor's time.

use std::time::Instant;

use crate::supervisor::Time;

#[derive(Debug)]
pub(super) struct Clock {
    /// The supervisor's time at `started`.
    epoch: Time,
    started: Instant,
}

impl Clock {
    /// A clock that reads `epoch` now.
    pub(super) fn starting_at(epoch: Time) -> Self {
        Self {
            epoch,
            started: Instant::now(),
        }
    }

    pub(super) fn now(&self) -> Time {
        self.epoch + self.started.elapsed()
    }
}
