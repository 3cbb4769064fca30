//! Recycling: a worker that asks for it is replaced, one slot at a time.

use std::time::Duration;

use crate::id::{Slot, WorkerId};
use crate::supervisor::policy::HASTY;
use crate::supervisor::slot::Holder;
use crate::supervisor::worker::Recycle;
use crate::supervisor::{Asker, Change, Phase, Supervisor};

// As in a reload the successor starts first, on the same listeners. It is of the generation that a
// crashed worker would be replaced with. A reload takes precedence, because it replaces all
// workers.
//
// A successor that fails is no crash: a server whose workers all serve must not end because of it.
// The next one may fail for the same reason, so the worker serves on until it asks again.
//
// If workers of a slot ask too soon after they were ready, again and again, the slot would start
// workers without end. So it pauses as after so many crashes. An operator waits for no pause, and
// is no reason for one.

impl Supervisor {
    pub(super) fn recycle_asked(&mut self, id: WorkerId, asker: Asker) {
        for slot in self.wanted_slots() {
            let entry = self.entry(slot);
            let Some(worker) = entry.server().filter(|it| it.id == id) else {
                continue;
            };
            match (&entry.holder, asker) {
                (Holder::Held(_), Asker::Worker) if worker.recycle != Recycle::No => {}
                (Holder::Held(_), Asker::Worker) => {
                    self.recycle_holder(slot, worker.served(self.now));
                }
                _ => self.set_recycle(slot, Recycle::Due),
            }
        }
    }

    fn recycle_holder(&mut self, slot: Slot, served: Option<Duration>) {
        let is_hasty = served.is_some_and(|served| served < HASTY);
        let Some(pause) = is_hasty.then(|| self.strike(slot)).flatten() else {
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
