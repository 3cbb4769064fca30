//! What the supervisor knows of the server, in the words of users.

use crate::id::{Generation, Slot, WorkerId};
use crate::policy::{ServerState, WorkerState as Public};
use crate::supervisor::slot::{Holder, SlotEntry};
use crate::supervisor::upgrade::CANARY_SLOT;
use crate::supervisor::worker::{Worker, WorkerState};
use crate::supervisor::{Phase, Supervisor};

/// A slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SlotOverview {
    pub(crate) slot: Slot,
    pub(crate) workers: Vec<(WorkerId, Public)>,
    /// The worker of another slot that attends to this slot's listeners.
    pub(crate) adopter: Option<WorkerId>,
    pub(crate) backing_off: bool,
}

impl Supervisor {
    pub(crate) fn server_state(&self) -> ServerState {
        match self.phase {
            Phase::Starting => ServerState::Starting,
            Phase::Serving => ServerState::Serving,
            Phase::Reloading { .. } => ServerState::Reloading,
            Phase::Upgrading => ServerState::Upgrading,
            Phase::Draining { .. } | Phase::Finished => ServerState::Draining,
        }
    }

    /// The newest generation of which a worker was ready.
    pub(crate) fn generation(&self) -> Generation {
        self.proven
    }

    /// The worker that serves a wanted slot.
    pub(crate) fn serves(&self, slot: Slot) -> Option<WorkerId> {
        let entry = self.entries.get(usize::from(slot.0))?;
        let worker = entry.server()?;
        (slot.0 < self.workers.get()).then_some(worker.id)
    }

    /// Whether the worker was neither ready nor asked to end.
    pub(crate) fn is_starting(&self, id: WorkerId) -> bool {
        let workers = self.entries.iter().flat_map(SlotEntry::workers);
        let mut workers = workers.chain(&self.canary);
        workers.any(|worker| worker.id == id && worker.is_starting())
    }

    /// Whether the start has ended and a worker of another slot serves.
    pub(super) fn goes_on_without(&self, slot: Slot) -> bool {
        let mut others = self.wanted_slots().filter(|&other| other != slot);
        self.phase != Phase::Starting && others.any(|other| self.serves(other).is_some())
    }

    /// The wanted slots, and retired ones that still have workers.
    pub(crate) fn overview(&self) -> Vec<SlotOverview> {
        let slots = (0..).map(Slot).zip(&self.entries);
        let slots = slots.map(|(slot, entry)| {
            let canary = self.canary.as_ref().filter(|_| slot == CANARY_SLOT);
            SlotOverview {
                slot,
                workers: entry.workers().chain(canary).map(in_public).collect(),
                adopter: entry.adopter,
                backing_off: matches!(entry.holder, Holder::Backoff { .. }),
            }
        });
        let wanted = |slot: Slot| slot.0 < self.workers.get();
        slots
            .filter(|it| wanted(it.slot) || !it.workers.is_empty())
            .collect()
    }
}

fn in_public(worker: &Worker) -> (WorkerId, Public) {
    let state = match worker.state {
        WorkerState::Starting { .. } => Public::Starting,
        WorkerState::Serving { .. } => Public::Serving,
        WorkerState::Draining { .. } => Public::Draining,
        WorkerState::Aborted { .. } | WorkerState::Killed { .. } | WorkerState::Stuck => {
            Public::Ending
        }
    };
    (worker.id, state)
}
