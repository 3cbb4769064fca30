//! Recycling: a worker that asks for it is replaced, one slot at a time.

use crate::id::{Slot, WorkerId};
use crate::supervisor::policy::HASTY;
use crate::supervisor::slot::Holder;
use crate::supervisor::worker::{Recycle, Worker};
use crate::supervisor::{Change, Phase, Supervisor};

// As in a reload the successor starts first, on the same listeners. It is of the generation that a
// crashed worker would be replaced with. A reload takes precedence, because it replaces all
// workers.
//
// A successor that fails is no crash: a server whose workers all serve must not end because of it.
// The next one may fail for the same reason, so the worker serves on until it asks again.
//
// If workers of a slot ask too soon after they were ready, again and again, the slot would start
// workers without end. So it pauses as after so many crashes.

impl Supervisor {
    pub(super) fn recycle_asked(&mut self, id: WorkerId) {
        for slot in self.wanted_slots() {
            match &self.entry(slot).holder {
                Holder::Held(worker) if worker.id == id && worker.recycle == Recycle::No => {
                    let worker = worker.clone();
                    self.recycle_holder(slot, &worker);
                }
                Holder::Replacing { old, .. } if old.id == id && old.is_serving() => {
                    self.set_recycle(slot, Recycle::Due);
                }
                _ => {}
            }
        }
    }

    fn recycle_holder(&mut self, slot: Slot, worker: &Worker) {
        let Some(served) = worker.served(self.now) else {
            return;
        };
        let pause = (served < HASTY).then(|| self.strike(slot)).flatten();
        let Some(pause) = pause else {
            return self.set_recycle(slot, Recycle::Due);
        };
        let until = self.now + pause;
        self.set_recycle(slot, Recycle::Pausing { until });
        self.notify(Change::BackingOff { slot, pause });
    }

    /// Starts a successor for the first worker that is due, if no other slot is being replaced.
    pub(super) fn start_recycling(&mut self) {
        if self.phase != Phase::Serving || self.is_replacing() {
            return;
        }
        let next = self.wanted_slots().find(|&slot| {
            let entry = self.entry(slot);
            let due = entry.server().is_some_and(|it| it.recycle == Recycle::Due);
            due && entry.may_replace()
        });
        if let Some(slot) = next {
            self.start_successor(slot);
        }
    }

    /// The successor in `slot` is gone, and it did not belong to a reload.
    pub(super) fn replacement_failed(&mut self, slot: Slot) {
        self.set_recycle(slot, Recycle::No);
    }

    pub(super) fn set_recycle(&mut self, slot: Slot, recycle: Recycle) {
        if let Some(worker) = self.entry_mut(slot).holder_mut() {
            worker.recycle = recycle;
        }
    }

    /// Whether a slot has a successor that starts.
    pub(super) fn is_replacing(&self) -> bool {
        let replacing = |slot| matches!(self.entry(slot).holder, Holder::Replacing { .. });
        self.wanted_slots().any(replacing)
    }
}
