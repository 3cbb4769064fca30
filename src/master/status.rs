//! The state of the server for the handles of this process: who works, from the supervisor, and
//! what they have done, from the scoreboard.

use std::sync::Arc;

use crate::handle::StatusSource;
use crate::master::Master;
use crate::policy::ServerState;
use crate::protocol::scoreboard::Page;
use crate::stats::Totals;
use crate::status::{SlotStatus, Status, WorkerStatus};
use crate::supervisor::SlotOverview;

impl Master {
    /// Gives the handles the state of this moment. The counts are read when a handle asks.
    pub(super) fn publish_status(&mut self) {
        let source = self.status_source();
        self.commands.handle.publish(|| source);
        if let Some(admin) = &mut self.observers.admin {
            admin.view_changed();
        }
    }

    /// The state without counts, and the pages of the workers in it.
    pub(super) fn status(&self) -> (Status, Vec<Arc<Page>>) {
        let mut pages: Vec<Arc<Page>> = Vec::new();
        let slots = self.supervisor.overview().into_iter();
        let slots = slots.map(|slot| self.slot_status(&slot, &mut pages));
        let status = Status {
            state: match self.pre_stop.is_running() {
                true => ServerState::Stopping,
                false => self.supervisor.server_state(),
            },
            addresses: self.listeners.addresses(),
            workers: self.workers.count,
            generation: self.supervisor.generation(),
            slots: slots.collect(),
            totals: Totals::default(),
        };
        (status, pages)
    }

    pub(super) fn status_source(&self) -> StatusSource {
        let (status, pages) = self.status();
        let scoreboard = self.workers.scoreboard.clone();
        let processes = self.workers.processes.values();
        let counted: Vec<_> = processes.map(|it| Arc::clone(&it.stats)).collect();
        Box::new(move || {
            let mut status = status.clone();
            let workers = status.slots.iter_mut().flat_map(|slot| &mut slot.workers);
            for (worker, page) in workers.zip(&pages) {
                worker.connections = page.connections();
                worker.requests = page.requests();
            }
            status.totals = scoreboard.totals(counted.iter().map(|page| &**page));
            status
        })
    }

    /// The state of a slot, with the pages of its workers.
    fn slot_status(&self, slot: &SlotOverview, pages: &mut Vec<Arc<Page>>) -> SlotStatus {
        let processes = &self.workers.processes;
        let workers = slot.workers.iter().filter_map(|(id, state)| {
            let process = processes.get(id)?;
            pages.push(Arc::clone(&process.stats));
            Some(WorkerStatus {
                worker: process.info(),
                state: *state,
                connections: 0,
                requests: 0,
            })
        });
        SlotStatus {
            slot: slot.slot,
            workers: workers.collect(),
            adopted_by: slot.adopter.and_then(|id| Some(processes.get(&id)?.slot)),
            backing_off: slot.backing_off,
        }
    }
}
