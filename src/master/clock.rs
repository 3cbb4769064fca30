//! The supervisor's time, and what the monotonic clock reads at it.

use std::time::Duration;

use crate::supervisor::Time;
use crate::sys::clock;

#[derive(Debug)]
pub(super) struct Clock {
    /// The supervisor's time at `started`.
    epoch: Time,
    /// On the monotonic clock.
    started: Duration,
}

impl Clock {
    /// A clock that reads `epoch` now.
    pub(super) fn starting_at(epoch: Time) -> Self {
        Self {
            epoch,
            started: clock::monotonic(),
        }
    }

    pub(super) fn now(&self) -> Time {
        self.epoch + clock::monotonic().saturating_sub(self.started)
    }

    /// What the monotonic clock reads at this time.
    pub(super) fn monotonic_at(&self, time: Time) -> Duration {
        self.started.saturating_add(time.since(self.epoch))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_reached_when_the_monotonic_clock_reads_it() {
        let epoch = Time::ZERO + Duration::from_secs(7);
        let clock = Clock::starting_at(epoch);
        assert_eq!(clock.monotonic_at(epoch), clock.started);
        let later = epoch + Duration::from_secs(2);
        assert_eq!(
            clock.monotonic_at(later),
            clock.started + Duration::from_secs(2)
        );
        assert_eq!(clock.monotonic_at(epoch + Duration::MAX), Duration::MAX);
        assert!(clock.now() >= epoch && clock.now() < later);
    }
}
