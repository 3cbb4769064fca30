//! Deadlines that have passed: of workers, and of slots that rest.

use crate::id::Slot;
use crate::supervisor::slot::{FailedAdopters, Holder};
use crate::supervisor::upgrade::CANARY_SLOT;
use crate::supervisor::worker::{Recycle, Worker};
use crate::supervisor::{Abandoned, Supervisor};

impl Supervisor {
    /// Acts on those deadlines of the slot that have passed.
    pub(super) fn slot_overdue(&mut self, slot: Slot) {
        let now = self.now;
        let entry = &mut self.entries[usize::from(slot.0)];
        for worker in entry.leaving.iter_mut().filter(|it| it.is_overdue(now)) {
            worker.overdue(slot, now, &mut self.actions);
        }
        if entry.failed_adopters.again().is_some_and(|it| it <= now) {
            entry.failed_adopters = FailedAdopters::None;
        }
        // A successor that is too late may hold the slot now.
        while self.holder_is_overdue(slot) {
            self.holder_overdue(slot);
        }
        match &self.entry(slot).holder {
            Holder::Backoff { until } if *until <= now => {
                self.entry_mut(slot).holder = Holder::Vacant;
            }
            Holder::Held(worker) if worker.pauses_until().is_some_and(|until| until <= now) => {
                self.set_recycle(slot, Recycle::Due);
            }
            Holder::Replacing { new, .. } if new.is_overdue(now) => self.successor_overdue(slot),
            _ => {}
        }
    }

    fn holder_is_overdue(&mut self, slot: Slot) -> bool {
        let now = self.now;
        let holder = self.entry_mut(slot).holder_mut();
        holder.is_some_and(|holder| holder.is_overdue(now))
    }

    fn holder_overdue(&mut self, slot: Slot) {
        let holder = &self.entry(slot).holder;
        if let Holder::Held(worker) = holder
            && worker.is_starting()
            && self.is_reload_of(worker)
        {
            return self.late_for_reload(slot);
        }
        let entry = &mut self.entries[usize::from(slot.0)];
        let Some(worker) = entry.holder_mut() else {
            return;
        };
        worker.overdue(slot, self.now, &mut self.actions);
        if worker.is_stuck() {
            let stuck = entry.take_holder();
            entry.leaving.extend(stuck);
            self.crashed(slot);
        }
    }

    /// The worker is alone in its slot.
    fn late_for_reload(&mut self, slot: Slot) {
        let Some(worker) = self.entry_mut(slot).take_holder() else {
            return;
        };
        self.rest(slot);
        self.abandon_reload_of(&worker, Abandoned::NotReadyInTime);
        self.kill(slot, worker);
    }

    fn successor_overdue(&mut self, slot: Slot) {
        let new = self.entry_mut(slot).take_successor();
        let fails_alone = !self.is_reload_of(&new);
        self.abandon_reload_of(&new, Abandoned::NotReadyInTime);
        self.kill(slot, new);
        if fails_alone {
            self.replacement_failed(slot);
        }
    }

    fn kill(&mut self, slot: Slot, mut worker: Worker) {
        worker.kill(self.now, &mut self.actions);
        self.entry_mut(slot).leaving.push(worker);
    }

    pub(super) fn canary_overdue(&mut self) {
        let now = self.now;
        let Some(mut canary) = self.canary.take_if(|it| it.is_overdue(now)) else {
            return;
        };
        canary.overdue(CANARY_SLOT, now, &mut self.actions);
        if canary.is_stuck() {
            self.entry_mut(CANARY_SLOT).leaving.push(canary);
        } else {
            self.canary = Some(canary);
            self.abandon_upgrade(Abandoned::NotReadyInTime);
        }
    }
}
