//! The counters of a worker while it serves: words of its page.

use http::StatusCode;

use crate::http::registry::timeouts::Deadline;
use crate::http::registry::wheel::Tick;
use crate::stats::{Count, Stopwatch, Timing, WorkerStats};

/// The counters so far; they only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Requests whose head was complete and well-formed.
    pub(crate) requests: u64,
    /// Panics of handlers and of response bodies.
    pub(crate) panics: u64,
    /// Responses whose body failed midway, so that the connection was aborted.
    pub(crate) broken_responses: u64,
    /// Heads that were not complete in time, and connections on which nothing came.
    pub(crate) header_timeouts: u64,
    /// Request bodies that the client stopped sending.
    pub(crate) body_timeouts: u64,
    /// Clients that stopped reading their responses.
    pub(crate) write_timeouts: u64,
    /// Connections closed because they were idle for too long.
    pub(crate) idle_timeouts: u64,
    /// Connections that were still open at the end of the time for the drain.
    pub(crate) cut: u64,
    /// Connections that were ended for their age, or for the number of their requests.
    pub(crate) spent: u64,
    /// Upgraded connections that a drain has ended after their grace.
    pub(crate) upgrades_cut: u64,
}

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

    pub(crate) fn get(&self) -> Counts {
        let count = |count| self.stats.count(count);
        Counts {
            requests: count(Count::Requests),
            panics: count(Count::Panics),
            broken_responses: count(Count::BrokenResponses),
            header_timeouts: count(Count::HeaderTimeouts),
            body_timeouts: count(Count::BodyTimeouts),
            write_timeouts: count(Count::WriteTimeouts),
            idle_timeouts: count(Count::IdleTimeouts),
            cut: count(Count::Cut),
            spent: count(Count::Spent),
            upgrades_cut: count(Count::UpgradesCut),
        }
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
