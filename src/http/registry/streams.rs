//! What the registry does for HTTP/2 connections.

use crate::http::registry::list::Registry;
use crate::http::registry::mode::Mode;
use crate::http::registry::state::{ConnState, Stage};
use crate::http::registry::timeouts::{Deadline, Next};
use crate::http::registry::wheel::Tick;

impl Registry {
    /// The deadline of this stream that has passed, if one has.
    pub(crate) fn overdue(&self, stream: &ConnState) -> Option<Deadline> {
        let (due, deadline) = self.timeouts.stream_deadline(stream)?;
        (due <= self.now()).then_some(deadline)
    }

    /// Whether other streams have waited too long for the client of this one to take enough of its
    /// response. The time counts up to `last_input`, when the client last sent something.
    pub(crate) fn is_in_the_way(&self, stream: &ConnState, last_input: Tick) -> bool {
        self.timeouts
            .blocking_deadline(stream)
            .is_some_and(|due| due <= self.now().min(last_input))
    }

    /// Number of bytes of responses that are buffered for HTTP/2 clients.
    pub(crate) fn buffered(&self) -> usize {
        self.buffered_for_http2.get()
    }

    pub(crate) fn add_buffered(&self, bytes: usize) {
        self.buffered_for_http2
            .set(self.buffered_for_http2.get() + bytes);
    }

    pub(crate) fn remove_buffered(&self, bytes: usize) {
        self.buffered_for_http2
            .set(self.buffered_for_http2.get() - bytes);
    }

    /// Number of bytes of HTTP/2 clients that wait until their connections move.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting_in_http2.get()
    }

    /// As many bytes of one connection wait now as `to` says, after `from`.
    pub(crate) fn change_waiting(&self, from: usize, to: usize) {
        self.waiting_in_http2.set(self.waiting() - from + to);
    }

    /// Whether a second has passed since then.
    pub(crate) fn is_second_over(&self, since: Tick) -> bool {
        self.timeouts.is_second_over(since, self.now())
    }

    /// Whether a round trip has passed since then.
    pub(crate) fn is_round_trip_over(&self, since: Tick) -> bool {
        self.timeouts.is_round_trip_over(since, self.now())
    }

    /// Whether the server must send GOAWAY. If a connection ends before its first request, a client
    /// may take that for a failure to connect, and fail the request: Go's client does. So in a
    /// drain a new connection is served its first request, or ends a while later.
    pub(crate) fn must_go_away(&self, state: &ConnState) -> bool {
        let drains = self.draining(state).is_some_and(|drain| match drain.next {
            Next::NoWorker => state.has_requested(),
            Next::Worker => {
                let waits_until = self.timeouts.waits_until(drain.since);
                state.stage() == Stage::Streams && waits_until <= self.now()
            }
        });
        drains || state.ends_after_response()
    }

    /// Whether the server sends GOAWAY together with the last response. Nothing waits for the end
    /// of the connection, so it need not come while requests are open.
    pub(crate) fn ends_soon(&self, state: &ConnState) -> bool {
        let draining = self.draining(state);
        draining.is_some_and(|drain| drain.next == Next::Worker)
    }

    /// Since when the connection is to go to another server, as soon as no stream is open.
    pub(crate) fn moves_since(&self, state: &ConnState) -> Option<Tick> {
        match self.mode.get() {
            Mode::HandingOver { since } if state.may_hand_over() => Some(since),
            _ => None,
        }
    }

    /// Whether a reload waits for a moment without an open stream. Then the connection looks at
    /// each tick whether it has waited long enough.
    pub(crate) fn waits_in_hand_over(&self, state: &ConnState) -> bool {
        let is_busy = state.stage() == Stage::Streams;
        self.unmoved_since(state).is_some() || is_busy && self.ends_soon(state)
    }

    /// Whether the connection has waited long enough for a moment in which it can move. A stream
    /// that takes long may be about to end, because its handler was told of the drain.
    pub(crate) fn must_stay(&self, state: &ConnState, are_long: impl FnOnce() -> bool) -> bool {
        let since = self.unmoved_since(state);
        since.is_some_and(|since| {
            let now = self.now();
            self.timeouts.waits_until(since) <= now || (since < now && are_long())
        })
    }

    /// Since when the connection is to move and cannot.
    fn unmoved_since(&self, state: &ConnState) -> Option<Tick> {
        let since = self.moves_since(state)?;
        match state.stage() {
            // It may have become busy while it waited for its turn.
            Stage::Streams => Some(state.stamp().max(since)),
            Stage::Quiet if !state.may_rest() => Some(since),
            _ => None,
        }
    }

    /// A connection ends because it is idle. A drain has an idle time of its own.
    pub(crate) fn count_idle_end(&self, state: &ConnState) {
        if !self.is_draining(state) {
            self.counters.timeout(Deadline::Idle);
        }
    }

    /// Wakes all HTTP/2 connections. A drain has begun, and they can send GOAWAY at once.
    pub(crate) fn wake_http2(&self) {
        self.wake_each(|entry| match entry.state.stage() {
            Stage::Streams | Stage::Quiet => entry.task.take(),
            _ => None,
        });
    }
}
