//! What must be true after all actions of an event.

use super::{Breach, End, Life, Role, Seen, Watch, rule};
use crate::id::{Slot, WorkerId};
use crate::supervisor::Time;
use crate::supervisor::policy::LEAVING_MAX;

impl Watch {
    /// Checks the state after all actions of an event.
    pub(in crate::supervisor::tests) fn settled(
        &self,
        next_deadline: Option<Time>,
    ) -> Result<(), Breach> {
        let stays = |seen: &Seen| {
            matches!(seen.life, Life::Starting | Life::Serving) && seen.role == Role::Slot
        };
        if self.end != End::No && self.end != End::Due {
            let stayer = self.live().find(|(_, seen)| stays(seen));
            rule(stayer.is_none(), || format!("{stayer:?} stays at the end"))?;
            rule(self.end >= End::ListenersClosed, || {
                "listeners are kept".into()
            })?;
            let done = !self.only_stuck_are_left() || self.is_finished();
            rule(done, || "no worker is left and it has not finished".into())?;
        } else {
            rule(self.end == End::No, || "the end was not begun".into())?;
            self.slots_are_held()?;
            self.slots_are_attended()?;
        }
        let resting = self.resting.values().copied().filter(|_| !self.is_ending());
        let all = self
            .live()
            .filter_map(|(_, seen)| self.deadline(seen))
            .chain(resting)
            .chain(self.failed_adopters.values().map(|&(_, again)| again))
            .chain(self.aborted.values().copied())
            .chain(self.dying.values().copied());
        let least = all.min();
        rule(next_deadline == least, || {
            format!("waits for {next_deadline:?}, not {least:?}")
        })
    }

    fn slots_are_held(&self) -> Result<(), Breach> {
        for slot in (0..self.slots).map(Slot) {
            let holds =
                |seen: &Seen| matches!(seen.life, Life::Starting | Life::Serving | Life::Killed);
            let held = self.slot_workers(slot).any(|(_, seen)| holds(seen));
            if slot.0 >= self.workers.get() {
                let runs = |seen: &Seen| match seen.life {
                    Life::Starting => true,
                    Life::Serving => self.is_served(),
                    Life::Draining | Life::Killed | Life::KilledLeaving | Life::Stuck => false,
                };
                let runs = self.slot_workers(slot).any(|(_, seen)| runs(seen));
                rule(!runs, || format!("slot {slot} is retired and held"))?;
            } else {
                let rests = self
                    .resting
                    .get(&slot)
                    .is_some_and(|&until| until > self.now);
                let stuck = self.slot_workers(slot).count() >= LEAVING_MAX;
                rule(held || rests || stuck, || {
                    format!("slot {slot} gets no worker")
                })?;
            }
        }
        Ok(())
    }

    fn slots_are_attended(&self) -> Result<(), Breach> {
        let serves = |id: &WorkerId| {
            self.seen
                .get(id)
                .is_some_and(|seen| seen.life == Life::Serving && seen.role == Role::Slot)
        };
        for slot in (0..self.slots).map(Slot) {
            let own = self.slot_workers(slot).any(|(id, _)| serves(&id));
            let adopted = self.adopters.get(&slot).is_some_and(serves);
            let able = |id: &WorkerId| serves(id) && !self.is_unable(slot, *id);
            let anybody = self.seen.keys().any(able);
            rule(own || adopted || !anybody, || {
                format!("no worker attends to slot {slot}")
            })?;
            rule(!(own && adopted), || {
                format!("slot {slot} is attended twice")
            })?;
        }
        Ok(())
    }
}
