//! The pause between the ask to end a server and its drain. Load balancers learn in it that the
//! server is not ready any more, while it still serves.
//!
//! | | first `Stop::Drain` | later `Stop::Drain` | `Interrupt`, `Stop::Now` | the pause is over |
//! |---|---|---|---|---|
//! | no pause runs | begins the pause | - | goes through | - |
//! | a pause runs | - | ends the pause, after a second | ends the pause | `Stop::Drain` |

use std::time::Duration;

use crate::codec::record;
use crate::policy::Stop;
use crate::supervisor::{Event, Time};

/// As for two asks to end the server.
const SAME_ASK: Duration = Duration::from_secs(1);

/// Stands between the master and its supervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PreStop {
    delay: Duration,
    pause: Pause,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pause {
    NotAsked,
    Running { since: Time },
    Over,
}

record!(enum Pause { 0 = NotAsked, 1 = Running { since }, 2 = Over });

/// What becomes of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Passage {
    /// The supervisor gets it.
    Pass,
    /// A pause begins.
    Begin,
    /// It repeats the ask that began the pause.
    Drop,
}

impl PreStop {
    pub(crate) fn new(delay: Duration, pause: Pause) -> Self {
        Self { delay, pause }
    }

    /// Makes the pause at least this long.
    pub(crate) fn last_at_least(&mut self, delay: Duration) {
        self.delay = self.delay.max(delay);
    }

    /// What the next image has to know.
    pub(crate) fn pause(&self) -> Pause {
        self.pause
    }

    pub(crate) fn is_running(&self) -> bool {
        matches!(self.pause, Pause::Running { .. })
    }

    pub(crate) fn on_event(&mut self, event: Event, now: Time) -> Passage {
        match (event, self.pause) {
            (Event::Stop(Stop::Drain), Pause::NotAsked) if !self.delay.is_zero() => {
                self.pause = Pause::Running { since: now };
                Passage::Begin
            }
            (Event::Stop(Stop::Drain), Pause::Running { since }) if now.since(since) < SAME_ASK => {
                Passage::Drop
            }
            (Event::Stop(_) | Event::Interrupt | Event::HookRefused, _) => {
                self.pause = Pause::Over;
                Passage::Pass
            }
            _ => Passage::Pass,
        }
    }

    /// The server drains, for whatever reason: there is nothing to wait for.
    pub(crate) fn end(&mut self) {
        self.pause = Pause::Over;
    }

    /// When to call [`PreStop::on_timeout`].
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        match self.pause {
            Pause::Running { since } => Some(since + self.delay),
            Pause::NotAsked | Pause::Over => None,
        }
    }

    /// The event for the supervisor, if the pause is over.
    pub(crate) fn on_timeout(&mut self, now: Time) -> Option<Event> {
        let is_over = self.next_deadline().is_some_and(|deadline| deadline <= now);
        is_over.then(|| {
            self.pause = Pause::Over;
            Event::Stop(Stop::Drain)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAIN: Event = Event::Stop(Stop::Drain);

    fn at(millis: u64) -> Time {
        Time::ZERO + Duration::from_millis(millis)
    }

    fn asked() -> PreStop {
        let mut pre_stop = PreStop::new(Duration::from_secs(5), Pause::NotAsked);
        assert_eq!(pre_stop.on_event(Event::Reload, at(0)), Passage::Pass);
        assert_eq!(pre_stop.on_event(DRAIN, at(0)), Passage::Begin);
        pre_stop
    }

    #[test]
    fn the_drain_follows_when_the_pause_is_over() {
        let mut pre_stop = asked();
        assert_eq!(pre_stop.next_deadline(), Some(at(5000)));
        assert_eq!(pre_stop.on_timeout(at(4999)), None);
        assert_eq!(pre_stop.on_event(Event::Upgrade, at(4999)), Passage::Pass);
        assert!(pre_stop.is_running());
        assert_eq!(pre_stop.on_timeout(at(5000)), Some(DRAIN));
        assert_eq!(pre_stop.next_deadline(), None);
        assert_eq!(pre_stop.on_event(DRAIN, at(6000)), Passage::Pass);
    }

    #[test]
    fn a_second_ask_ends_the_pause_unless_it_repeats_the_first() {
        let mut pre_stop = asked();
        assert_eq!(pre_stop.on_event(DRAIN, at(999)), Passage::Drop);
        assert_eq!(pre_stop.on_event(DRAIN, at(1000)), Passage::Pass);
        assert!(!pre_stop.is_running());
        for at_once in [Event::Interrupt, Event::Stop(Stop::Now), Event::HookRefused] {
            let mut pre_stop = asked();
            assert_eq!(pre_stop.on_event(at_once, at(1)), Passage::Pass);
            assert_eq!(pre_stop.on_timeout(at(9000)), None);
        }
    }

    #[test]
    fn without_a_delay_every_event_passes() {
        let mut pre_stop = PreStop::new(Duration::ZERO, Pause::NotAsked);
        assert_eq!(pre_stop.on_event(DRAIN, at(0)), Passage::Pass);
    }

    #[test]
    fn a_pause_may_have_to_be_longer() {
        for (delay, least, over) in [(0, 1200, 1200), (500, 1200, 1200), (5000, 1200, 5000)] {
            let mut pre_stop = PreStop::new(Duration::from_millis(delay), Pause::NotAsked);
            pre_stop.last_at_least(Duration::from_millis(least));
            assert_eq!(pre_stop.on_event(DRAIN, at(0)), Passage::Begin);
            assert_eq!(pre_stop.next_deadline(), Some(at(over)));
        }
    }
}
