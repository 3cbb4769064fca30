//! What came of a run.

use std::fmt;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

/// The longest time that is told apart from longer ones. No run waits as long.
const LATENCY_MAX: Duration = Duration::from_secs(120);

named! {
    /// How a request failed.
    enum Failure {
        /// No socket listened, or the connection could not be made.
        Connect = "connect",
        /// The connection was reset, or broke otherwise, before the response was whole.
        Reset = "reset",
        /// The connection ended before the response was whole.
        Eof = "eof",
        /// No whole response in time.
        Silent = "silent",
        /// A status other than 200, or no HTTP/1.1.
        Status = "status",
        /// A head that is too long or without Content-Length.
        Head = "head",
        /// A body of another length than it should have.
        Length = "length",
        /// Other bytes than there should be.
        Body = "body",
        /// The handshake failed, or what came after it was no TLS.
        Tls = "tls",
        /// A handshake that resumed a session, or took a round more, where none should.
        NotFull = "not full",
        /// A full handshake where a session should have been resumed.
        NotResumed = "not resumed",
    }
}

/// Failed requests by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Failures([u64; Failure::ALL.len()]);

impl Failures {
    pub(crate) fn add(&mut self, failure: Failure, count: u64) {
        self.0[failure as usize] += count;
    }

    pub(crate) fn count(&self, failure: Failure) -> u64 {
        self.0[failure as usize]
    }

    pub(crate) fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        for (ours, theirs) in self.0.iter_mut().zip(other.0) {
            *ours += theirs;
        }
    }
}

/// `none`, or like `2 reset, 1 eof`.
impl fmt::Display for Failures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds = Failure::ALL.iter().filter(|kind| self.count(**kind) > 0);
        let kinds = kinds.map(|&kind| format!("{} {}", self.count(kind), kind.name()));
        match kinds.collect::<Vec<_>>().join(", ").as_str() {
            "" => f.write_str("none"),
            kinds => f.write_str(kinds),
        }
    }
}

/// What came of a run.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    /// Right responses.
    pub(crate) answered: u64,
    pub(crate) failures: Failures,
    /// Whether there were more failures than the plan's budget, which ends a run.
    pub(crate) is_over_budget: bool,
    /// From the first request to the last response.
    pub(crate) elapsed: Duration,
    /// The length of the last response, head and body. A server that sends more does more.
    pub(crate) response_bytes: usize,
    /// In nanoseconds, of right responses and, at what they had waited by then, of silent requests.
    /// From sending in a closed loop, from when it should have been sent in an open one.
    pub(crate) latencies: Histogram<u64>,
    pub(super) last_response: Instant,
}

impl Outcome {
    pub(super) fn new() -> Self {
        Self {
            answered: 0,
            failures: Failures::default(),
            is_over_budget: false,
            elapsed: Duration::ZERO,
            response_bytes: 0,
            latencies: empty_histogram(),
            last_response: Instant::now(),
        }
    }

    /// Right responses in a second.
    pub(crate) fn per_second(&self) -> f64 {
        self.answered as f64 / self.elapsed.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    /// What this share of the requests had at most, such as 0.99.
    pub(crate) fn latency(&self, quantile: f64) -> Duration {
        Duration::from_nanos(self.latencies.value_at_quantile(quantile))
    }

    pub(super) fn begin(&mut self, start: Instant) {
        self.answered = 0;
        self.failures = Failures::default();
        self.latencies.reset();
        self.last_response = start;
    }

    pub(super) fn answered_now(&mut self, since: Instant) {
        self.answered += 1;
        self.last_response = Instant::now();
        self.record(self.last_response - since, 1);
    }

    /// It is unknown how much longer they would have taken. Without them the slowest would be left
    /// out of the latencies.
    pub(super) fn silent(&mut self, since: Instant, requests: u64) {
        self.failures.add(Failure::Silent, requests);
        self.record(since.elapsed(), requests);
    }

    fn record(&mut self, latency: Duration, requests: u64) {
        let nanos = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        self.latencies.saturating_record_n(nanos.max(1), requests);
    }
}

/// Three digits are more than a busy machine can repeat.
fn empty_histogram() -> Histogram<u64> {
    let max = u64::try_from(LATENCY_MAX.as_nanos()).expect("two minutes are few nanoseconds");
    Histogram::new_with_max(max, 3).expect("the bounds are in order")
}
