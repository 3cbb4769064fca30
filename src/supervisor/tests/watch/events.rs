//! What the events mean for the checks.

use std::collections::BTreeSet;
use std::num::NonZeroU16;
use std::time::Duration;

use super::{End, Life, Role, Watch};
use crate::id::{Slot, WorkerId};
use crate::supervisor::policy::ADOPT_AGAIN;
use crate::supervisor::*;

impl Watch {
    pub(in crate::supervisor::tests) fn event(&mut self, event: Event, now: Time) {
        self.waited(now);
        match event {
            Event::Ready(id) => self.is_ready(id),
            Event::SpawnFailed(id) => self.is_gone(id, Exit::Crash),
            Event::Exited(id, exit) => self.is_gone(id, exit),
            Event::Hung(id) if self.life(id) == Some(Life::Serving) => {
                self.hung.insert(id);
            }
            Event::Recycle(id, asker) if self.life(id) == Some(Life::Serving) => {
                self.recycle.insert(id);
                if asker == Asker::Operator && self.seen[&id].role == Role::Slot {
                    self.resting.remove(&self.seen[&id].slot);
                }
            }
            Event::Leaving(id) if self.life(id) == Some(Life::Serving) => {
                self.leaving.insert(id);
            }
            Event::NotAdopted { slot, by } if self.has_adopted(slot, by) => {
                let again = self.now + ADOPT_AGAIN;
                let failed_adopters = self.failed_adopters.entry(slot);
                failed_adopters
                    .or_insert((BTreeSet::new(), again))
                    .0
                    .insert(by);
            }
            Event::Resize(workers) if !self.is_ending() => self.resized(workers),
            Event::ResizeBy(Step::More) if !self.is_ending() => {
                self.resized(self.workers.saturating_add(1));
            }
            Event::ResizeBy(Step::Fewer) if !self.is_ending() => {
                let workers = NonZeroU16::new(self.workers.get() - 1).unwrap_or(self.workers);
                self.resized(workers);
            }
            Event::Stop(Stop::Drain) => self.stopped(1, Duration::from_secs(1)),
            Event::Interrupt => self.stopped(1, Duration::ZERO),
            Event::Stop(Stop::Now) => self.stopped(2, Duration::ZERO),
            Event::HookRefused => self.end = self.end.max(End::Due),
            _ => {}
        }
    }

    /// Counts an ask to end, unless it is the same as the first.
    fn stopped(&mut self, weight: u32, same_ask: Duration) {
        let first = *self.first_stop.get_or_insert(self.now);
        if self.stops == 0 || self.now.since(first) >= same_ask {
            self.stops += weight;
        }
        self.end = self.end.max(End::Due);
    }

    pub(super) fn resized(&mut self, workers: NonZeroU16) {
        self.workers = workers.min(MAX_WORKERS);
        self.slots = self.slots.max(self.workers.get());
        self.resting.retain(|slot, _| slot.0 < self.workers.get());
        self.killed_leave(|slot| slot.0 >= workers.get());
    }

    /// In slots that were retired or have a successor, killed workers are not waited for any more.
    pub(super) fn killed_leave(&mut self, slots: impl Fn(Slot) -> bool) {
        for seen in self.seen.values_mut() {
            if seen.life == Life::Killed && slots(seen.slot) {
                seen.life = Life::KilledLeaving;
                self.crashes += 1;
            }
        }
    }

    fn is_ready(&mut self, id: WorkerId) {
        if let Some(seen) = self
            .seen
            .get_mut(&id)
            .filter(|seen| seen.life == Life::Starting)
        {
            (seen.life, seen.since) = (Life::Serving, self.now);
            if seen.role == Role::Slot {
                let slot = seen.slot;
                self.killed_leave(|other| other == slot);
            }
        }
    }

    fn is_gone(&mut self, id: WorkerId, exit: Exit) {
        let Some(seen) = self.seen.remove(&id) else {
            return;
        };
        self.serves_no_more(&seen);
        self.hung.remove(&id);
        self.recycle.remove(&id);
        self.leaving.remove(&id);
        self.drained_twice.remove(&id);
        self.aborted.remove(&id);
        self.dying.remove(&id);
        if exit != Exit::Clean || seen.life != Life::Serving {
            self.crashes += 1;
        }
    }
}
