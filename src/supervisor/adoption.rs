//! Adoption: a slot whose own worker does not serve is attended by a sibling.

use std::collections::BTreeMap;

use crate::id::{Slot, WorkerId};
use crate::supervisor::policy::ADOPT_AGAIN;
use crate::supervisor::slot::{FailedAdopters, SlotEntry};
use crate::supervisor::time::Time;
use crate::supervisor::{Action, Change, Supervisor};

// One rule, for slots at their first start, between a crash and the respawn, in backoff and
// retired alike: not serving means adopted. A shorter list of occasions would save a few messages
// around a respawn and leave a queue unattended the day a respawn is slow.

/// The serving workers, each with its slot and the number of slots it has adopted.
type Servers = BTreeMap<WorkerId, (Slot, usize)>;

impl Supervisor {
    /// The slots whose listeners a worker was told to attend to besides its own.
    pub(crate) fn adopted_by(&self, worker: WorkerId) -> impl Iterator<Item = Slot> {
        self.slots()
            .filter(move |&slot| self.entry(slot).adopter == Some(worker))
    }

    /// The worker that was told to attend to the slot's listeners, if its own worker does not.
    pub(crate) fn adopter_of(&self, slot: Slot) -> Option<WorkerId> {
        self.entry(slot).adopter
    }

    /// A worker could not adopt the slot. Another is told to; after a while all may be told again.
    pub(super) fn not_adopted(&mut self, slot: Slot, by: WorkerId) {
        let again = self.now + ADOPT_AGAIN;
        let serves = self.servers().contains_key(&by);
        let entry = self.entries.get_mut(usize::from(slot.0));
        let Some(entry) = entry.filter(|entry| serves && entry.adopter == Some(by)) else {
            return;
        };
        entry.adopter = None;
        entry.failed_adopters.add(by, again);
        // What it says may be of an earlier adoption, and it may have succeeded since.
        self.actions.push_back(Action::Release { slot, by });
        self.notify(Change::NotAdopted { slot, by });
    }

    /// Sees that each slot is attended: by its own worker, else by a sibling if any serves.
    pub(super) fn attend(&mut self) {
        let idle = |entry: &SlotEntry| entry.server().is_some() && entry.adopter.is_none();
        if self.entries.iter().all(idle) {
            return;
        }
        let mut servers = self.servers();
        for slot in self.slots() {
            let entry = self.entry(slot);
            match (entry.server(), entry.adopter) {
                (Some(_), Some(by)) => self.release(slot, by, &mut servers),
                (None, Some(by)) if servers.contains_key(&by) => {}
                (None, _) => self.adopt(slot, &mut servers),
                (Some(_), None) => {}
            }
        }
    }

    fn release(&mut self, slot: Slot, by: WorkerId, servers: &mut Servers) {
        self.entry_mut(slot).adopter = None;
        // One that has left or drains has let go of all its listeners by itself.
        if let Some((_, adopted)) = servers.get_mut(&by) {
            *adopted -= 1;
            self.actions.push_back(Action::Release { slot, by });
            self.notify(Change::Released { slot, by });
        }
    }

    /// The serving worker with the fewest adopted slots adopts; of several, the lowest slot's. One
    /// that could not is passed over.
    fn adopt(&mut self, slot: Slot, servers: &mut Servers) {
        let entry = self.entry_mut(slot);
        entry.adopter = None;
        let able = servers
            .iter_mut()
            .filter(|(id, _)| !entry.failed_adopters.has(**id));
        let burden = |&(_, &mut (slot, adopted)): &(&WorkerId, &mut (Slot, usize))| (adopted, slot);
        if let Some((&by, (_, adopted))) = able.min_by_key(burden) {
            *adopted += 1;
            entry.adopter = Some(by);
            self.actions.push_back(Action::Adopt { slot, by });
            self.notify(Change::Adopted { slot, by });
        }
    }

    fn servers(&self) -> Servers {
        let serving = self
            .slots()
            .filter_map(|slot| Some((self.entry(slot).server()?.id, slot)));
        let mut servers: Servers = serving.map(|(id, slot)| (id, (slot, 0))).collect();
        for by in self.entries.iter().filter_map(|entry| entry.adopter) {
            if let Some((_, adopted)) = servers.get_mut(&by) {
                *adopted += 1;
            }
        }
        servers
    }
}

impl FailedAdopters {
    /// Notes one more; all of them are told again at the same time, that of the first.
    fn add(&mut self, worker: WorkerId, at: Time) {
        match self {
            Self::None => {
                let workers = vec![worker];
                *self = Self::Until { workers, again: at };
            }
            Self::Until { workers, .. } => workers.push(worker),
        }
    }

    pub(super) fn has(&self, worker: WorkerId) -> bool {
        matches!(self, Self::Until { workers, .. } if workers.contains(&worker))
    }

    pub(super) fn again(&self) -> Option<Time> {
        match self {
            Self::None => None,
            Self::Until { again, .. } => Some(*again),
        }
    }
}
