//! Tells each worker its siblings: the workers to which it may give new connections. The workers
//! decide which connections go there (`worker/placing`).
//!
//! Siblings are the workers that serve the slots after its own, in a ring, and [`SIBLINGS_MAX`] at
//! most. So a worker has a bounded number of descriptors, and load spreads over the ring. No
//! worker may give connections to one that sheds: that one has no time for more, although it has
//! few.
//!
//! A worker may keep an old list for a while. This is harmless: the page of a worker that drains,
//! or that has ended, says so.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use crate::config::{Balance, Config};
use crate::id::{Slot, WorkerId};
use crate::master::Master;
use crate::protocol::channel::{SIBLINGS_MAX, ToWorkerRef};
use crate::sys::clock;

/// When a worker is told again whose channel was full.
const AGAIN: Duration = Duration::from_secs(1);

/// What the workers were told.
#[derive(Debug, Default)]
pub(in crate::master) struct Told {
    /// The workers that served when they were told, and whether each takes connections of others.
    serving: Vec<(WorkerId, bool)>,
    /// The siblings that each worker knows.
    siblings: BTreeMap<WorkerId, Vec<WorkerId>>,
    /// When to tell those again that could not be told, on the monotonic clock.
    again_at: Option<Duration>,
}

impl Told {
    /// Nothing yet; `None` if connections stay where they are accepted.
    pub(super) fn new(config: &Config) -> Option<Self> {
        (config.balance == Balance::Even).then(Self::default)
    }
}

impl Master {
    /// Tells the workers whose siblings have changed. A worker whose channel is full is told later.
    pub(in crate::master) fn tell_siblings(&mut self) {
        let Some(mut told) = self.balance.told.take() else {
            return;
        };
        let slots = (0..self.workers.count).map(Slot);
        let sheds = |worker| {
            let shedding = self.balance.shedding.as_ref();
            shedding.is_some_and(|it| it.sheds(worker))
        };
        let serving = slots.filter_map(|slot| self.supervisor.serves(slot));
        let serving: Vec<_> = serving.map(|worker| (worker, !sheds(worker))).collect();
        let now = clock::monotonic();
        let is_due = told.again_at.is_some_and(|at| at <= now);
        if told.serving != serving || is_due {
            let are_told = self.tell_each(&serving, &mut told.siblings);
            told.again_at = (!are_told).then_some(now + AGAIN);
            told.serving = serving;
        }
        self.balance.told = Some(told);
    }

    /// When to call [`Master::tell_siblings`] although nothing has come; `None` if all were told.
    pub(in crate::master) fn next_telling(&self) -> Option<Duration> {
        self.balance.told.as_ref()?.again_at
    }

    /// Whether each worker was told.
    fn tell_each(
        &self,
        serving: &[(WorkerId, bool)],
        told: &mut BTreeMap<WorkerId, Vec<WorkerId>>,
    ) -> bool {
        let serve: BTreeSet<_> = serving.iter().map(|(worker, _)| worker).collect();
        told.retain(|worker, _| serve.contains(worker));
        let mut are_told = true;
        for (at, &(worker, _)) in serving.iter().enumerate() {
            let siblings = siblings(at, serving);
            let known = told.get(&worker).map_or(&[][..], Vec::as_slice);
            if known == siblings {
                continue;
            }
            match self.send_siblings(worker, &siblings) {
                Ok(()) => drop(told.insert(worker, siblings)),
                Err(error) => {
                    tracing::debug!(%worker, %error, "siblings not told");
                    are_told = false;
                }
            }
        }
        are_told
    }

    fn send_siblings(&self, worker: WorkerId, siblings: &[WorkerId]) -> io::Result<()> {
        let processes = &self.workers.processes;
        let siblings = siblings.iter().filter_map(|sibling| processes.get(sibling));
        let siblings: Vec<_> = siblings.collect();
        let pages = siblings.iter().map(|sibling| sibling.stats.read_only());
        let pages = pages.collect::<io::Result<Vec<OwnedFd>>>()?;
        let ends = siblings.iter().zip(&pages).filter_map(|(sibling, page)| {
            let inbox = self.listeners.inbox(sibling.slot)?;
            Some([page.as_fd(), inbox.sender(), inbox.receiver()])
        });
        let message = ToWorkerRef::Siblings(ends.collect());
        match processes.get(&worker).and_then(|process| process.channel()) {
            Some(channel) => channel.send_to_worker(message),
            None => Ok(()),
        }
    }
}

/// Those after the worker at this place that take connections.
fn siblings(at: usize, serving: &[(WorkerId, bool)]) -> Vec<WorkerId> {
    let others = serving[at + 1..].iter().chain(&serving[..at]);
    let taking = others.filter_map(|&(worker, takes)| takes.then_some(worker));
    taking.take(SIBLINGS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn siblings_are_the_next_ones_in_a_ring() {
        let serving: Vec<_> = (0..3).map(|id| (WorkerId(id), true)).collect();
        assert_eq!(siblings(1, &serving), [WorkerId(2), WorkerId(0)]);
        assert_eq!(siblings(0, &serving[..1]), []);
        let many: Vec<_> = (0..100).map(|id| (WorkerId(id), true)).collect();
        let of_last = siblings(99, &many);
        let first: Vec<_> = (0..8).map(WorkerId).collect();
        assert_eq!(of_last, first);
    }

    #[test]
    fn a_worker_that_sheds_gives_to_others_and_gets_nothing() {
        let serving = [
            (WorkerId(0), true),
            (WorkerId(1), false),
            (WorkerId(2), true),
        ];
        let each = [0, 1, 2].map(|at| siblings(at, &serving));
        let ids = |ids: &[u64]| ids.iter().copied().map(WorkerId).collect::<Vec<_>>();
        assert_eq!(each, [ids(&[2]), ids(&[2, 0]), ids(&[0])]);
    }

    #[test]
    fn without_balance_no_worker_learns_its_siblings() {
        let mut config = Config::default();
        assert!(Told::new(&config).is_some(), "the default");
        config.balance = Balance::Off;
        assert!(Told::new(&config).is_none());
    }
}
