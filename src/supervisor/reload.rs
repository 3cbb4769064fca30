//! A reload: the slots are given a new generation, each only when the new worker is ready.

use crate::id::Slot;
use crate::supervisor::slot::Holder;
use crate::supervisor::upgrade::PendingCommand;
use crate::supervisor::worker::{Spent, Worker};
use crate::supervisor::{Abandoned, Action, Change, Phase, Supervisor};

// A slot is replaced start-first: the new worker takes the same listeners while the old one still
// accepts, and the old one drains only after `Ready`. So no accept queue is ever unattended.
//
// Once a reload runs, every vacant slot is filled with its generation too, whatever made it vacant.
// If any worker of that generation fails before it is ready, the reload is abandoned, and that
// failure is not counted as a crash: it is the reload that failed, not the server.

impl Supervisor {
    /// Has the master check what it gives to new workers, before a worker is touched.
    pub(super) fn check_reload(&mut self) {
        if !self.is_draining() {
            self.actions.push_back(Action::CheckReload);
        }
    }

    /// A refused reload is told as begun and abandoned, so that those who wait for its end
    /// are notified. A reload that runs goes on.
    pub(super) fn reload_refused(&mut self) {
        if self.is_draining() {
            return;
        }
        let generation = self.newest.next();
        let why = Abandoned::Refused;
        self.notify(Change::ReloadStarted { generation });
        self.notify(Change::ReloadAbandoned { generation, why });
    }

    pub(super) fn reload_asked(&mut self) {
        match self.phase {
            Phase::Serving if self.pending.is_empty() => self.begin_reload(),
            // A further reload means that something has changed once more. The new workers that
            // are on their way may become ready, and are replaced again.
            Phase::Reloading { .. } => self.begin_reload(),
            Phase::Serving | Phase::Starting | Phase::Upgrading => {
                self.remember(PendingCommand::Reload)
            }
            Phase::Draining { .. } | Phase::Finished => {}
        }
    }

    /// Begins a reload, or raises the target of the one that runs.
    pub(super) fn begin_reload(&mut self) {
        self.newest = self.newest.next();
        self.reload_to_newest();
    }

    pub(super) fn reload_to_newest(&mut self) {
        let target = self.newest;
        self.phase = Phase::Reloading { target };
        self.notify(Change::ReloadStarted { generation: target });
        // The reload may be the mend: a slot that rests need not wait for it.
        self.end_pauses();
    }

    /// Starts successors beside serving workers that are older than the target.
    pub(super) fn replace_stale(&mut self) {
        let Phase::Reloading { target } = self.phase else {
            return;
        };
        let under_way = self
            .wanted_slots()
            .filter(|&slot| matches!(self.entry(slot).holder, Holder::Replacing { .. }))
            .count();
        let free = usize::from(self.policy.reload_batch.get()).saturating_sub(under_way);
        let stale: Vec<Slot> = self
            .wanted_slots()
            .filter(|&slot| match &self.entry(slot).holder {
                Holder::Held(worker) => worker.is_serving() && worker.generation < target,
                _ => false,
            })
            .filter(|&slot| self.entry(slot).may_replace())
            .take(free)
            .collect();
        for slot in stale {
            self.start_successor(slot);
        }
    }

    /// Starts a worker that takes the slot from its holder when it is ready.
    pub(super) fn start_successor(&mut self, slot: Slot) {
        let new = self.spawn(slot);
        let entry = self.entry_mut(slot);
        if let Holder::Held(mut old) = std::mem::take(&mut entry.holder) {
            if let Spent::Pausing { .. } = old.spent {
                old.spent = Spent::Due;
            }
            entry.holder = Holder::Replacing { old, new };
        }
    }

    /// The reload is over when every slot is served by its generation.
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

    /// Whether the reload that runs stands or falls with this worker's becoming ready. It does not
    /// with one that a raised target has overtaken: what failed there may be what was mended.
    pub(super) fn is_reload_of(&self, worker: &Worker) -> bool {
        matches!(self.phase, Phase::Reloading { target } if worker.generation == target)
    }

    /// Gives the reload up, if it was for it that `worker` was started. What has been replaced
    /// stays; other successors that are not ready drain.
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
                self.dismiss(slot, new);
            }
        }
    }
}
