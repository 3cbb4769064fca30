//! A reload: each worker is replaced with one of a new generation, when the new one is ready.

use crate::id::Slot;
use crate::supervisor::slot::Holder;
use crate::supervisor::upgrade::PendingCommand;
use crate::supervisor::worker::{Recycle, Worker};
use crate::supervisor::{Abandoned, Action, Change, Phase, Supervisor};

// The new worker starts first: it takes the same listeners while the old one still accepts, and the
// old one drains only after `Ready`. So no accept queue is ever unattended.
//
// While a reload runs, every vacant slot gets a worker of its generation too. If any worker of that
// generation fails before it is ready, the reload is abandoned. That failure does not count as a
// crash, because the reload has failed and not the server.

impl Supervisor {
    /// Has the master check what it gives to new workers, before a worker is touched. Workers may
    /// ask without end, so one check is for all that have asked before it.
    pub(super) fn reload_asked(&mut self) {
        if !self.is_draining() && !self.actions.contains(&Action::CheckReload) {
            self.actions.push_back(Action::CheckReload);
        }
    }

    /// Notifies that a reload has started and was abandoned, so that hooks that wait for its end
    /// get one. A reload that runs or waits goes on, and then no other one has started.
    pub(super) fn reload_refused(&mut self) {
        if self.is_draining() {
            return;
        }
        let generation = self.newest.next();
        let why = Abandoned::Refused;
        // Another one runs, or waits for an upgrade or for the start.
        if self.phase == Phase::Serving && self.pending.is_empty() {
            self.notify(Change::ReloadStarted { generation });
        }
        self.notify(Change::ReloadAbandoned { generation, why });
    }

    /// The check has succeeded.
    pub(super) fn reload(&mut self) {
        match self.phase {
            Phase::Serving if self.pending.is_empty() => self.begin_reload(),
            // Something has changed once more. New workers that start may still become ready, and
            // are replaced again.
            Phase::Reloading { .. } => self.begin_reload(),
            Phase::Serving | Phase::Starting | Phase::Upgrading => {
                self.remember(PendingCommand::Reload)
            }
            Phase::Draining { .. } | Phase::Finished => {}
        }
    }

    /// Begins a reload, or raises the target of the reload that runs.
    pub(super) fn begin_reload(&mut self) {
        self.newest = self.newest.next();
        self.reload_to_newest();
    }

    pub(super) fn reload_to_newest(&mut self) {
        let target = self.newest;
        self.phase = Phase::Reloading { target };
        self.notify(Change::ReloadStarted { generation: target });
        // The reload may repair what made a slot crash, so the slot need not rest any longer.
        self.end_pauses();
    }

    /// Starts successors for serving workers that are older than the target, for the oldest first:
    /// a worker that raises the target again and again, by reloads of its own or by a socket that
    /// it shuts down, is replaced too.
    pub(super) fn replace_stale(&mut self) {
        let Phase::Reloading { target } = self.phase else {
            return;
        };
        let under_way = self
            .wanted_slots()
            .filter(|&slot| matches!(self.entry(slot).holder, Holder::Replacing { .. }))
            .count();
        let free = usize::from(self.policy.reload_batch.get()).saturating_sub(under_way);
        let age = |slot| match &self.entry(slot).holder {
            Holder::Held(worker) if worker.is_serving() => Some((worker.generation, slot)),
            _ => None,
        };
        let stale = self.wanted_slots().filter_map(age);
        let mut stale: Vec<_> = stale
            .filter(|&(generation, slot)| generation < target && self.entry(slot).may_replace())
            .collect();
        stale.sort_unstable();
        for (_, slot) in stale.into_iter().take(free) {
            self.start_successor(slot);
        }
    }

    /// Starts a worker that replaces the holder of the slot when it is ready.
    pub(super) fn start_successor(&mut self, slot: Slot) {
        let new = self.spawn(slot);
        let entry = self.entry_mut(slot);
        if let Holder::Held(mut old) = std::mem::take(&mut entry.holder) {
            if let Recycle::Pausing { .. } = old.recycle {
                old.recycle = Recycle::Due;
            }
            entry.holder = Holder::Replacing { old, new };
        }
    }

    /// Ends the reload when every slot is served by its generation.
    pub(super) fn conclude_reload(&mut self) {
        let Phase::Reloading { target } = self.phase else {
            return;
        };
        let done = self
            .wanted_slots()
            .all(|slot| match &self.entry(slot).holder {
                Holder::Held(worker) => worker.is_serving() && worker.generation == target,
                _ => false,
            });
        if done {
            self.phase = Phase::Serving;
            self.notify(Change::ReloadFinished { generation: target });
        }
    }

    /// Whether the reload that runs is abandoned if this worker does not become ready. It is not
    /// for a worker of an earlier target: the later reload may repair what failed there.
    pub(super) fn is_reload_of(&self, worker: &Worker) -> bool {
        matches!(self.phase, Phase::Reloading { target } if worker.generation == target)
    }

    /// Abandons the reload, if `worker` was started for it. Workers that were replaced stay
    /// replaced. Other successors drain.
    pub(super) fn abandon_reload_of(&mut self, worker: &Worker, why: Abandoned) {
        if !self.is_reload_of(worker) {
            return;
        }
        self.phase = Phase::Serving;
        self.notify(Change::ReloadAbandoned {
            generation: worker.generation,
            why,
        });
        for slot in self.slots() {
            let entry = self.entry_mut(slot);
            if matches!(entry.holder, Holder::Replacing { .. }) {
                let new = entry.take_successor();
                self.drain_out(slot, new);
            }
        }
    }
}
