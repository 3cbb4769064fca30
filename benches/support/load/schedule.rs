//! When which client may send.

use std::time::{Duration, Instant};

use super::plan::Extent;

/// When requests are sent.
pub(super) enum Schedule {
    /// As soon as the client has its last response.
    Closed { left: u64, until: Option<Instant> },
    /// At constant intervals, to one client after the other.
    Open(Arrivals),
}

/// The open loop's clock. Arrival `n` is client `n % clients`'s.
pub(super) struct Arrivals {
    start: Instant,
    interval: Duration,
    clients: u64,
    /// How many there are in all.
    total: u64,
    /// How many are due, as far as we have looked.
    due: u64,
}

impl Schedule {
    /// `batch`: how many requests a client sends at once.
    pub(super) fn closed(extent: Extent, start: Instant, batch: usize) -> Self {
        match extent {
            Extent::Requests(count) => Self::Closed {
                left: count.div_ceil(batch as u64),
                until: None,
            },
            Extent::For(time) => Self::Closed {
                left: u64::MAX,
                until: Some(start + time),
            },
        }
    }

    /// For so many clients, each of which sends a batch at once.
    pub(super) fn open(
        per_second: f64,
        time: Duration,
        start: Instant,
        (clients, batch): (usize, usize),
    ) -> Self {
        let interval = Duration::from_secs_f64(batch as f64 / per_second);
        let total = time.div_duration_f64(interval).ceil();
        Self::Open(Arrivals {
            start,
            interval,
            clients: clients as u64,
            // Never none: a run that sends nothing tells nothing.
            total: (total as u64).max(1),
            due: 0,
        })
    }

    /// When the next request of a client that has sent `sent` batches in this run is, or was, to be
    /// sent. Taken if there is one.
    pub(super) fn take(&mut self, client: usize, sent: u64, now: Instant) -> Option<Instant> {
        match self {
            Self::Closed { left, until } => {
                let over = until.is_some_and(|until| now >= until);
                (*left > 0 && !over).then(|| {
                    *left -= 1;
                    now
                })
            }
            Self::Open(arrivals) => {
                let arrival = sent * arrivals.clients + client as u64;
                (arrival < arrivals.due).then(|| arrivals.time(arrival))
            }
        }
    }
}

impl Arrivals {
    /// The client whose arrival has become due, one after the other, until none is.
    pub(super) fn next_due(&mut self, now: Instant) -> Option<usize> {
        if self.is_over() || self.time(self.due) > now {
            return None;
        }
        let client = self.due % self.clients;
        self.due += 1;
        Some(client as usize)
    }

    /// How long until the next arrival; `None` if there is none.
    pub(super) fn wait(&self, now: Instant) -> Option<Duration> {
        let next = (!self.is_over()).then(|| self.time(self.due))?;
        Some(next.saturating_duration_since(now))
    }

    /// How many arrivals of `client` are due, and when the first of them that is not sent was.
    pub(super) fn unsent(&self, client: usize, sent: u64) -> impl Iterator<Item = Instant> {
        let first = sent * self.clients + client as u64;
        let step = usize::try_from(self.clients).expect("it was one");
        (first..self.due)
            .step_by(step)
            .map(|arrival| self.time(arrival))
    }

    fn is_over(&self) -> bool {
        self.due == self.total
    }

    fn time(&self, arrival: u64) -> Instant {
        // Not `interval * arrival`: that takes a u32.
        let nanos = self.interval.as_nanos() * u128::from(arrival);
        self.start + Duration::from_nanos(u64::try_from(nanos).expect("a run is short"))
    }
}
