//! What a worker counts while it serves. One thread writes and reads them, so they are plain.

use std::cell::Cell;

use super::timeouts::Deadline;

/// The figures so far; they only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Requests whose head was complete and well-formed.
    pub(crate) requests: u64,
    /// Panics of handlers and of response bodies.
    pub(crate) panics: u64,
    /// Responses whose body failed midway, so that the connection was aborted.
    pub(crate) broken_responses: u64,
    /// Heads that did not come in time, or connections that never said a word.
    pub(crate) header_timeouts: u64,
    /// Request bodies that stopped coming.
    pub(crate) body_timeouts: u64,
    /// Clients that stopped reading.
    pub(crate) write_timeouts: u64,
    /// Connections closed for having nothing to say.
    pub(crate) idle_timeouts: u64,
    /// Connections that were still live when time was up.
    pub(crate) cut: u64,
}

#[derive(Debug, Default)]
pub(super) struct Counters(Cell<Counts>);

impl Counters {
    pub(super) fn get(&self) -> Counts {
        self.0.get()
    }

    pub(super) fn request(&self) {
        self.update(|counts| counts.requests += 1);
    }

    pub(super) fn panic(&self) {
        self.update(|counts| counts.panics += 1);
    }

    pub(super) fn broken_response(&self) {
        self.update(|counts| counts.broken_responses += 1);
    }

    pub(super) fn timeout(&self, deadline: Deadline) {
        self.update(|counts| {
            *match deadline {
                Deadline::Header => &mut counts.header_timeouts,
                Deadline::Body => &mut counts.body_timeouts,
                Deadline::Write => &mut counts.write_timeouts,
                Deadline::Idle => &mut counts.idle_timeouts,
            } += 1;
        });
    }

    pub(super) fn cut(&self, connections: usize) {
        self.update(|counts| counts.cut += connections as u64);
    }

    fn update(&self, change: impl FnOnce(&mut Counts)) {
        let mut counts = self.0.get();
        change(&mut counts);
        self.0.set(counts);
    }
}
