//! Resizing: more slots, or fewer.

use std::num::NonZeroU16;

use crate::id::Slot;
use crate::supervisor::crash::Strikes;
use crate::supervisor::policy::MAX_WORKERS;
use crate::supervisor::slot::{Holder, SlotEntry};
use crate::supervisor::worker::Recycle;
use crate::supervisor::{Change, Step, Supervisor};

impl Supervisor {
    pub(super) fn resize_by(&mut self, step: Step) {
        let workers = match step {
            Step::More => self.workers.saturating_add(1),
            Step::Fewer => NonZeroU16::new(self.workers.get() - 1).unwrap_or(self.workers),
        };
        self.resize(workers);
    }

    /// Retires the highest slots, or brings them back. No listener is closed: retired slots stay
    /// adopted, because closing would reset every connection in their queues.
    pub(super) fn resize(&mut self, workers: NonZeroU16) {
        let (before, workers) = (self.workers, workers.min(MAX_WORKERS));
        if workers == before || self.is_draining() {
            return;
        }
        self.workers = workers;
        self.notify(Change::Resized { workers });
        for slot in (workers.get()..before.get()).map(Slot) {
            // If an operator brings the slot back, its earlier crashes do not count.
            self.entry_mut(slot).strikes = Strikes::default();
        }
        let entries = self.entries.len().max(usize::from(workers.get()));
        self.entries.resize_with(entries, SlotEntry::default);
        // Until then the workers of the retired slots serve, see `retire`.
        if workers < before && !self.is_served() {
            self.end_pauses();
        }
    }

    /// At the start: retires the slots up to this number that are not wanted. An earlier master had
    /// so many, and has left their listeners.
    pub(crate) fn add_retired(&mut self, slots: u16) {
        let entries = usize::from(slots.min(MAX_WORKERS.get()));
        if entries > self.entries.len() {
            self.entries.resize_with(entries, SlotEntry::default);
            let workers = self.workers;
            self.notify(Change::Resized { workers });
            self.settle();
        }
    }

    /// Drains the workers of retired slots. Those that serve stay while no worker of a wanted slot
    /// serves: otherwise no worker would serve at all until one does.
    pub(super) fn retire(&mut self) {
        let is_served = self.is_served();
        for slot in self.slots().skip(usize::from(self.workers.get())) {
            let entry = self.entry_mut(slot);
            if is_served || entry.server().is_none() {
                self.vacate(slot);
            } else {
                if matches!(entry.holder, Holder::Replacing { .. }) {
                    let new = entry.take_successor();
                    self.drain_out(slot, new);
                }
                // It need not be replaced, because it will drain.
                self.set_recycle(slot, Recycle::No);
            }
        }
    }

    /// Whether a wanted slot has a worker that serves.
    fn is_served(&self) -> bool {
        let mut wanted = self.wanted_slots();
        wanted.any(|slot| self.entry(slot).server().is_some())
    }

    /// Ends the pauses of slots that rest, so that they are respawned at once.
    pub(super) fn end_pauses(&mut self) {
        for slot in self.wanted_slots() {
            let entry = self.entry_mut(slot);
            if matches!(entry.holder, Holder::Backoff { .. }) {
                entry.holder = Holder::Vacant;
            }
        }
    }
}
