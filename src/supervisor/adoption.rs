//! Adoption: a worker of another slot attends to a slot whose own worker does not serve.

use std::collections::BTreeMap;

use crate::id::{Slot, WorkerId};
use crate::supervisor::policy::ADOPT_AGAIN;
use crate::supervisor::slot::{FailedAdopters, SlotEntry};
use crate::supervisor::time::Time;
use crate::supervisor::{Action, Change, Supervisor};

// One rule holds for slots at their first start, between a crash and the respawn, in backoff and
// retired: a slot whose worker does not serve is adopted. Fewer occasions would save a few messages
// around a respawn, but leave a queue unattended when a respawn is slow.

/// The serving workers, each with its slot and the number of slots it has adopted.
type Servers = BTreeMap<WorkerId, (Slot, usize)>;

impl Supervisor {
    /// The slots that a worker attends to besides its own.
    pub(crate) fn adopted_by(&self, worker: WorkerId) -> impl Iterator<Item = Slot> {
        self.slots()
            .filter(move |&slot| self.entry(slot).adopter == Some(worker))
    }

    /// The worker that attends to the slot, if the slot's own worker does not.
    pub(crate) fn adopter_of(&self, slot: Slot) -> Option<WorkerId> {
        self.entry(slot).adopter
    }

    /// A worker could not adopt the slot. Another one is asked. After a while all may be asked
    /// again.
    pub(super) fn not_adopted(&mut self, slot: Slot, by: WorkerId) {
        let again = self.now + ADOPT_AGAIN;
        let serves = self.servers().contains_key(&by);
        let entry = self.entries.get_mut(usize::from(slot.0));
        let Some(entry) = entry.filter(|entry| serves && entry.adopter == Some(by)) else {
            return;
        };
        entry.adopter = None;
        entry.failed_adopters.add(by, again);
        // The report may be of an earlier adoption, and a later one may have succeeded.
        self.actions.push_back(Action::Release { slot, by });
        self.notify(Change::NotAdopted { slot, by });
    }

    /// Has each slot attended: by its own worker, else by another worker that serves.
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
        // A worker that has left or drains has released all its listeners by itself.
        if let Some((_, adopted)) = servers.get_mut(&by) {
            *adopted -= 1;
            self.actions.push_back(Action::Release { slot, by });
            self.notify(Change::Released { slot, by });
        }
    }

    /// Chooses the serving worker with the fewest adopted slots; of several, that of the lowest
    /// slot. Workers that have failed to adopt this slot are passed over.
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
    /// Adds one. All of them may be asked again at the time that was set for the first.
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
