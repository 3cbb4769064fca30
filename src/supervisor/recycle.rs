//! Recycling: a worker that has served its share is replaced, one slot at a time.

use crate::id::{Slot, WorkerId};
use crate::supervisor::slot::Holder;
use crate::supervisor::{Phase, Supervisor};

// As in a reload the replacement starts first, on the same listeners. It is of the generation that
// a crashed worker would be replaced with. A reload comes first: it replaces everybody anyway.
//
// A replacement that fails takes nothing away: it is no crash, or a server whose workers all serve
// would end for want of what only a start needs. Its cause may well be there for the next one too,
// so the spent worker serves on until it asks again.

impl Supervisor {
    pub(super) fn spent(&mut self, id: WorkerId) {
        for slot in self.slots() {
            let holder = self.seat_mut(slot).holder_mut();
            if let Some(worker) = holder.filter(|worker| worker.id == id && worker.is_serving()) {
                worker.spent = true;
            }
        }
    }

    /// Starts a successor beside the first spent worker, if no other slot is being replaced.
    pub(super) fn replace_spent(&mut self) {
        if self.phase != Phase::Serving || self.is_replacing() {
            return;
        }
        let next = self.wanted_slots().find(|&slot| {
            let seat = self.seat(slot);
            let spent = seat.server().is_some_and(|worker| worker.spent);
            spent && seat.may_replace()
        });
        if let Some(slot) = next {
            self.start_successor(slot);
        }
    }

    /// The successor in `slot` is gone and no reload stands or falls with it.
    pub(super) fn replacement_failed(&mut self, slot: Slot) {
        let holder = self.seat_mut(slot).holder_mut();
        if let Some(worker) = holder.filter(|worker| worker.spent) {
            worker.spent = false;
        }
    }

    /// Whether a slot has a successor on its way.
    pub(super) fn is_replacing(&self) -> bool {
        let replacing = |slot| matches!(self.seat(slot).holder, Holder::Replacing { .. });
        self.wanted_slots().any(replacing)
    }
}
