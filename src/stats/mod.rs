//! What one worker tells about itself while it serves: how much it has done, and what it is at.
//!
//! A page is one page of counters. The worker writes its own page and the master reads all of them,
//! by the scoreboard; a server without a master has a page of its own that nobody else sees. Every
//! word is an atomic, because two processes see it, and every access is relaxed, because no word
//! guards another. Each word has one writer, so to count costs a load and a store.

mod latency;
mod stopwatch;
mod totals;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

pub(crate) use self::latency::Latencies;
pub(crate) use self::stopwatch::{Stopwatch, Timing};
pub(crate) use self::totals::Sum;
pub use self::totals::Totals;

/// A page's words: one page of most machines, so that no two workers ever share a cache line.
pub(crate) const WORDS: usize = 512;

/// A page's memory.
pub(crate) type Words = [AtomicU64; WORDS];

/// Where the gauges begin. The line before says what layout this is.
pub(crate) const GAUGES: usize = 8;

/// Where the counts begin, and where they end: there is room for as many again.
const COUNTS: usize = 16;
const COUNTS_END: usize = COUNTS + Count::ALL.len();

/// Where the latencies begin.
const LATENCIES: usize = 64;

const _: () = assert!(GAUGES + (Gauge::ConnectionsMax as usize) < COUNTS);
const _: () = assert!(COUNTS_END <= LATENCIES && LATENCIES + latency::BUCKETS <= WORDS);

/// A page to write to. Clones are the same page.
#[derive(Clone, Debug)]
pub(crate) struct WorkerStats(Memory);

#[derive(Clone, Debug)]
enum Memory {
    /// The scoreboard's. Mapped until the process ends.
    Shared(&'static Words),
    /// Nobody else's.
    Own(Arc<Words>),
}

/// What only grows. The discriminants are part of the scoreboard's layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Count {
    /// Connections that were accepted.
    Connections,
    /// Requests whose head was complete and well-formed.
    Requests,
    /// Responses 1xx, 2xx, 3xx, 4xx and 5xx, of handlers and in their stead; and those of HTTP/1 to
    /// what is no head and so no request.
    Informational,
    Success,
    Redirection,
    ClientError,
    ServerError,
    BytesIn,
    BytesOut,
    /// As the two above, after an upgrade. See [`WorkerStats::add_shared`].
    TunnelBytesIn,
    TunnelBytesOut,
    /// Panics of handlers and of response bodies.
    Panics,
    /// Responses whose body failed midway, so that the connection was aborted.
    BrokenResponses,
    /// Heads that did not come in time, or connections that never said a word.
    HeaderTimeouts,
    /// Request bodies that stopped coming.
    BodyTimeouts,
    /// Clients that stopped reading.
    WriteTimeouts,
    /// Connections closed for having nothing to say.
    IdleTimeouts,
    /// Connections that were still live when time was up.
    Cut,
    /// TLS handshakes that came to their end, and those of them that resumed a session.
    TlsHandshakes,
    TlsResumed,
    /// TLS handshakes that failed, for whatever the client said. One that takes too long is a
    /// header timeout, and one without a word is none.
    TlsHandshakeFailures,
    /// Connections that went to another worker, and those that came from one.
    HandedOver,
    TakenOver,
    /// Connections that were ended for their age, or for the number of their requests.
    Spent,
    /// Upgraded connections that a drain has ended after their grace.
    UpgradesCut,
}

/// What goes up and down, or is of now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Gauge {
    Pid,
    State,
    Connections,
    /// Requests that were begun and are not answered to their end.
    Requests,
    /// How late the event loop has been at the most.
    LongestStallMillis,
    /// When the event loop last went round, on the monotonic clock.
    HeartbeatMillis,
    /// Connections that are served, being not at rest.
    Served,
    /// As many connections as the worker may have open.
    ConnectionsMax,
}

/// What a worker is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum State {
    Starting,
    Serving,
    Draining,
}

impl WorkerStats {
    /// A page of the scoreboard.
    pub(crate) fn shared(words: &'static Words) -> Self {
        Self(Memory::Shared(words))
    }

    /// A page for a server that has no scoreboard.
    pub(crate) fn own() -> Self {
        Self(Memory::Own(Arc::new([const { AtomicU64::new(0) }; WORDS])))
    }

    /// Counts `more`. For the one thread of the worker alone.
    #[inline]
    pub(crate) fn add(&self, count: Count, more: u64) {
        add(self.count_word(count), more);
    }

    /// Counts `more`, from whichever thread: an upgraded stream may be moved to another, and an
    /// accepted connection dropped there. It costs several times as much as [`WorkerStats::add`].
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

    pub(crate) fn gauge(&self, gauge: Gauge) -> u64 {
        self.gauge_word(gauge).load(Relaxed)
    }

    /// One connection more, new here as [`Count::Connections`] or [`Count::TakenOver`] says. As
    /// [`WorkerStats::add_shared`].
    pub(crate) fn connection_begins(&self, origin: Count) {
        self.add_shared(origin, 1);
        self.gauge_word(Gauge::Connections).fetch_add(1, Relaxed);
    }

    /// One connection fewer. As [`WorkerStats::add_shared`].
    pub(crate) fn connection_ends(&self) {
        self.gauge_word(Gauge::Connections).fetch_sub(1, Relaxed);
    }

    /// One request more.
    #[inline]
    pub(crate) fn request_begins(&self) {
        self.add(Count::Requests, 1);
        add(self.gauge_word(Gauge::Requests), 1);
    }

    /// One request fewer.
    #[inline]
    pub(crate) fn request_ends(&self, timing: Timing) {
        let word = self.gauge_word(Gauge::Requests);
        word.store(word.load(Relaxed).saturating_sub(1), Relaxed);
        if let Timing::Timed { begun, weight } = timing {
            self.note_latency(begun.elapsed(), weight);
        }
    }

    /// So many requests took so long.
    pub(crate) fn note_latency(&self, took: Duration, requests: u64) {
        add(&self.words()[LATENCIES + latency::bucket(took)], requests);
    }

    /// Of this page alone.
    #[cfg(test)]
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
    pub(crate) const ALL: [Self; 25] = [
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
    ];
}

/// A page as the master sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StatsView<'a>(pub(crate) &'a Words);

impl StatsView<'_> {
    pub(crate) fn gauge(&self, gauge: Gauge) -> u64 {
        self.0[GAUGES + gauge as usize].load(Relaxed)
    }

    /// Adds all that `ended`, whose worker is gone, has counted.
    pub(crate) fn absorb(&self, ended: StatsView<'_>) {
        let counts = (COUNTS..COUNTS_END).chain(LATENCIES..LATENCIES + latency::BUCKETS);
        for at in counts {
            // A hostile worker writes any number. A sum that wrapped would fall.
            let sum = self.0[at].load(Relaxed);
            self.0[at].store(sum.saturating_add(ended.0[at].load(Relaxed)), Relaxed);
        }
        let stall = &self.0[GAUGES + Gauge::LongestStallMillis as usize];
        let longest = stall.load(Relaxed);
        stall.store(longest.max(ended.gauge(Gauge::LongestStallMillis)), Relaxed);
    }
}

#[inline]
fn add(word: &AtomicU64, more: u64) {
    // It wraps after centuries; an overflow check would only cost.
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
    fn what_has_ended_is_not_below_zero() {
        let stats = WorkerStats::own();
        stats.request_ends(Timing::Untimed);
        assert_eq!(stats.gauge(Gauge::Requests), 0);
        stats.connection_begins(Count::Connections);
        stats.connection_ends();
        assert_eq!(stats.gauge(Gauge::Connections), 0);
        assert_eq!(stats.count(Count::Connections), 1);
    }
}
