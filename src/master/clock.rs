//! The supervisor's time, and what the monotonic clock reads at it. The time stands still while the
//! master is stopped (SIGSTOP, a frozen cgroup): the workers may be stopped too, and no deadline
//! must pass that they could not keep.

use std::time::Duration;

use crate::supervisor::Time;
use crate::sys::clock;

/// A master that wakes this much too late was stopped, or got no CPU.
const STOPPED_MIN: Duration = Duration::from_secs(1);

/// How long the master sleeps at most while a deadline waits. A stop that is longer than the time
/// that is left then takes no more of it.
const SLEEP_MAX: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Clock {
    /// The supervisor's time at `started`.
    epoch: Time,
    /// On the monotonic clock, as are the others. It is later by the time for which the master was
    /// stopped.
    started: Duration,
    /// When the master was last seen awake.
    awake: Duration,
    /// When it wanted to be awake at the latest.
    wakes: Option<Duration>,
}

impl Clock {
    /// A clock that reads `epoch` now.
    pub(super) fn starting_at(epoch: Time) -> Self {
        let started = clock::monotonic();
        Self {
            epoch,
            started,
            awake: started,
            wakes: None,
        }
    }

    pub(super) fn now(&self) -> Time {
        self.epoch + clock::monotonic().saturating_sub(self.started)
    }

    /// The master sleeps until then, or until something happens. A task that was due before the
    /// master woke became due in this turn.
    pub(super) fn sleeps_until(&mut self, wakes: Option<Duration>) {
        self.wakes = wakes.map(|wakes| wakes.max(self.awake));
    }

    /// When the master wakes at the latest if a deadline waits.
    pub(super) fn latest_wake(&self) -> Duration {
        self.awake.saturating_add(SLEEP_MAX)
    }

    /// The master is awake.
    pub(super) fn is_awake(&mut self, now: Duration) {
        let late = self.wakes.map(|wakes| now.saturating_sub(wakes));
        if let Some(late) = late.filter(|&late| late >= STOPPED_MIN) {
            tracing::info!("the master was stopped for {late:.1?}; no deadline has come nearer");
            self.started = self.started.saturating_add(late);
            self.wakes = Some(now);
        }
        self.awake = now;
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

    #[test]
    fn it_stands_still_while_the_master_is_stopped() {
        let mut clock = Clock::starting_at(Time::ZERO);
        let started = clock.started;
        assert_eq!(clock.latest_wake(), started + SLEEP_MAX);
        clock.sleeps_until(Some(clock.latest_wake()));
        // Late, but awake.
        let late = started + SLEEP_MAX + STOPPED_MIN / 2;
        clock.is_awake(late);
        assert_eq!(clock.monotonic_at(Time::ZERO), started);
        clock.sleeps_until(Some(clock.latest_wake()));
        let minute = Duration::from_secs(60);
        for now in [late + SLEEP_MAX + minute; 2] {
            clock.is_awake(now);
            assert_eq!(clock.monotonic_at(Time::ZERO), started + minute);
        }
        clock.sleeps_until(None);
        clock.is_awake(clock.awake + minute);
        assert_eq!(clock.monotonic_at(Time::ZERO), started + minute);
    }

    /// The last view of an admin process was sent an hour ago, and a signal has changed the state.
    #[test]
    fn it_goes_on_if_a_task_is_due_since_long_ago() {
        let mut clock = Clock::starting_at(Time::ZERO);
        let (due, now) = (clock.started, clock.started + Duration::from_secs(3600));
        clock.is_awake(now);
        clock.sleeps_until(Some(due));
        clock.is_awake(now);
        assert_eq!(clock.monotonic_at(Time::ZERO), due);
        // A stop between waking and sleeping is one all the same.
        let minute = Duration::from_secs(60);
        clock.sleeps_until(Some(due));
        clock.is_awake(now + minute);
        assert_eq!(clock.monotonic_at(Time::ZERO), due + minute);
    }
}
