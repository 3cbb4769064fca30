//! The state of the server for the handles of this process: who works, from the supervisor, and
//! what they have done, from the scoreboard.

use std::sync::Arc;

use crate::handle::StatusSource;
use crate::master::Master;
use crate::policy::ServerState;
use crate::protocol::scoreboard::{Page, Scoreboard};
use crate::stats::Totals;
use crate::status::{SlotStatus, Status, WorkerStatus};
use crate::supervisor::SlotOverview;

impl Master {
    /// Gives the handles the state of this moment. The counts are read when a handle asks.
    pub(super) fn publish_status(&mut self) {
        self.publish_status_after(|_| {});
    }

    /// The same. No handle sees the status while `change` runs. To make the status takes longer the
    /// more slots there are, and it changes with each worker, so it is made only if there are
    /// handles.
    pub(super) fn publish_status_after(&mut self, change: impl FnOnce(&Scoreboard)) {
        let scoreboard = &self.workers.scoreboard;
        if self.commands.handle.is_private() {
            change(scoreboard);
        } else {
            let source = self.status_source();
            self.commands.handle.publish(|| {
                change(scoreboard);
                source
            });
        }
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

    fn status_source(&self) -> StatusSource {
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
