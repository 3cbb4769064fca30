//! How long requests take, in buckets whose width grows with the time: eight buckets for each
//! doubling, from 1 µs to about a minute. A quantile is the middle of its bucket, so it is wrong by
//! at most 6.3 %. The first buckets are one microsecond wide.

use std::time::Duration;

/// The number of buckets for each doubling, as a power of two.
const FINENESS: u32 = 3;

/// Everything from 2^26 µs (67 s) on goes into one bucket.
const DOUBLINGS: u32 = 26;

/// The number of buckets. The last one is for everything that is longer.
pub(crate) const BUCKETS: usize = (((DOUBLINGS - FINENESS + 1) << FINENESS) + 1) as usize;

/// The bucket of a duration.
pub(crate) fn bucket(took: Duration) -> usize {
    let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
    let fine = 1 << FINENESS;
    if micros < fine {
        return micros as usize;
    }
    let doubling = micros.ilog2();
    if doubling >= DOUBLINGS {
        return BUCKETS - 1;
    }
    let above = doubling - FINENESS;
    // The bits after the highest one are the part of the doubling.
    let part = (micros >> above) - fine;
    (((above + 1) as usize) << FINENESS) + part as usize
}

/// The shortest duration of a bucket, in µs.
fn floor(bucket: usize) -> u64 {
    let fine = 1 << FINENESS;
    match bucket >> FINENESS {
        0 => bucket as u64,
        above => ((fine + bucket % fine) as u64) << (above - 1),
    }
}

/// The number of requests in each bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Latencies([u64; BUCKETS]);

impl Latencies {
    pub(crate) const fn new() -> Self {
        Self([0; BUCKETS])
    }

    pub(crate) fn add(&mut self, bucket: usize, hits: u64) {
        self.0[bucket] = self.0[bucket].saturating_add(hits);
    }

    /// The requests that came after those of `earlier`.
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        let pairs = self.0.iter().zip(&earlier.0);
        let mut later = Self::new();
        for (hits, (all, before)) in later.0.iter_mut().zip(pairs) {
            *hits = all.saturating_sub(*before);
        }
        later
    }

    /// How many requests took less than this time, which is the end of a bucket.
    pub(crate) fn below(&self, micros: u64) -> u64 {
        let end = bucket(Duration::from_micros(micros));
        debug_assert_eq!(floor(end), micros, "no bucket ends there");
        self.0[..end].iter().copied().fold(0, u64::saturating_add)
    }

    /// How many requests there were.
    pub(crate) fn all(&self) -> u64 {
        self.0.iter().copied().fold(0, u64::saturating_add)
    }

    /// The time that `percent` of all requests did not exceed; zero if there were no requests.
    pub(crate) fn quantile(&self, percent: u8) -> Duration {
        let all: u128 = self.0.iter().copied().map(u128::from).sum();
        let rank = (all * u128::from(percent)).div_ceil(100).max(1);
        let mut seen = 0;
        for (bucket, hits) in self.0.iter().enumerate() {
            seen += u128::from(*hits);
            if seen >= rank {
                return middle(bucket);
            }
        }
        Duration::ZERO
    }
}

fn middle(bucket: usize) -> Duration {
    let from = floor(bucket);
    if bucket == BUCKETS - 1 {
        // It has no end, and so no middle.
        return Duration::from_micros(from);
    }
    Duration::from_nanos((from + floor(bucket + 1)) * 500)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_follow_each_other_without_a_gap() {
        for at in 0..BUCKETS {
            assert_eq!(bucket(Duration::from_micros(floor(at))), at);
        }
        for at in 1..BUCKETS {
            let last_before = Duration::from_micros(floor(at)) - Duration::from_nanos(1);
            assert_eq!(bucket(last_before), at - 1);
        }
        assert_eq!(bucket(Duration::MAX), BUCKETS - 1);
        assert!(floor(BUCKETS - 1) >= 60_000_000, "a minute");
    }

    /// Any duration from 8 µs to a minute, told as a quantile, is within 6.3 % of itself.
    #[test]
    fn a_quantile_is_nearly_right() {
        let mut micros = 8.0_f64;
        while micros < 6.0e7 {
            let took = Duration::from_nanos((micros * 1000.0) as u64);
            let mut latencies = Latencies::new();
            latencies.add(bucket(took), 1);
            let told = latencies.quantile(50).as_secs_f64();
            let error = (told / took.as_secs_f64() - 1.0).abs();
            assert!(error <= 0.063, "{took:?} is told as {told} s");
            micros *= 1.003;
        }
    }

    #[test]
    fn the_requests_of_an_interval_are_those_between_two_moments() {
        let mut earlier = Latencies::new();
        earlier.add(bucket(Duration::from_secs(1)), 98);
        let mut now = earlier.clone();
        assert_eq!(now.since(&earlier), Latencies::new());
        now.add(bucket(Duration::from_millis(1)), 2);
        let since = now.since(&earlier);
        assert_eq!(since.all(), 2);
        assert!(since.quantile(99) < Duration::from_millis(2));
    }

    #[test]
    fn quantiles_are_ranks() {
        let mut latencies = Latencies::new();
        assert_eq!(latencies.quantile(99), Duration::ZERO);
        latencies.add(bucket(Duration::from_millis(1)), 98);
        latencies.add(bucket(Duration::from_secs(1)), 2);
        assert!(latencies.quantile(98) < Duration::from_millis(2));
        assert!(latencies.quantile(99) > Duration::from_millis(900));
        assert!(latencies.quantile(50) > Duration::from_micros(900));
    }
}
