//! What the supervisor knows of a worker.

use std::time::Duration;

use crate::id::{Generation, WorkerId};
use crate::supervisor::time::Time;

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
    /// Killed. There is no deadline, because there is no stronger signal.
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

    /// Whether it was sent SIGABRT or SIGKILL.
    pub(super) fn is_aborted_or_killed(&self) -> bool {
        matches!(
            self.state,
            WorkerState::Aborted { .. } | WorkerState::Killed
        )
    }

    pub(super) fn is_killed(&self) -> bool {
        self.state == WorkerState::Killed
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
            | WorkerState::Aborted { deadline } => Some(deadline),
            WorkerState::Serving { .. } | WorkerState::Killed => None,
        }
    }
}
