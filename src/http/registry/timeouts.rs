//! What is timed, and when it is due. This module has no clock: ticks go in, ticks come out.

#[cfg(test)]
mod tests;

use std::time::Duration;

use crate::http::options::Http;
use crate::http::registry::state::{ConnState, InputWait, Stage};
use crate::http::registry::wheel::{Tick, Wheel};

/// A drain as it applies to one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Draining {
    pub(crate) since: Tick,
    pub(crate) next: Next,
}

/// What follows after a worker that drains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Another worker serves its clients. Nothing waits for the end of this one.
    Worker,
    /// No worker follows: the server ends, or the time for the drain is nearly over.
    NoWorker,
}

/// The options' timeouts in ticks.
#[derive(Debug)]
pub(crate) struct Timeouts {
    /// How long a tick is.
    pub(crate) period: Duration,
    header: u64,
    body: u64,
    write: u64,
    #[cfg(feature = "http2")]
    blocking: u64,
    idle: u64,
    linger: u64,
    /// How long the client of a connection that cannot be handed over has to be silent before the
    /// connection is closed, if another worker follows.
    silence: u64,
    /// How old a connection may become.
    age: Option<u64>,
    upgrade_grace: u64,
    /// How long an HTTP/2 client may take to acknowledge GOAWAY. In a drain also how long a new
    /// client may take to send its first request, and a client that was sent its last response to
    /// read it and close.
    round_trip: u64,
    /// How long a reload waits for a moment in which an HTTP/2 connection has no open stream.
    #[cfg(feature = "http2")]
    hold: u64,
    /// How long a connection is idle before it goes to rest. Also how long a handler works, or its
    /// response is silent, before the server checks whether the client is still there.
    watch: u64,
    /// Limit of ticks until the next turn of a connection that is served.
    pub(crate) horizon: u64,
}

impl Timeouts {
    /// The shortest and the longest tick. Shorter ticks cost more wake-ups; with longer ones,
    /// timeouts pass noticeably late.
    const PERIODS: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(250));

    const WATCH: Duration = Duration::from_secs(1);

    /// Most requests take less. Longer, and the client's next requests would wait too long.
    #[cfg(feature = "http2")]
    const HOLD: Duration = Duration::from_millis(500);

    /// A stream that other streams of its connection wait for has the write timeout divided by
    /// this.
    #[cfg(feature = "http2")]
    const BLOCKING_PART: u32 = 6;

    /// A round trip to any place on earth; the drain waits for it. An HTTP/2 client may read from
    /// an idle connection only when it needs it. The first request of a new connection comes one
    /// round trip after the end of a TLS 1.2 handshake.
    const ROUND_TRIP: Duration = Duration::from_secs(1);

    /// A request that is on its way while its idle connection is closed is lost if the client may
    /// not send it twice, as with POST. The client may not have seen the close yet, for as long as
    /// its process waits for a CPU. A client that has just sent a request will send the next one
    /// soon, and the response to that one says that the connection ends. After five seconds no
    /// client is in the middle of a series of requests. And Go's HTTP/2 client no longer uses a
    /// connection that was closed before its first request.
    const SILENCE: Duration = Duration::from_secs(5);

    pub(crate) fn new(http: &Http) -> Self {
        let all = [
            http.header_timeout,
            http.body_timeout,
            http.write_timeout,
            http.idle_timeout,
        ];
        let shortest = all.into_iter().min().unwrap_or_default();
        let period = (shortest / 8).clamp(Self::PERIODS.0, Self::PERIODS.1);
        let ticks = |timeout: Duration| {
            let ticks = timeout.as_nanos().div_ceil(period.as_nanos());
            // One more, because the timed period may have begun just before a tick.
            u64::try_from(ticks).unwrap_or(u64::MAX).saturating_add(1)
        };
        Self {
            period,
            header: ticks(http.header_timeout),
            body: ticks(http.body_timeout),
            write: ticks(http.write_timeout),
            #[cfg(feature = "http2")]
            blocking: ticks(http.write_timeout / Self::BLOCKING_PART),
            idle: ticks(http.idle_timeout),
            linger: ticks(http.linger),
            silence: ticks(http.idle_timeout.min(Self::SILENCE)),
            age: http.max_connection_age.map(ticks),
            upgrade_grace: ticks(http.upgrade_grace),
            round_trip: ticks(http.header_timeout.min(Self::ROUND_TRIP)),
            #[cfg(feature = "http2")]
            hold: ticks(Self::HOLD),
            watch: ticks(Self::WATCH),
            horizon: ticks(shortest.min(Self::WATCH)).min(Wheel::REACH),
        }
    }

    /// When a connection that begins now is old: at its age, plus up to a quarter of that by its
    /// key.
    pub(crate) fn old_at(&self, now: Tick, key: usize) -> Option<Tick> {
        let age = self.age?;
        // Multiples of the golden ratio, modulo 1, spread neighbouring keys over the quarter.
        let share = (key as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let spread = (u128::from(age / 4) * u128::from(share)) >> 32;
        Some(now.after(age.saturating_add(u64::try_from(spread).unwrap_or(u64::MAX))))
    }

    /// Whether a second has passed.
    pub(crate) fn is_second_over(&self, since: Tick, now: Tick) -> bool {
        since.after(self.watch) <= now
    }

    /// Until when a reload waits for a moment without an open stream.
    #[cfg(feature = "http2")]
    pub(crate) fn waits_until(&self, since: Tick) -> Tick {
        since.after(self.hold)
    }

    /// Whether a round trip has passed.
    #[cfg(feature = "http2")]
    pub(crate) fn is_round_trip_over(&self, since: Tick, now: Tick) -> bool {
        since.after(self.round_trip) <= now
    }

    /// Whether a connection is so new that its client's first request may still be on its way. One
    /// that comes from another server may have been new there, which no record says.
    pub(crate) fn is_new(&self, state: &ConnState, now: Tick) -> bool {
        let awaits_first = match state.stage() {
            Stage::Unopened | Stage::Fresh => true,
            Stage::Idle => !state.has_requested(),
            _ => false,
        };
        awaits_first && state.stamp().after(self.round_trip) > now
    }

    /// Until when a drain waits for a request that the client may be about to send.
    pub(crate) fn request_awaited_until(&self, state: &ConnState, drain: Draining) -> Tick {
        let first = match state.stage() {
            Stage::Unopened | Stage::Fresh | Stage::Quiet => self.round_trip,
            _ => 0,
        };
        let next = match drain.next {
            Next::Worker => self.silence,
            Next::NoWorker => 0,
        };
        state.stamp().after(first.max(next))
    }

    /// Since when a connection has been idle, if for so long that it may be closed for a new one: a
    /// request that is on its way has as much time to arrive as in a drain.
    pub(crate) fn idle_since(&self, state: &ConnState, now: Tick) -> Option<Tick> {
        let is_idle = match state.stage() {
            Stage::Quiet => state.write_blocked_since().is_none(),
            _ => state.is_idle() && !self.is_new(state, now),
        };
        let since = state.stamp();
        (is_idle && since.after(self.linger) <= now).then_some(since)
    }

    /// The next deadline of a connection in its present state, and the order that is due then.
    pub(crate) fn deadline(
        &self,
        state: &ConnState,
        draining: Option<Draining>,
    ) -> Option<(Tick, Order)> {
        let blocked = state.write_blocked_since();
        let stamp = state.stamp();
        let of_stage = match (state.stage(), draining) {
            // A body or a write is still going on, and has a deadline of its own.
            (Stage::Idle, _) if !state.is_idle() => None,
            (Stage::Unopened | Stage::Fresh | Stage::Idle, Some(drain)) => {
                let linger_ends = stamp.max(drain.since).after(self.linger);
                let request_until = self.request_awaited_until(state, drain);
                Some((linger_ends.max(request_until), Order::CloseIdle))
            }
            // Other HTTP/2 connections were sent GOAWAY and are not in this stage.
            (Stage::Quiet, Some(drain)) => {
                let due = self.request_awaited_until(state, drain);
                let due = due.min(stamp.after(self.idle));
                Some((due, Order::Expire(Deadline::Idle)))
            }
            (Stage::Idle | Stage::Quiet, None) => {
                Some((stamp.after(self.idle), Order::Expire(Deadline::Idle)))
            }
            // Only if all bytes are sent.
            (Stage::Closing, Some(drain)) if blocked.is_none() => {
                let closes = stamp.max(drain.since).after(self.round_trip);
                let due = closes.min(stamp.after(self.header));
                Some((due, Order::Expire(Deadline::Header)))
            }
            (Stage::Unopened | Stage::Opening | Stage::Fresh | Stage::Head | Stage::Closing, _) => {
                Some((stamp.after(self.header), Order::Expire(Deadline::Header)))
            }
            (Stage::Ending, _) => Some((
                stamp.after(self.round_trip),
                Order::Expire(Deadline::Header),
            )),
            (Stage::Streams | Stage::Handling | Stage::Responding, _) => None,
            (Stage::Upgraded, Some(drain)) => {
                Some((drain.since.after(self.upgrade_grace), Order::EndUpgrade))
            }
            (Stage::Upgraded | Stage::HandedOver, _) => None,
        };
        let of_write = blocked
            .filter(|_| state.stage() != Stage::Upgraded)
            .map(|since| (since.after(self.write), Order::Expire(Deadline::Write)));
        let of_input = state.input_wait().map(|wait| match wait {
            InputWait::Body(since) => (since.after(self.body), Order::Expire(Deadline::Body)),
            InputWait::Streams(since) => (since.after(self.body.min(self.write)), Order::Streams),
        });
        [of_stage, of_write, of_input]
            .into_iter()
            .flatten()
            .min_by_key(|(due, _)| *due)
    }
}

impl Timeouts {
    /// When the client of one HTTP/2 stream will have taken too little of its response, if other
    /// streams wait for that.
    #[cfg(feature = "http2")]
    pub(crate) fn blocking_deadline(&self, stream: &ConnState) -> Option<Tick> {
        let blocked = stream.write_blocked_since();
        blocked.map(|since| since.after(self.blocking))
    }

    /// The next deadline of one HTTP/2 stream in its present state.
    #[cfg(feature = "http2")]
    pub(crate) fn stream_deadline(&self, stream: &ConnState) -> Option<(Tick, Deadline)> {
        let response = stream.write_blocked_since();
        let of_body = stream.body_awaited_since();
        let of_body = of_body.map(|since| (since.after(self.body), Deadline::Body));
        let of_response = response.map(|since| (since.after(self.write), Deadline::Write));
        let both = of_body.into_iter().chain(of_response);
        both.min_by_key(|(due, _)| *due)
    }
}

/// What the registry orders a connection to do. The connection's task does it if the reason still
/// holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// A deadline has passed.
    Expire(Deadline),
    /// The linger time of a drain is over.
    CloseIdle,
    /// A new connection waits for one to end, and this one is idle.
    Evict,
    /// The upgrade grace of a drain is over.
    EndUpgrade,
    /// Check the HTTP/2 streams: a client may have taken too long.
    Streams,
    /// Give up all but the socket until bytes come. In HTTP/2 the client's state stays too.
    Rest,
    /// End, in any stage.
    Cut,
}

impl Order {
    /// Whether the order is void once the client sends something.
    pub(crate) fn is_void_after_input(self) -> bool {
        matches!(
            self,
            Self::CloseIdle | Self::Evict | Self::Expire(Deadline::Idle)
        )
    }
}

/// The timeouts of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deadline {
    Header,
    Body,
    Write,
    Idle,
}
