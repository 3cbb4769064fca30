//! A worker, as the supervisor knows it.

use std::time::Duration;

use crate::id::{Generation, WorkerId};
use crate::supervisor::time::Time;

/// One worker from its `Spawn` until its `Exited`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Worker {
    pub(super) id: WorkerId,
    pub(super) generation: Generation,
    pub(super) state: WorkerState,
    pub(super) spent: Spent,
}

/// Whether a worker has asked to be replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Spent {
    No,
    /// It has, too soon and not for the first time in its slot: it serves on until then.
    Pausing {
        until: Time,
    },
    /// It is replaced when its turn comes.
    Due,
}

/// Where a worker is in its life; it only ever moves down this list. Moves are in `slot.rs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum WorkerState {
    /// Spawned, and to be ready by `deadline`.
    Starting { deadline: Time },
    /// Ready since then.
    Serving { since: Time },
    /// Told to drain, and to be gone by `deadline`.
    Draining { deadline: Time },
    /// Stood still, and told to leave a core and die; killed at `deadline` if it does not.
    Aborted { deadline: Time },
    /// Killed. It has no deadline: what SIGKILL cannot end, we cannot either.
    Killed,
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

    /// Whether it was told to die, by whichever signal.
    pub(super) fn is_condemned(&self) -> bool {
        matches!(
            self.state,
            WorkerState::Aborted { .. } | WorkerState::Killed
        )
    }

    pub(super) fn is_killed(&self) -> bool {
        self.state == WorkerState::Killed
    }

    /// How long it has served; `None` if it does not.
    pub(super) fn served(&self, now: Time) -> Option<Duration> {
        match self.state {
            WorkerState::Serving { since } => Some(now.since(since)),
            _ => None,
        }
    }

    /// Until when it serves on though it wants to be replaced.
    pub(super) fn pauses_until(&self) -> Option<Time> {
        match self.spent {
            Spent::Pausing { until } if self.is_serving() => Some(until),
            _ => None,
        }
    }

    pub(super) fn deadline(&self) -> Option<Time> {
        match self.state {
            WorkerState::Starting { deadline }
            | WorkerState::Draining { deadline }
            | WorkerState::Aborted { deadline } => Some(deadline),
            WorkerState::Serving { .. } | WorkerState::Killed => None,
        }
    }
}
