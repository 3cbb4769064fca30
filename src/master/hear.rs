//! What workers say.

use crate::id::WorkerId;
use crate::master::Master;
use crate::master::process::{Heard, Process};

impl Master {
    pub(super) fn hear_workers(&mut self) {
        let workers: Vec<_> = self.processes.keys().copied().collect();
        for worker in workers {
            self.hear_worker(worker);
        }
    }

    /// Takes in what a worker has said.
    pub(super) fn hear_worker(&mut self, worker: WorkerId) {
        loop {
            match self.processes.get_mut(&worker).map(Process::hear) {
                Some(Heard::Message(message)) => self.heed(worker, message),
                Some(Heard::Broken(error)) => self.cut_off(worker, &error),
                Some(Heard::Nothing) | None => return,
            }
        }
    }
}
