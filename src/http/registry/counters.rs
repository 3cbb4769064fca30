//! The counters of a worker while it serves: words of its page.

use http::StatusCode;

use crate::http::registry::timeouts::Deadline;
use crate::http::registry::wheel::Tick;
use crate::stats::{Count, Stopwatch, Timing, WorkerStats};

#[derive(Debug)]
pub(crate) struct Counters {
    stats: WorkerStats,
    stopwatch: Stopwatch,
}

impl Counters {
    pub(crate) fn new(stats: WorkerStats) -> Self {
        Self {
            stats,
            stopwatch: Stopwatch::new(),
        }
    }

    pub(crate) fn stats(&self) -> WorkerStats {
        self.stats.clone()
    }

    #[inline]
    pub(crate) fn request_begins(&self, now: Tick) -> Timing {
        self.stats.request_begins();
        self.stopwatch.start(now.0)
    }

    /// The handler has responded, or the server itself.
    #[inline]
    pub(crate) fn count_response(&self, status: StatusCode) {
        let class = match status.as_u16() / 100 {
            // By far the most, without a division.
            _ if status == StatusCode::OK => Count::Success,
            1 => Count::Informational,
            2 => Count::Success,
            3 => Count::Redirection,
            4 => Count::ClientError,
            5 => Count::ServerError,
            // A status from 600 on has no meaning for a client (RFC 9110 15).
            _ => return,
        };
        self.stats.add(class, 1);
    }

    /// The response was sent to its end, or the client has gone.
    #[inline]
    pub(crate) fn request_ends(&self, timing: Timing) {
        self.stats.request_ends(timing);
    }

    pub(crate) fn panic(&self) {
        self.stats.add(Count::Panics, 1);
    }

    pub(crate) fn broken_response(&self) {
        self.stats.add(Count::BrokenResponses, 1);
    }

    pub(crate) fn timeout(&self, deadline: Deadline) {
        let count = match deadline {
            Deadline::Header => Count::HeaderTimeouts,
            Deadline::Body => Count::BodyTimeouts,
            Deadline::Write => Count::WriteTimeouts,
            Deadline::Idle => Count::IdleTimeouts,
        };
        self.stats.add(count, 1);
    }

    pub(crate) fn evicted(&self) {
        self.stats.add(Count::Evicted, 1);
    }

    pub(crate) fn spent(&self) {
        self.stats.add(Count::Spent, 1);
    }

    pub(crate) fn upgrade_cut(&self) {
        self.stats.add(Count::UpgradesCut, 1);
    }

    pub(crate) fn cut(&self, connections: usize) {
        self.stats.add(Count::Cut, connections as u64);
    }
}
