//! More slots or fewer.

use std::num::NonZeroU16;

use crate::id::Slot;
use crate::supervisor::crash::Strikes;
use crate::supervisor::policy::MAX_WORKERS;
use crate::supervisor::slot::{Holder, SlotEntry};
use crate::supervisor::worker::Spent;
use crate::supervisor::{Change, Step, Supervisor};

impl Supervisor {
    pub(super) fn resize_by(&mut self, step: Step) {
        let workers = match step {
            Step::More => self.workers.saturating_add(1),
            Step::Fewer => NonZeroU16::new(self.workers.get() - 1).unwrap_or(self.workers),
        };
        self.resize(workers);
    }

    /// The highest slots are retired first and come back first. Neither closes a listener: the
    /// retired slots stay adopted, since closing would reset every connection in their queues.
    pub(super) fn resize(&mut self, workers: NonZeroU16) {
        let (before, workers) = (self.workers, workers.min(MAX_WORKERS));
        if workers == before || self.is_draining() {
            return;
        }
        self.workers = workers;
        self.notify(Change::Resized { workers });
        for slot in (workers.get()..before.get()).map(Slot) {
            // It was somebody's decision to bring it back, if it comes back: no old grudges.
            self.entry_mut(slot).strikes = Strikes::default();
        }
        let entries = self.entries.len().max(usize::from(workers.get()));
        self.entries.resize_with(entries, SlotEntry::default);
        // The workers of the retired slots stay until then, see `retire`.
        if workers < before && !self.is_served() {
            self.end_pauses();
        }
    }

    /// Has the workers of retired slots leave. Those that serve stay while no slot that is wanted
    /// serves: the server would answer nobody until one does.
    pub(super) fn retire(&mut self) {
        let is_served = self.is_served();
        for slot in self.slots().skip(usize::from(self.workers.get())) {
            let entry = self.entry_mut(slot);
            if is_served || entry.server().is_none() {
                self.vacate(slot);
            } else {
                if matches!(entry.holder, Holder::Replacing { .. }) {
                    let new = entry.take_successor();
                    self.dismiss(slot, new);
                }
                // It leaves anyway.
                self.set_spent(slot, Spent::No);
            }
        }
    }

    /// Whether a slot that is wanted has a worker that serves.
    fn is_served(&self) -> bool {
        let mut wanted = self.wanted_slots();
        wanted.any(|slot| self.entry(slot).server().is_some())
    }

    /// Has the slots that rest be filled at once.
    pub(super) fn end_pauses(&mut self) {
        for slot in self.wanted_slots() {
            let entry = self.entry_mut(slot);
            if matches!(entry.holder, Holder::Backoff { .. }) {
                entry.holder = Holder::Vacant;
            }
        }
    }
}
