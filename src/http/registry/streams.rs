//! What connections of HTTP/2 want of the registry.

use std::task::Waker;

use crate::http::registry::list::Registry;
use crate::http::registry::state::{ConnState, Stage};
use crate::http::registry::timeouts::Deadline;
use crate::http::registry::wheel::Tick;

impl Registry {
    /// Whether the client of this stream has taken too long, and at what.
    pub(crate) fn overdue(&self, stream: &ConnState) -> Option<Deadline> {
        let (due, deadline) = self.timeouts.stream_deadline(stream)?;
        (due <= self.now()).then_some(deadline)
    }

    /// Whether the client of this stream, which was heard of, has not taken enough of it for so
    /// long that it makes room for others.
    pub(crate) fn is_in_the_way(&self, stream: &ConnState, heard: Tick) -> bool {
        self.timeouts
            .in_the_way_from(stream)
            .is_some_and(|due| due <= self.now().min(heard))
    }

    /// How many bytes of responses are kept for clients of HTTP/2.
    pub(crate) fn kept(&self) -> usize {
        self.kept.get()
    }

    pub(crate) fn keep(&self, bytes: usize) {
        self.kept.set(self.kept.get() + bytes);
    }

    pub(crate) fn let_go(&self, bytes: usize) {
        self.kept.set(self.kept.get() - bytes);
    }

    /// Whether a second has passed since then.
    pub(crate) fn is_second_over(&self, since: Tick) -> bool {
        self.timeouts.is_second_over(since, self.now())
    }

    /// Whether a client that was told something then has heard it.
    pub(crate) fn is_round_trip_over(&self, since: Tick) -> bool {
        self.timeouts.is_round_trip_over(since, self.now())
    }

    /// Has each look up: a drain has begun, and clients can be told at once, by GOAWAY.
    pub(crate) fn rouse_http2(&self) {
        let wakers: Vec<_> = {
            let mut members = self.members.borrow_mut();
            let entries = members.entries.iter_mut().map(|(_, entry)| entry);
            entries
                .filter(|entry| matches!(entry.state.stage(), Stage::Streams | Stage::Quiet))
                .filter_map(|entry| entry.task.take())
                .collect()
        };
        wakers.into_iter().for_each(Waker::wake);
    }
}
