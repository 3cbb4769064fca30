//! What the supervisor knows of a worker.

use std::collections::VecDeque;
use std::time::Duration;

use crate::id::{Generation, Slot, WorkerId};
use crate::supervisor::policy::ENDS_WITHIN;
use crate::supervisor::time::Time;
use crate::supervisor::{Action, Change};

/// A worker, from its `Spawn` until its `Exited`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Worker {
    pub(super) id: WorkerId,
    pub(super) generation: Generation,
    pub(super) state: WorkerState,
    pub(super) recycle: Recycle,
}

/// Whether a worker has asked to be replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Recycle {
    No,
    /// It has asked too soon, and not as the first one in its slot. It serves on until then.
    Pausing {
        until: Time,
    },
    /// It waits to be replaced.
    Due,
}

/// The state of a worker. It only moves down this list. The table in `slot.rs` has the transitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum WorkerState {
    /// Spawned. It must be ready by `deadline`.
    Starting { deadline: Time },
    /// Ready since then.
    Serving { since: Time },
    /// Asked to drain. It must be gone by `deadline`.
    Draining { deadline: Time },
    /// It hung, and was sent SIGABRT so that it leaves a core. It is killed at `deadline`.
    Aborted { deadline: Time },
    /// Killed. It must be gone by `deadline`.
    Killed { deadline: Time },
    /// Killed, but the kernel does not end it. There is no stronger signal, so nothing waits for it
    /// any more.
    Stuck,
}

impl Worker {
    pub(super) fn is_starting(&self) -> bool {
        matches!(self.state, WorkerState::Starting { .. })
    }

    pub(super) fn is_serving(&self) -> bool {
        matches!(self.state, WorkerState::Serving { .. })
    }

    pub(super) fn is_draining(&self) -> bool {
        matches!(self.state, WorkerState::Draining { .. })
    }

    /// Whether it was sent SIGABRT or SIGKILL.
    pub(super) fn is_aborted_or_killed(&self) -> bool {
        matches!(self.state, WorkerState::Aborted { .. }) || self.is_killed()
    }

    pub(super) fn is_killed(&self) -> bool {
        matches!(self.state, WorkerState::Killed { .. }) || self.is_stuck()
    }

    pub(super) fn is_stuck(&self) -> bool {
        self.state == WorkerState::Stuck
    }

    pub(super) fn kill(&mut self, now: Time, actions: &mut VecDeque<Action>) {
        let deadline = now + ENDS_WITHIN;
        self.state = WorkerState::Killed { deadline };
        actions.push_back(Action::Kill(self.id));
    }

    /// How long it has served; `None` if it does not serve.
    pub(super) fn served(&self, now: Time) -> Option<Duration> {
        match self.state {
            WorkerState::Serving { since } => Some(now.since(since)),
            _ => None,
        }
    }

    /// Until when it serves on though it has asked to be replaced.
    pub(super) fn pauses_until(&self) -> Option<Time> {
        match self.recycle {
            Recycle::Pausing { until } if self.is_serving() => Some(until),
            _ => None,
        }
    }

    pub(super) fn deadline(&self) -> Option<Time> {
        match self.state {
            WorkerState::Starting { deadline }
            | WorkerState::Draining { deadline }
            | WorkerState::Aborted { deadline }
            | WorkerState::Killed { deadline } => Some(deadline),
            WorkerState::Serving { .. } | WorkerState::Stuck => None,
        }
    }

    /// What its deadline means when it passes.
    pub(super) fn overdue(&mut self, slot: Slot, now: Time, actions: &mut VecDeque<Action>) {
        if self.is_killed() {
            self.state = WorkerState::Stuck;
            let stuck = Change::WorkerStuck(self.id, slot, self.generation);
            actions.push_back(Action::Notify(stuck));
        } else {
            self.kill(now, actions);
        }
    }

    pub(super) fn is_overdue(&self, now: Time) -> bool {
        self.deadline().is_some_and(|deadline| deadline <= now)
    }
}
