//! More slots or fewer.

use std::num::NonZeroU16;

use crate::id::Slot;
use crate::supervisor::crash::Strikes;
use crate::supervisor::policy::MAX_WORKERS;
use crate::supervisor::slot::Seat;
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
            self.vacate(slot);
            // It was somebody's decision to bring it back, if it comes back: no old grudges.
            self.seat_mut(slot).strikes = Strikes::default();
        }
        let seats = self.seats.len().max(usize::from(workers.get()));
        self.seats.resize_with(seats, Seat::default);
    }
}
