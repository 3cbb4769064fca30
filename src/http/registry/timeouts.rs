//! What is timed, and when it is due. No clock here: ticks in, ticks out.

#[cfg(test)]
mod tests;

use std::time::Duration;

use crate::http::options::Http;
use crate::http::registry::state::{ConnState, InputWait, Stage};
use crate::http::registry::wheel::{Tick, Wheel};

/// A drain, as one connection sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Draining {
    pub(crate) since: Tick,
    pub(crate) next: Next,
}

/// Who serves the clients of a worker that drains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Another worker. Nobody waits for the end of this one.
    Worker,
    /// No worker: the server ends, or the time for the drain is nearly over.
    Nobody,
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
    in_the_way: u64,
    idle: u64,
    linger: u64,
    /// How long the client of a connection that cannot be handed over has to be silent before the
    /// connection is closed, if another worker comes after this one.
    silence: u64,
    /// How old a connection may become.
    age: Option<u64>,
    upgrade_grace: u64,
    /// How long a client of HTTP/2 may take to acknowledge that it is to go, and, although its
    /// worker goes, a client that has just come to ask for something, and one that has been sent
    /// the last response to read it and close.
    round_trip: u64,
    /// How long a connection is idle before it is put to rest, and how long a handler works, or its
    /// answer is silent, before their client is looked for.
    watch: u64,
    /// How many ticks ahead the next turn of a connection that is served is, at the most.
    pub(crate) horizon: u64,
}

impl Timeouts {
    /// The shortest and the longest tick: finer costs wake-ups, coarser shows.
    const PERIODS: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(250));

    const WATCH: Duration = Duration::from_secs(1);

    /// A response for which others of its connection wait has this part of the write timeout.
    #[cfg(feature = "http2")]
    const IN_THE_WAY: u32 = 6;

    /// A round trip to anywhere: the drain waits for it. A client of HTTP/2 may look at an idle
    /// connection only when it needs it, and the first request of one that is new comes as much
    /// later than the end of a TLS 1.2 handshake.
    const ROUND_TRIP: Duration = Duration::from_secs(1);

    /// A request that is on its way while its idle connection is closed is lost if the client may
    /// not send it twice, as with POST: the client may not have seen the end yet, for as long as
    /// its process waits for a CPU. A client that has just sent a request will send the next one
    /// soon, and its response says that the connection ends. After five seconds no client is in the
    /// middle of a series of requests; and Go's HTTP/2 does not take a connection any more
    /// that was closed before its first request.
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
            // One more, as what is timed may have begun just before a tick.
            u64::try_from(ticks).unwrap_or(u64::MAX).saturating_add(1)
        };
        Self {
            period,
            header: ticks(http.header_timeout),
            body: ticks(http.body_timeout),
            write: ticks(http.write_timeout),
            #[cfg(feature = "http2")]
            in_the_way: ticks(http.write_timeout / Self::IN_THE_WAY),
            idle: ticks(http.idle_timeout),
            linger: ticks(http.linger),
            silence: ticks(http.idle_timeout.min(Self::SILENCE)),
            age: http.max_connection_age.map(ticks),
            upgrade_grace: ticks(http.upgrade_grace),
            round_trip: ticks(http.header_timeout.min(Self::ROUND_TRIP)),
            watch: ticks(Self::WATCH),
            horizon: ticks(shortest.min(Self::WATCH)).min(Wheel::REACH),
        }
    }

    /// When a connection that begins now is old: with a spread of a quarter, by its key.
    pub(crate) fn end_of_life(&self, now: Tick, key: usize) -> Option<Tick> {
        let age = self.age?;
        // Neighbours are far apart: the golden ratio's share of the quarter, again and again.
        let share = (key as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let spread = (u128::from(age / 4) * u128::from(share)) >> 32;
        Some(now.after(age.saturating_add(u64::try_from(spread).unwrap_or(u64::MAX))))
    }

    /// Whether a connection has done what it does for long enough to be looked after.
    pub(crate) fn is_long(&self, state: &ConnState, now: Tick) -> bool {
        state.stamp().after(self.watch) <= now
    }

    /// Whether a second has passed.
    #[cfg(feature = "http2")]
    pub(crate) fn is_second_over(&self, since: Tick, now: Tick) -> bool {
        since.after(self.watch) <= now
    }

    /// Whether a round trip has passed.
    #[cfg(feature = "http2")]
    pub(crate) fn is_round_trip_over(&self, since: Tick, now: Tick) -> bool {
        since.after(self.round_trip) <= now
    }

    /// Whether a connection is so new that its client's first request may still be on its way.
    pub(crate) fn is_new(&self, state: &ConnState, now: Tick) -> bool {
        state.stage() == Stage::Fresh && state.stamp().after(self.round_trip) > now
    }

    /// How long a client that may be about to send a request has for it in a drain.
    pub(crate) fn asks_until(&self, state: &ConnState, drain: Draining) -> Tick {
        let first = match state.stage() {
            Stage::Fresh | Stage::Quiet => self.round_trip,
            _ => 0,
        };
        let next = match drain.next {
            Next::Worker => self.silence,
            Next::Nobody => 0,
        };
        state.stamp().after(first.max(next))
    }

    /// Since when a connection has been idle, if for so long that it may end for another: a request
    /// that is on its way is given as much time to come as in a drain.
    pub(crate) fn idle_since(&self, state: &ConnState, now: Tick) -> Option<Tick> {
        let is_idle = match state.stage() {
            Stage::Quiet => state.write_blocked_since().is_none(),
            _ => state.is_idle() && !self.is_new(state, now),
        };
        let since = state.stamp();
        (is_idle && since.after(self.linger) <= now).then_some(since)
    }

    /// When a connection's time is up as things stand, and what is to be done about it then.
    pub(crate) fn deadline(
        &self,
        state: &ConnState,
        draining: Option<Draining>,
    ) -> Option<(Tick, Order)> {
        let blocked = state.write_blocked_since();
        let stamp = state.stamp();
        let of_stage = match (state.stage(), draining) {
            // What is still going on has a deadline of its own.
            (Stage::Idle, _) if !state.is_idle() => None,
            (Stage::Fresh | Stage::Idle, Some(drain)) => {
                let lingers = stamp.max(drain.since).after(self.linger);
                let asks = self.asks_until(state, drain);
                Some((lingers.max(asks), Order::CloseIdle))
            }
            // The others have been told to go.
            (Stage::Quiet, Some(drain)) => {
                let due = self.asks_until(state, drain);
                let due = due.min(stamp.after(self.idle));
                Some((due, Order::Expire(Deadline::Idle)))
            }
            (Stage::Idle | Stage::Quiet, None) => {
                Some((stamp.after(self.idle), Order::Expire(Deadline::Idle)))
            }
            // Unless there is more to be sent.
            (Stage::Closing, Some(drain)) if blocked.is_none() => {
                let closes = stamp.max(drain.since).after(self.round_trip);
                let due = closes.min(stamp.after(self.header));
                Some((due, Order::Expire(Deadline::Header)))
            }
            (Stage::Opening | Stage::Fresh | Stage::Head | Stage::Closing, _) => {
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
    /// When the client of one stream of HTTP/2 has taken too little of its response, as things
    /// stand, if others wait for that.
    #[cfg(feature = "http2")]
    pub(crate) fn in_the_way_from(&self, stream: &ConnState) -> Option<Tick> {
        let blocked = stream.write_blocked_since();
        blocked.map(|since| since.after(self.in_the_way))
    }

    /// When the client of one stream of HTTP/2 has taken too long, as things stand, and at what.
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

/// What the registry wants of a connection. Its task obeys if it still has reason to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// A deadline has passed.
    Expire(Deadline),
    /// The drain's grace for idle connections is over.
    CloseIdle,
    /// A new connection waits for one to end, and this one is idle.
    Evict,
    /// The drain's grace for upgraded connections is over.
    EndUpgrade,
    /// Look for streams whose client has taken too long.
    Streams,
    /// Give up all but the socket, until something comes.
    Rest,
    /// End, whatever it is that you do.
    Cut,
}

impl Order {
    /// Whether it has no reason any more once the client says something.
    pub(crate) fn is_about_silence(self) -> bool {
        matches!(
            self,
            Self::CloseIdle | Self::Evict | Self::Expire(Deadline::Idle)
        )
    }
}

/// What a client can be too slow at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deadline {
    Header,
    Body,
    Write,
    Idle,
}
