//! The supervisor's time. The master passes it in; the supervisor reads no clock.

use std::fmt;
use std::ops::Add;
use std::time::Duration;

use crate::codec::record;

/// A moment, as the time since the master started. Not an `Instant`: a test can write one down, and
/// a failure prints `2.5s` instead of an opaque number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Time(Duration);

record!(Time { 0 });

impl Time {
    /// The moment the master started.
    pub(crate) const ZERO: Self = Self(Duration::ZERO);

    /// How long after `earlier` this is; zero if it is not after it.
    pub(crate) fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

/// Saturates, so that a timeout of `Duration::MAX` means "never".
impl Add<Duration> for Time {
    type Output = Self;

    fn add(self, later: Duration) -> Self {
        Self(self.0.saturating_add(later))
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_as_a_duration_and_never_wraps() {
        let half_past_two = Time::ZERO + Duration::from_millis(2500);
        assert_eq!(half_past_two.to_string(), "2.5s");
        assert_eq!(Time::ZERO.since(half_past_two), Duration::ZERO);
        assert_eq!(
            (half_past_two + Duration::MAX).since(Time::ZERO),
            Duration::MAX
        );
    }
}
