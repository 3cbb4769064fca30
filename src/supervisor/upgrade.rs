//! An upgrade: a canary of the binary on disk must serve before the master becomes that binary.

use crate::id::{Slot, WorkerId};
use crate::supervisor::worker::WorkerState;
use crate::supervisor::{Abandoned, Action, Change, Phase, Supervisor};

/// The slot whose listeners the canary shares. Every server has it.
pub(crate) const CANARY_SLOT: Slot = Slot(0);

/// A command that waits until the server has time for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum PendingCommand {
    Reload,
    Upgrade,
}

// The canary is no successor: it does not hold its slot and does not count as serving it, because
// it drains if the upgrade is abandoned. In the new image `resume` gives it the slot.

impl Supervisor {
    pub(super) fn upgrade_asked(&mut self) {
        match self.phase {
            // A second request while an upgrade runs changes nothing.
            Phase::Upgrading | Phase::Draining { .. } | Phase::Finished => {}
            Phase::Starting | Phase::Serving | Phase::Reloading { .. } => {
                self.remember(PendingCommand::Upgrade);
            }
        }
    }

    /// Whether an upgrade runs, or was asked for and will.
    pub(crate) fn awaits_upgrade(&self) -> bool {
        self.phase == Phase::Upgrading || self.pending.contains(&PendingCommand::Upgrade)
    }

    pub(super) fn remember(&mut self, command: PendingCommand) {
        if !self.pending.contains(&command) {
            self.pending.push(command);
        }
    }

    /// Begins the command that has waited longest, if the server is not busy with another. An
    /// upgrade also waits until the canary of an abandoned one is gone: there is one at most. That
    /// may take long, so a reload does not wait for it.
    pub(super) fn begin_pending(&mut self) {
        // The replacement of a worker that has asked for it is finished first, so that the new
        // image finds one worker in each slot.
        if self.phase != Phase::Serving || self.is_replacing() {
            return;
        }
        let has_place = self.canary.is_none() && self.entry(CANARY_SLOT).may_get_one_more();
        let may_begin = |&command: &_| command == PendingCommand::Reload || has_place;
        let next = self.pending.iter().position(may_begin);
        match next.map(|next| self.pending.remove(next)) {
            Some(PendingCommand::Reload) => self.begin_reload(),
            Some(PendingCommand::Upgrade) => self.begin_upgrade(),
            None => {}
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

    /// Drains a canary that is ready, because this image goes on.
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

    pub(super) fn abandon_upgrade(&mut self, why: Abandoned) {
        if self.phase == Phase::Upgrading {
            self.phase = Phase::Serving;
            // The master must not become an image whose canary has failed.
            self.actions.retain(|action| *action != Action::ExecInPlace);
            self.notify(Change::UpgradeAbandoned { why });
        }
    }
}
