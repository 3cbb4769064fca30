//! An upgrade: a canary of the binary on disk must serve before the master becomes that binary.

use crate::id::{Slot, WorkerId};
use crate::supervisor::worker::WorkerState;
use crate::supervisor::{Abandoned, Action, Change, Phase, Supervisor};

/// The slot whose listeners the canary shares. It exists whatever the size.
pub(super) const CANARY_SLOT: Slot = Slot(0);

/// A command that waits until the server has time for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum PendingCommand {
    Reload,
    Upgrade,
}

// The canary is nobody's successor: it neither holds its slot nor counts as serving it, since it
// goes again if the upgrade comes to nothing. In the new image it is given the slot, by `resume`.

impl Supervisor {
    pub(super) fn upgrade_asked(&mut self) {
        match self.phase {
            // An upgrade that is asked for while one runs is that upgrade.
            Phase::Upgrading | Phase::Draining { .. } | Phase::Finished => {}
            Phase::Starting | Phase::Serving | Phase::Reloading { .. } => {
                self.remember(PendingCommand::Upgrade);
            }
        }
    }

    pub(super) fn remember(&mut self, command: PendingCommand) {
        if !self.pending.contains(&command) {
            self.pending.push(command);
        }
    }

    /// Begins what was asked for first, if nothing else is going on.
    pub(super) fn begin_pending(&mut self) {
        // A spent worker's replacement is finished first, so that the new image finds one worker in
        // each slot; a reload would not mind.
        if self.phase != Phase::Serving || self.is_replacing() {
            return;
        }
        match self.pending.first() {
            Some(PendingCommand::Reload) => {
                self.pending.remove(0);
                self.begin_reload();
            }
            // The canary of an abandoned upgrade must have left: there is one at most.
            Some(PendingCommand::Upgrade) if self.canary.is_none() => {
                self.pending.remove(0);
                self.begin_upgrade();
            }
            _ => {}
        }
    }

    fn begin_upgrade(&mut self) {
        self.newest = self.newest.next();
        let canary = self.new_worker(self.newest);
        let (worker, generation) = (canary.id, canary.generation);
        self.canary = Some(canary);
        self.phase = Phase::Upgrading;
        self.notify(Change::UpgradeStarted);
        self.actions.push_back(Action::StartCanary {
            worker,
            slot: CANARY_SLOT,
            generation,
        });
    }

    pub(super) fn is_canary(&self, id: WorkerId) -> bool {
        self.canary.as_ref().is_some_and(|canary| canary.id == id)
    }

    pub(super) fn canary_ready(&mut self) {
        let since = self.now;
        if let Some(canary) = self.canary.as_mut().filter(|canary| canary.is_starting()) {
            canary.state = WorkerState::Serving { since };
            let (id, generation) = (canary.id, canary.generation);
            self.notify(Change::WorkerReady(id, CANARY_SLOT, generation));
            self.actions.push_back(Action::ExecInPlace);
        }
    }

    pub(super) fn canary_gone(&mut self, why: Abandoned) {
        self.canary = None;
        self.abandon_upgrade(why);
    }

    pub(super) fn canary_overdue(&mut self) {
        let now = self.now;
        let Some(canary) = &mut self.canary else {
            return;
        };
        if canary.deadline().is_some_and(|deadline| deadline <= now) {
            self.actions.push_back(Action::Kill(canary.id));
            canary.state = WorkerState::Killed;
            self.abandon_upgrade(Abandoned::NotReadyInTime);
        }
    }

    /// Drains the canary, though it is ready: this image goes on.
    pub(super) fn give_up_canary(&mut self, why: Abandoned) {
        if self.phase == Phase::Upgrading {
            self.drain_canary();
            self.abandon_upgrade(why);
        }
    }

    pub(super) fn drain_canary(&mut self) {
        if let Some(mut canary) = self.canary.take() {
            if canary.is_starting() || canary.is_serving() {
                self.drain(CANARY_SLOT, &mut canary);
            }
            self.canary = Some(canary);
        }
    }

    fn abandon_upgrade(&mut self, why: Abandoned) {
        if self.phase == Phase::Upgrading {
            self.phase = Phase::Serving;
            // To become an image whose canary has died is what the canary is there to prevent.
            self.actions.retain(|action| *action != Action::ExecInPlace);
            self.notify(Change::UpgradeAbandoned { why });
        }
    }
}
