//! How the connections of a worker end: drained, handed over, or cut.

use std::task::Waker;

use tokio::time::sleep;

use super::{Members, Registry};
use crate::http::activity::Activity;
use crate::http::timeouts::Order;
use crate::http::wheel::Tick;

/// What is to become of the connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Serving,
    /// Those that may leave go to their heirs, and the others as in `Draining`.
    HandingOver {
        since: Tick,
    },
    /// They end.
    Draining {
        since: Tick,
    },
}

impl Registry {
    /// Whether the connection's next answer is to be its last.
    pub(in crate::http) fn is_draining(&self, activity: &Activity) -> bool {
        self.draining_since(activity).is_some()
    }

    pub(super) fn draining_since(&self, activity: &Activity) -> Option<Tick> {
        match self.phase.get() {
            Phase::Serving => None,
            Phase::HandingOver { since } => Some(since).filter(|_| !activity.may_leave()),
            Phase::Draining { since } => Some(since),
        }
    }

    /// From now on each answer is its connection's last.
    pub(in crate::http) fn drain(&self) {
        if !matches!(self.phase.get(), Phase::Draining { .. }) {
            let since = self.clock.now();
            self.begin(Phase::Draining { since });
        }
    }

    /// From now on idle connections go to their heirs. Each sees to that itself when it becomes
    /// idle; those that are idle already are told.
    pub(in crate::http) fn hand_over(&self) {
        if self.phase.get() != Phase::Serving {
            return;
        }
        let since = self.clock.now();
        self.begin(Phase::HandingOver { since });
        let wakers: Vec<_> = {
            let mut members = self.members.borrow_mut();
            let entries = members.entries.iter_mut().map(|(_, entry)| entry);
            let idle = entries.filter(|entry| entry.activity.is_idle());
            idle.filter_map(|entry| entry.task.take()).collect()
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    fn begin(&self, phase: Phase) {
        self.phase.set(phase);
        // Idle connections got their next turn for a deadline that has just moved closer.
        let Members { entries, wheel, .. } = &mut *self.members.borrow_mut();
        for (key, entry) in entries.iter() {
            wheel.put(key, self.turn(entry));
        }
        self.drain_asked.notify_one();
    }

    /// Orders every connection to end, and says how many there were.
    pub(in crate::http) fn cut(&self) -> usize {
        let (count, wakers) = {
            let mut members = self.members.borrow_mut();
            let mut wakers = Vec::new();
            let mut count = 0;
            for (_, entry) in &mut members.entries {
                if entry.order != Some(Order::Cut) {
                    count += 1;
                    wakers.extend(entry.give(Order::Cut));
                }
            }
            (count, wakers)
        };
        wakers.into_iter().for_each(Waker::wake);
        self.counters.cut(count);
        count
    }

    /// The moment for which idle connections are left open is shorter than most ticks, and the
    /// whole drain waits for it: it gets a timer of its own.
    pub(super) async fn close_idle_after_grace(&self) {
        loop {
            self.drain_asked.notified().await;
            sleep(self.http.linger).await;
            let ends = |activity: &Activity| {
                let since = self.draining_since(activity);
                activity.is_idle() && since.is_some_and(|since| activity.stamp() <= since)
            };
            let wakers: Vec<_> = {
                let mut members = self.members.borrow_mut();
                let entries = members.entries.iter_mut().map(|(_, entry)| entry);
                entries
                    .filter(|entry| ends(&entry.activity))
                    .filter_map(|entry| entry.give(Order::CloseIdle))
                    .collect()
            };
            wakers.into_iter().for_each(Waker::wake);
        }
    }
}
