//! The end of the server: all workers drain, the listeners are closed, and the server ends when no
//! worker is left.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::drain::Idle;
use crate::id::WorkerId;
use crate::supervisor::worker::Worker;
use crate::supervisor::{Abandoned, Action, Change, Outcome, Phase, Stop, Supervisor, Urgency};

/// A second `TERM` or `QUIT` within this time repeats the first one: timeout(1) and many other
/// programs signal the process and then its group, microseconds apart. A person who asks again
/// takes longer, and so does a script that waits first.
const SAME_ASK: Duration = Duration::from_secs(1);

impl Supervisor {
    pub(super) fn stop(&mut self, stop: Stop) {
        match (stop, self.phase) {
            (Stop::Drain, _) => self.drain_server(SAME_ASK),
            (Stop::Now, Phase::Finished) => {}
            (Stop::Now, Phase::Draining { outcome, .. }) => self.hasten(outcome),
            (Stop::Now, _) => self.end(Outcome::Stopped, Urgency::Hastened),
        }
    }

    /// Drains; or kills, if an ask came before, but not within `same_ask` of the first one.
    pub(super) fn drain_server(&mut self, same_ask: Duration) {
        let asked = Urgency::Asked { at: self.now };
        match self.phase {
            Phase::Finished => {}
            Phase::Draining { outcome, urgency } => match urgency {
                Urgency::Unasked => {
                    let urgency = asked;
                    self.phase = Phase::Draining { outcome, urgency };
                }
                Urgency::Asked { at } if self.now.since(at) < same_ask => {}
                Urgency::Asked { .. } | Urgency::Hastened => self.hasten(outcome),
            },
            _ => self.end(Outcome::Drained, asked),
        }
    }

    /// Begins the end, unless it has begun. The first reason decides the outcome.
    pub(super) fn end(&mut self, outcome: Outcome, urgency: Urgency) {
        if self.is_draining() {
            return;
        }
        // Connections may wait for a worker that has just gone.
        self.attend();
        let before = std::mem::replace(&mut self.phase, Phase::Draining { outcome, urgency });
        self.pending.clear();
        self.retract_unspawned();
        let why = Abandoned::Stopping;
        match before {
            Phase::Reloading { target: generation } => {
                self.notify(Change::ReloadAbandoned { generation, why });
            }
            Phase::Upgrading => self.notify(Change::UpgradeAbandoned { why }),
            _ => {}
        }
        if urgency == Urgency::Hastened {
            self.kill_all();
        } else {
            self.notify(Change::Draining);
            self.drain_all();
        }
        self.actions.push_back(Action::CloseListeners);
    }

    /// Kills all workers. A server that ends because of an error keeps its outcome.
    fn hasten(&mut self, outcome: Outcome) {
        let outcome = match outcome {
            Outcome::Drained => Outcome::Stopped,
            reason => reason,
        };
        self.phase = Phase::Draining {
            outcome,
            urgency: Urgency::Hastened,
        };
        self.kill_all();
    }

    /// Removes queued actions that the end makes pointless: no process starts any more, and no
    /// slot is released to one.
    fn retract_unspawned(&mut self) {
        let mut unspawned = BTreeSet::new();
        for action in &self.actions {
            if let Action::Spawn { worker, .. } | Action::StartCanary { worker, .. } = action {
                unspawned.insert(*worker);
            }
        }
        self.actions.retain(|action| match action {
            Action::Drain(worker, _) | Action::Abort(worker) | Action::Kill(worker) => {
                !unspawned.contains(worker)
            }
            Action::Notify(Change::WorkerDraining(worker, ..)) => !unspawned.contains(worker),
            Action::Notify(Change::Adopted { .. } | Change::Released { .. }) => false,
            Action::Notify(_) | Action::CloseListeners | Action::Finish(_) => true,
            // The worker empties the queues before it exits.
            Action::Adopt { .. } => true,
            Action::Spawn { .. } | Action::StartCanary { .. } | Action::ExecInPlace => false,
            Action::Release { .. } | Action::CheckReload => false,
        });
        self.forget(&unspawned);
    }

    fn forget(&mut self, unspawned: &BTreeSet<WorkerId>) {
        let known = |worker: &Worker| !unspawned.contains(&worker.id);
        for entry in &mut self.entries {
            entry.retain_workers(known);
            entry.adopter = None;
        }
        self.canary = self.canary.take().filter(known);
    }

    fn drain_all(&mut self) {
        // The workers that were to take over their connections drain now as well.
        let leaving = self.entries.iter().flat_map(|entry| &entry.leaving);
        let drains = leaving.chain(&self.canary).filter(|it| it.is_draining());
        let again = drains.map(|worker| Action::Drain(worker.id, Idle::Close));
        self.actions.extend(again);
        for slot in self.slots() {
            self.vacate(slot);
        }
        self.drain_canary();
    }

    fn kill_all(&mut self) {
        for entry in &mut self.entries {
            entry.move_to_leaving();
        }
        let leaving = self.entries.iter_mut().flat_map(|entry| &mut entry.leaving);
        for worker in leaving.chain(&mut self.canary) {
            if !worker.is_killed() {
                worker.kill(self.now, &mut self.actions);
            }
        }
    }

    /// Finishes when no worker is left, but for those that the kernel does not end.
    pub(super) fn conclude_end(&mut self) {
        if let Phase::Draining { outcome, .. } = self.phase
            && self.workers().all(Worker::is_stuck)
        {
            self.phase = Phase::Finished;
            self.actions.push_back(Action::Finish(outcome));
        }
    }
}
