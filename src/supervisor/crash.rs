//! Crashes are counted twice: for the server in a sliding window, and for each slot in a row.

use std::collections::VecDeque;
use std::time::Duration;

use crate::codec::record;
use crate::policy::{Backoff, CrashLimit};
use crate::supervisor::time::Time;

/// The times of the latest crashes, of all slots. It holds at most one more than the limit, because
/// that one ends the server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct CrashWindow {
    times: VecDeque<Time>,
}

record!(CrashWindow { times });

/// What a crash means for the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It goes on.
    Bearable,
    /// It must end: so many crashes are more than the limit allows.
    TooMany { crashes: u32 },
}

impl CrashWindow {
    /// Counts a crash. Clean exits are not counted, so that a server may recycle its workers.
    pub(super) fn note(&mut self, now: Time, limit: CrashLimit) -> Verdict {
        self.times.retain(|&time| now.since(time) <= limit.per);
        self.times.push_back(now);
        match u32::try_from(self.times.len()) {
            Ok(crashes) if crashes <= limit.max => Verdict::Bearable,
            Ok(crashes) => Verdict::TooMany { crashes },
            Err(_) => Verdict::TooMany { crashes: u32::MAX },
        }
    }

    /// Forgets the oldest crashes beyond a limit that may be lower than before.
    pub(super) fn truncate(&mut self, limit: CrashLimit) {
        let most = usize::try_from(limit.max).unwrap_or(usize::MAX);
        let too_many = self.times.len().saturating_sub(most);
        self.times.drain(..too_many);
    }

    #[cfg(any(test, debug_assertions))]
    pub(super) fn len(&self) -> usize {
        self.times.len()
    }
}

/// How often a slot has crashed, or its worker has left too soon, since a worker of it last served
/// for long enough.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Strikes(u32);

record!(Strikes { 0 });

impl Strikes {
    /// Counts one more, and returns how long the slot must rest. It need not rest the first time,
    /// because most crashes happen alone.
    pub(super) fn add(&mut self, backoff: &Backoff, jitter: &mut Jitter) -> Option<Duration> {
        let doublings = self.0.checked_sub(1);
        self.0 = self.0.saturating_add(1);
        let factor = 1_u32.checked_shl(doublings?).unwrap_or(u32::MAX);
        let pause = backoff.first.saturating_mul(factor).min(backoff.max);
        Some(jitter.shorten(pause))
    }

    /// Counts from zero again, if a worker has served for long enough.
    pub(super) fn served(&mut self, served: Duration, backoff: &Backoff) {
        if served >= backoff.reset_after {
            *self = Self::default();
        }
    }
}

/// Random numbers from a seed (xorshift64*), so that the supervisor stays pure.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Jitter(u64);

impl Jitter {
    pub(super) fn new(seed: u64) -> Self {
        // From zero xorshift would give only zeroes.
        Self(seed.max(1))
    }

    /// A duration between half of `pause` and all of it. Slots that crash together, because their
    /// database is gone, must not come back together.
    fn shorten(&mut self, pause: Duration) -> Duration {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let high = (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32) as u32;
        let half = pause / 2;
        half.saturating_add(half.mul_f64(f64::from(high) / f64::from(u32::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: CrashLimit = CrashLimit {
        max: 2,
        per: Duration::from_secs(60),
    };

    fn at(seconds: u64) -> Time {
        Time::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn only_more_than_the_limit_within_the_window_is_too_many() {
        let mut window = CrashWindow::default();
        assert_eq!(window.note(at(0), LIMIT), Verdict::Bearable);
        assert_eq!(window.note(at(1), LIMIT), Verdict::Bearable);
        assert_eq!(
            window.note(at(61), LIMIT),
            Verdict::Bearable,
            "the first is a minute old"
        );
        assert_eq!(window.note(at(61), LIMIT), Verdict::TooMany { crashes: 3 });
        assert_eq!(
            window.note(at(200), LIMIT),
            Verdict::Bearable,
            "all others are old"
        );
        assert_eq!(window.len(), 1);
    }

    #[test]
    fn pauses_double_from_the_second_crash_on_up_to_the_longest() {
        let backoff = Backoff::default();
        let (mut strikes, mut jitter) = (Strikes::default(), Jitter::new(7));
        assert_eq!(strikes.add(&backoff, &mut jitter), None);
        for millis in [
            100, 200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000,
        ] {
            let whole = Duration::from_millis(millis);
            let pause = strikes
                .add(&backoff, &mut jitter)
                .expect("not the first crash");
            assert!(
                pause >= whole / 2 && pause <= whole,
                "{pause:?} is not within {whole:?}"
            );
        }
    }

    #[test]
    fn no_number_of_crashes_and_no_policy_overflows() {
        let backoff = Backoff {
            first: Duration::MAX,
            max: Duration::MAX,
            ..Backoff::default()
        };
        let (mut strikes, mut jitter) = (Strikes(u32::MAX), Jitter::new(0));
        for _ in 0..1000 {
            assert!(strikes.add(&backoff, &mut jitter).is_some());
        }
    }

    #[test]
    fn after_a_worker_has_served_long_enough_crashes_count_from_zero() {
        let backoff = Backoff::default();
        let (mut strikes, mut jitter) = (Strikes(5), Jitter::new(7));
        strikes.served(Duration::from_millis(59_999), &backoff);
        assert_eq!(strikes, Strikes(5));
        strikes.served(Duration::from_secs(60), &backoff);
        assert_eq!(strikes.add(&backoff, &mut jitter), None);
    }
}
