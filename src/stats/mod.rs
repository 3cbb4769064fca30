//! What one worker counts while it serves, and its state.
//!
//! The counters fill one page. Each worker writes its own page, and the master reads the pages of
//! all workers, by the scoreboard. A server without a master has a page that no other process sees.
//! Every word is an atomic, because two processes see it. Every access is relaxed, because no word
//! guards another, but for the heartbeat. Each word has one writer, so to count costs a load and a
//! store.

mod latency;
mod stopwatch;
mod totals;

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU64, fence};
use std::time::Duration;

pub(crate) use self::latency::Latencies;
pub(crate) use self::stopwatch::{Stopwatch, Timing};
pub(crate) use self::totals::Sum;
pub use self::totals::Totals;

/// The words of a page. It is a page of most machines, so no two workers share a cache line.
pub(crate) const WORDS: usize = 512;

/// The memory of a page.
pub(crate) type Words = [AtomicU64; WORDS];

/// Where the gauges begin. The words before them say which layout this is. The first gauge has
/// word 7, which is in a line of the cache that is seldom written: siblings read it.
pub(crate) const GAUGES: usize = 4;

/// Where the counts begin and end. There is room for more.
const COUNTS: usize = 16;
const COUNTS_END: usize = COUNTS + Count::ALL.len();

/// Where the latencies begin.
const LATENCIES: usize = 64;

const _: () = assert!(GAUGES + (Gauge::ConnectionsMax as usize) < COUNTS);
const _: () = assert!(COUNTS_END <= LATENCIES && LATENCIES + latency::BUCKETS <= WORDS);

/// The counters of a worker, to write to. Clones have the same page.
#[derive(Clone, Debug)]
pub(crate) struct WorkerStats(Memory);

#[derive(Clone, Debug)]
enum Memory {
    /// A page of the scoreboard, mapped until the process ends.
    Shared(&'static Words),
    /// Memory that no other process sees.
    Own(Arc<Words>),
}

/// A number that only grows. The discriminants are part of the layout of the scoreboard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Count {
    /// Connections that were accepted.
    Connections,
    /// Requests whose head was complete and well-formed.
    Requests,
    /// Responses 1xx, 2xx, 3xx, 4xx and 5xx, of handlers and of the server itself; in HTTP/1 also
    /// the responses to bytes that are no head and so no request.
    Informational,
    Success,
    Redirection,
    ClientError,
    ServerError,
    BytesIn,
    BytesOut,
    /// The same after an upgrade to another protocol. See [`WorkerStats::add_shared`].
    TunnelBytesIn,
    TunnelBytesOut,
    /// Panics of handlers and of response bodies.
    Panics,
    /// Responses whose body failed before its end, so that the connection was aborted.
    BrokenResponses,
    /// Heads that did not arrive in time, and connections that sent nothing.
    HeaderTimeouts,
    /// Request bodies of which no more arrived.
    BodyTimeouts,
    /// Clients that accepted no more of a response.
    WriteTimeouts,
    /// Connections that were closed because they were idle.
    IdleTimeouts,
    /// Connections that were still open at the drain timeout.
    Cut,
    /// TLS handshakes that succeeded, and those of them that resumed a session.
    TlsHandshakes,
    TlsResumed,
    /// TLS handshakes that failed because of what the client sent. A handshake that takes too long
    /// counts as a header timeout, and one in which the client sends nothing does not count.
    TlsHandshakeFailures,
    /// Connections that were handed over to another worker, and that came from another worker.
    HandedOver,
    TakenOver,
    /// Connections that were ended because of their age or of the number of their requests.
    Spent,
    /// Upgraded connections that a drain has cut after their grace time.
    UpgradesCut,
    /// Updates of the app's own metrics that went nowhere, and series that the sums had no room
    /// for.
    OwnMetricsRefused,
    /// Connections that were handed over, without a drain, to a worker that served fewer or was
    /// less busy.
    Balanced,
    /// New connections that a sibling has accepted, and given to this worker before it read a byte.
    /// Only this worker counts them as accepted.
    Placed,
    /// New connections that were closed because their client had as many as it may have.
    ClientLimited,
    /// Idle connections that were closed for new ones, because the worker had as many as it may
    /// have.
    Evicted,
    /// How long the requests took together that are in the buckets of latencies.
    LatencyMicros,
}

/// A number that rises and falls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Gauge {
    /// Open connections that are work: all of them but those that rest after they were served.
    Load = 3,
    Pid,
    State,
    Connections,
    /// Requests that have begun and whose response is not finished.
    Requests,
    /// The longest delay of the event loop.
    LongestStallMillis,
    /// When the event loop last ran, on the monotonic clock.
    HeartbeatMillis,
    /// Connections that are served and are not idle.
    Served,
    /// How many connections the worker may have open.
    ConnectionsMax,
}

/// The state of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum State {
    Starting,
    Serving,
    Draining,
}

impl WorkerStats {
    /// The counters in a page of the scoreboard.
    pub(crate) fn shared(words: &'static Words) -> Self {
        Self(Memory::Shared(words))
    }

    /// The counters of a server that has no scoreboard.
    pub(crate) fn own() -> Self {
        Self(Memory::Own(Arc::new([const { AtomicU64::new(0) }; WORDS])))
    }

    /// Adds `more` to a count. Only the thread of the worker may call it.
    #[inline]
    pub(crate) fn add(&self, count: Count, more: u64) {
        add(self.count_word(count), more);
    }

    /// Adds `more` to a count, on any thread: an upgraded stream may move to another thread, and an
    /// accepted connection may be dropped there. It costs several times as much as
    /// [`WorkerStats::add`].
    pub(crate) fn add_shared(&self, count: Count, more: u64) {
        self.count_word(count).fetch_add(more, Relaxed);
    }

    pub(crate) fn count(&self, count: Count) -> u64 {
        self.count_word(count).load(Relaxed)
    }

    pub(crate) fn set(&self, gauge: Gauge, value: u64) {
        self.gauge_word(gauge).store(value, Relaxed);
    }

    pub(crate) fn set_state(&self, state: State) {
        self.set(Gauge::State, state as u64);
    }

    /// Writes the heartbeat, in milliseconds of the monotonic clock.
    pub(crate) fn beat(&self, millis: u64) {
        self.set(Gauge::HeartbeatMillis, millis);
        // Pairs with the fence in `StatsView::heartbeat`: a reader that has seen a connection that
        // began later also sees this heartbeat.
        fence(Release);
    }

    pub(crate) fn gauge(&self, gauge: Gauge) -> u64 {
        self.gauge_word(gauge).load(Relaxed)
    }

    /// A connection begins. `origin` is [`Count::Connections`] or [`Count::TakenOver`]. As
    /// [`WorkerStats::add_shared`].
    pub(crate) fn connection_begins(&self, origin: Count) {
        self.add_shared(origin, 1);
        self.gauge_word(Gauge::Connections).fetch_add(1, Relaxed);
        self.connection_works();
    }

    /// A connection ends. As [`WorkerStats::add_shared`].
    pub(crate) fn connection_ends(&self) {
        self.gauge_word(Gauge::Connections).fetch_sub(1, Relaxed);
        self.connection_rests();
    }

    /// A connection that rested is work again, or ends now. As [`WorkerStats::add_shared`].
    pub(crate) fn connection_works(&self) {
        self.gauge_word(Gauge::Load).fetch_add(1, Relaxed);
    }

    /// A connection rests. As [`WorkerStats::add_shared`].
    pub(crate) fn connection_rests(&self) {
        self.gauge_word(Gauge::Load).fetch_sub(1, Relaxed);
    }

    /// A request begins.
    #[inline]
    pub(crate) fn request_begins(&self) {
        self.add(Count::Requests, 1);
        add(self.gauge_word(Gauge::Requests), 1);
    }

    /// A request ends.
    #[inline]
    pub(crate) fn request_ends(&self, timing: Timing) {
        let word = self.gauge_word(Gauge::Requests);
        word.store(word.load(Relaxed).saturating_sub(1), Relaxed);
        if let Timing::Timed { begun, weight } = timing {
            self.note_latency(begun.elapsed(), weight);
        }
    }

    /// Counts the time that so many requests took.
    pub(crate) fn note_latency(&self, took: Duration, requests: u64) {
        add(&self.words()[LATENCIES + latency::bucket(took)], requests);
        // Rounded, so that many short requests are not too short together.
        let micros = took.saturating_add(Duration::from_nanos(500)).as_micros();
        let micros = u64::try_from(micros).unwrap_or(u64::MAX);
        self.add(Count::LatencyMicros, micros.wrapping_mul(requests));
    }

    /// The totals of this page alone.
    pub(crate) fn totals(&self) -> Totals {
        let mut sum = Sum::new();
        sum.add(StatsView(self.words()));
        sum.totals()
    }

    fn count_word(&self, count: Count) -> &AtomicU64 {
        &self.words()[COUNTS + count as usize]
    }

    fn gauge_word(&self, gauge: Gauge) -> &AtomicU64 {
        &self.words()[GAUGES + gauge as usize]
    }

    fn words(&self) -> &Words {
        match &self.0 {
            Memory::Shared(words) => words,
            Memory::Own(words) => words,
        }
    }
}

impl Count {
    pub(crate) const ALL: [Self; 31] = [
        Self::Connections,
        Self::Requests,
        Self::Informational,
        Self::Success,
        Self::Redirection,
        Self::ClientError,
        Self::ServerError,
        Self::BytesIn,
        Self::BytesOut,
        Self::TunnelBytesIn,
        Self::TunnelBytesOut,
        Self::Panics,
        Self::BrokenResponses,
        Self::HeaderTimeouts,
        Self::BodyTimeouts,
        Self::WriteTimeouts,
        Self::IdleTimeouts,
        Self::Cut,
        Self::TlsHandshakes,
        Self::TlsResumed,
        Self::TlsHandshakeFailures,
        Self::HandedOver,
        Self::TakenOver,
        Self::Spent,
        Self::UpgradesCut,
        Self::OwnMetricsRefused,
        Self::Balanced,
        Self::Placed,
        Self::ClientLimited,
        Self::Evicted,
        Self::LatencyMicros,
    ];
}

/// The counters of a worker, as the master sees them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StatsView<'a>(pub(crate) &'a Words);

impl StatsView<'_> {
    pub(crate) fn gauge(&self, gauge: Gauge) -> u64 {
        self.0[GAUGES + gauge as usize].load(Relaxed)
    }

    pub(crate) fn count(&self, count: Count) -> u64 {
        self.0[COUNTS + count as usize].load(Relaxed)
    }

    /// The heartbeat, never later than `now`. Read it after the connections. A heartbeat that was
    /// read before may be hours older than the first connection, so the worker would seem to hang.
    pub(crate) fn heartbeat(&self, now: Duration) -> Duration {
        fence(Acquire);
        Duration::from_millis(self.gauge(Gauge::HeartbeatMillis)).min(now)
    }

    /// In place of a worker that cannot do it any more.
    pub(crate) fn set_state(&self, state: State) {
        self.0[GAUGES + Gauge::State as usize].store(state as u64, Relaxed);
    }

    /// Adds the counts of `ended`, whose worker has exited.
    pub(crate) fn absorb(&self, ended: StatsView<'_>) {
        let counts = (COUNTS..COUNTS_END).chain(LATENCIES..LATENCIES + latency::BUCKETS);
        for at in counts {
            // A hostile worker may write any number. A sum that wraps would fall.
            let sum = self.0[at].load(Relaxed);
            self.0[at].store(sum.saturating_add(ended.0[at].load(Relaxed)), Relaxed);
        }
        let stall = &self.0[GAUGES + Gauge::LongestStallMillis as usize];
        let longest = stall.load(Relaxed);
        stall.store(longest.max(ended.gauge(Gauge::LongestStallMillis)), Relaxed);
    }

    /// Adds to a count of the workers that have ended, which may be that of a hostile worker.
    pub(crate) fn add(&self, count: Count, more: u64) {
        let word = &self.0[COUNTS + count as usize];
        word.store(word.load(Relaxed).saturating_add(more), Relaxed);
    }
}

#[inline]
fn add(word: &AtomicU64, more: u64) {
    // It wraps after centuries, so an overflow check would only cost time.
    word.store(word.load(Relaxed).wrapping_add(more), Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_count_has_a_word_of_its_own() {
        let stats = WorkerStats::own();
        for (at, count) in Count::ALL.into_iter().enumerate() {
            assert_eq!(count as usize, at, "{count:?}");
            stats.add(count, at as u64 + 1);
        }
        for (at, count) in Count::ALL.into_iter().enumerate() {
            assert_eq!(stats.count(count), at as u64 + 1, "{count:?}");
        }
    }

    #[test]
    fn a_gauge_does_not_fall_below_zero() {
        let stats = WorkerStats::own();
        stats.request_ends(Timing::Untimed);
        assert_eq!(stats.gauge(Gauge::Requests), 0);
        stats.connection_begins(Count::Connections);
        stats.connection_ends();
        assert_eq!(stats.gauge(Gauge::Connections), 0);
        assert_eq!(stats.count(Count::Connections), 1);
    }

    #[test]
    fn a_connection_that_rests_is_no_load() {
        let stats = WorkerStats::own();
        let load = || stats.gauge(Gauge::Load);
        stats.connection_begins(Count::Connections);
        stats.connection_begins(Count::TakenOver);
        assert_eq!(load(), 2);
        stats.connection_rests();
        assert_eq!(load(), 1);
        stats.connection_works();
        stats.connection_ends();
        assert_eq!(load(), 1);
    }
}
