//! Which connections go to a worker with less to do: as many as were asked for, and not one that
//! takes most of this worker's time by itself. The others wait for its requests. So they go, and it
//! stays: wherever it went, others would wait for it.

use std::cell::Cell;
use std::time::Duration;

/// A connection that took less CPU time does not take most of it.
const SHORT: Duration = Duration::from_micros(100);

/// The connections that are still to go.
#[derive(Debug, Default)]
pub(crate) struct Sharing {
    left: Cell<usize>,
    /// The connection that has come back last.
    back: Cell<Option<usize>>,
    /// Tells the CPU time of this thread.
    clock: Cell<Option<fn() -> Duration>>,
    spending: Cell<Spending>,
}

/// The CPU time of requests, and the connection that may have taken most of it.
#[derive(Clone, Copy, Debug, Default)]
struct Spending {
    total: Duration,
    key: usize,
    /// How much more this connection took than all others since it was the one.
    lead: Duration,
}

impl Sharing {
    /// So many connections are to go from now on.
    pub(crate) fn ask(&self, connections: usize, clock: fn() -> Duration) {
        self.left.set(connections);
        self.back.set(None);
        if connections > 0 {
            self.clock.set(Some(clock));
            self.spending.set(self.spending.get().faded());
        }
    }

    pub(crate) fn is_asked(&self) -> bool {
        self.left.get() > 0
    }

    /// Does the work of the connection with this key. Its CPU time counts while connections are
    /// asked for.
    pub(crate) fn measured<T>(&self, key: usize, work: impl FnOnce() -> T) -> T {
        let Some(clock) = self.clock.get().filter(|_| self.is_asked()) else {
            return work();
        };
        let begun = clock();
        let done = work();
        let took = clock().saturating_sub(begun);
        self.spending.set(self.spending.get().after(key, took));
        done
    }

    /// The connection with this key has become idle after a request. Whether it goes.
    pub(crate) fn take_one(&self, key: usize) -> bool {
        let may_go = self.back.get() != Some(key) && !self.spending.get().is_mostly_of(key);
        let goes = self.is_asked() && may_go;
        if goes {
            self.left.set(self.left.get() - 1);
        }
        goes
    }

    /// The connection with this key was to go and cannot. It is not tried again for the connections
    /// that are still to go.
    pub(crate) fn came_back(&self, key: usize) {
        self.back.set(Some(key));
    }
}

impl Spending {
    /// A connection can have more than half only if its lead is left after all others have taken
    /// theirs from it.
    fn after(self, key: usize, took: Duration) -> Self {
        let total = self.total + took;
        let (key, lead) = match (key == self.key, took.checked_sub(self.lead)) {
            (true, _) => (key, self.lead + took),
            (false, Some(lead)) => (key, lead),
            (false, None) => (self.key, self.lead - took),
        };
        Self { total, key, lead }
    }

    /// Whether the connection took more than two thirds.
    fn is_mostly_of(self, key: usize) -> bool {
        self.key == key && self.lead >= SHORT && self.lead * 3 > self.total
    }

    /// What was long ago counts less.
    fn faded(self) -> Self {
        Self {
            total: self.total / 2,
            lead: self.lead / 2,
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    thread_local! {
        static NOW: Cell<Duration> = const { Cell::new(Duration::ZERO) };
    }

    fn work(sharing: &Sharing, key: usize, micros: u64) {
        sharing.measured(key, || NOW.set(NOW.get() + Duration::from_micros(micros)));
    }

    /// Whether a connection goes whose request took so many microseconds.
    fn goes(sharing: &Sharing, key: usize, micros: u64) -> bool {
        work(sharing, key, micros);
        sharing.take_one(key)
    }

    fn asked(connections: usize) -> Sharing {
        let sharing = Sharing::default();
        assert!(!goes(&sharing, 1, 1), "none was asked for");
        sharing.ask(connections, || NOW.get());
        sharing
    }

    #[test]
    fn as_many_go_as_were_asked_for() {
        let sharing = asked(3);
        let all = [0, 1, 2, 3, 4].map(|key| goes(&sharing, key, 50));
        assert_eq!(all, [true, true, true, false, false]);
    }

    #[test]
    fn a_connection_that_takes_most_of_the_time_stays_and_the_others_go() {
        for micros in [10, 150, 1000] {
            let sharing = asked(100);
            for round in 0..10 {
                assert!(!goes(&sharing, 7, 5000), "{round}");
                assert!(goes(&sharing, 100 + round, micros), "{round}");
                assert!(!goes(&sharing, 7, 10), "a short request after a long one");
                sharing.ask(100, || NOW.get());
            }
        }
    }

    #[test]
    fn time_counts_although_the_connection_has_not_become_idle() {
        let sharing = asked(100);
        work(&sharing, 7, 5000);
        assert!(goes(&sharing, 8, 50), "it did not take the 5 ms");
        assert!(!goes(&sharing, 7, 10), "it did");
    }

    #[test]
    fn of_connections_that_take_the_same_all_but_one_go() {
        let sharing = asked(100);
        assert!(!goes(&sharing, 1, 5000), "it is the only one so far");
        for key in [2, 3, 4] {
            assert!(goes(&sharing, key, 5000), "{key}");
        }
        let sharing = asked(100);
        assert!(!goes(&sharing, 1, 4000), "the only one so far");
        assert!(goes(&sharing, 2, 5000));
    }
}
