//! What a worker counts while it serves: words of its row, and which requests it times.
//!
//! To read the clock twice for a request would cost more than all the rest of the counting (70 ns
//! of 80 where it was measured). So it is done for every request while there are few, when it does
//! not matter, and for one in [`SAMPLED`] when there are many; such a one then counts as that many.

use std::cell::Cell;
use std::time::Instant;

use http::StatusCode;

use super::timeouts::Deadline;
use super::wheel::Tick;
use crate::row::{Count, Row};

/// How many requests are timed in each tick of the registry, a quarter of a second at the most,
/// before only samples are. They cost some microseconds.
const TIMED_PER_TICK: u32 = 64;

/// Of the requests beyond, one in so many is timed. A power of two.
const SAMPLED: u64 = 16;

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

#[derive(Debug)]
pub(super) struct Counters {
    row: Row,
    lottery: Lottery,
}

/// When a request began, if it is timed.
#[derive(Clone, Copy, Debug)]
pub(super) enum Timing {
    Untimed,
    Timed { begun: Instant, weight: u64 },
}

impl Counters {
    pub(super) fn new(row: Row) -> Self {
        Self {
            row,
            lottery: Lottery::new(),
        }
    }

    pub(super) fn row(&self) -> Row {
        self.row.clone()
    }

    pub(super) fn get(&self) -> Counts {
        let count = |count| self.row.count(count);
        Counts {
            requests: count(Count::Requests),
            panics: count(Count::Panics),
            broken_responses: count(Count::BrokenResponses),
            header_timeouts: count(Count::HeaderTimeouts),
            body_timeouts: count(Count::BodyTimeouts),
            write_timeouts: count(Count::WriteTimeouts),
            idle_timeouts: count(Count::IdleTimeouts),
            cut: count(Count::Cut),
        }
    }

    #[inline]
    pub(super) fn request_begins(&self, now: Tick) -> Timing {
        self.row.request_begins();
        match self.lottery.draw(now) {
            0 => Timing::Untimed,
            weight => Timing::Timed {
                begun: Instant::now(),
                weight,
            },
        }
    }

    /// The handler has answered, or we have for it.
    #[inline]
    pub(super) fn answer(&self, status: StatusCode) {
        let class = match status.as_u16() / 100 {
            1 => Count::Informational,
            2 => Count::Success,
            3 => Count::Redirection,
            4 => Count::ClientError,
            5 => Count::ServerError,
            // A number from 600 on is nothing that a client could understand (RFC 9110 15).
            _ => return,
        };
        self.row.add(class, 1);
    }

    /// The answer has been given to its end, or the client has left.
    #[inline]
    pub(super) fn request_ends(&self, timing: Timing) {
        self.row.request_ends();
        if let Timing::Timed { begun, weight } = timing {
            self.row.note_latency(begun.elapsed(), weight);
        }
    }

    pub(super) fn panic(&self) {
        self.row.add(Count::Panics, 1);
    }

    pub(super) fn broken_response(&self) {
        self.row.add(Count::BrokenResponses, 1);
    }

    pub(super) fn timeout(&self, deadline: Deadline) {
        let count = match deadline {
            Deadline::Header => Count::HeaderTimeouts,
            Deadline::Body => Count::BodyTimeouts,
            Deadline::Write => Count::WriteTimeouts,
            Deadline::Idle => Count::IdleTimeouts,
        };
        self.row.add(count, 1);
    }

    pub(super) fn cut(&self, connections: usize) {
        self.row.add(Count::Cut, connections as u64);
    }
}

/// Decides which requests are timed.
#[derive(Debug)]
struct Lottery {
    tick: Cell<Tick>,
    timed: Cell<u32>,
    seed: Cell<u64>,
}

impl Lottery {
    fn new() -> Self {
        Self {
            tick: Cell::new(Tick(0)),
            timed: Cell::new(0),
            // Any will do: what matters is that no pattern of requests meets a pattern of draws.
            seed: Cell::new(0x9E37_79B9_7F4A_7C15),
        }
    }

    /// For how many requests this one stands; 0 if it is not timed.
    fn draw(&self, now: Tick) -> u64 {
        if self.tick.replace(now) != now {
            self.timed.set(0);
        }
        if self.timed.get() < TIMED_PER_TICK {
            self.timed.set(self.timed.get() + 1);
            return 1;
        }
        // A linear congruential generator, whose high bits are good enough for this.
        let seed = self
            .seed
            .get()
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        self.seed.set(seed);
        if seed >> (u64::BITS - SAMPLED.ilog2()) == 0 {
            SAMPLED
        } else {
            0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_requests_are_all_timed_and_many_are_sampled() {
        let lottery = Lottery::new();
        for tick in 1..10 {
            let few = (0..TIMED_PER_TICK).all(|_| lottery.draw(Tick(tick)) == 1);
            assert!(few, "in tick {tick}");
        }
        let draws: Vec<_> = (0..160_000).map(|_| lottery.draw(Tick(9))).collect();
        let timed = draws.iter().filter(|&&weight| weight > 0).count();
        assert!((9_000..11_000).contains(&timed), "one in 16: {timed}");
        let weight: u64 = draws.iter().sum();
        assert!(
            weight.abs_diff(160_000) < 16_000,
            "they stand for all: {weight}"
        );
    }
}
