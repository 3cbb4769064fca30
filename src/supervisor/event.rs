//! What the supervisor is told: the commands of an operator and the facts of the processes.

use std::num::NonZeroU16;

use crate::id::{Slot, WorkerId};

/// One thing that happened. No order of events is wrong: what does not fit is ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Event {
    /// An operator or a worker asks for a reload (HUP). It begins when `CheckReload` has succeeded.
    ReloadAsked,
    /// Replace every worker, slot by slot: `CheckReload` has succeeded, or the master itself needs
    /// new workers.
    Reload,
    /// `CheckReload` has failed.
    ReloadRefused,
    /// Try the binary that is now on disk and, if it serves, become it (USR2).
    Upgrade,
    /// Have this many slots.
    Resize(NonZeroU16),
    /// Have one slot more or one fewer (TTIN, TTOU).
    ResizeBy(Step),
    /// End the server.
    Stop(Stop),

    /// The process of this worker exists. It says nothing of its being ready.
    Spawned(WorkerId),
    /// There is no process for this worker and there will be none: fork(2) or execve(2) failed.
    SpawnFailed(WorkerId),
    /// The worker said that it accepts connections.
    Ready(WorkerId),
    /// The worker was told by somebody else to leave, and accepts no more.
    Leaving(WorkerId),
    /// The process is gone and reaped.
    Exited(WorkerId, Exit),
    /// The worker's event loop stands still although work is waiting for it.
    Hung(WorkerId),
    /// The worker has served its share (so many requests, so long a time) and wants to be replaced.
    Spent(WorkerId),
    /// The worker could not adopt the slot, and does not attend to it.
    NotAdopted { slot: Slot, by: WorkerId },
    /// A hook that may refuse has refused: the server must not go on.
    HookRefused,
    /// The canary accepts connections, but its image cannot go on from this one's state.
    CanaryIncompatible,
    /// `ExecInPlace` could not be carried out: this image still runs.
    UpgradeFailed,
}

/// A change of the number of slots by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Step {
    /// One slot more, up to `MAX_WORKERS`.
    More,
    /// One slot fewer, down to 1.
    Fewer,
}

/// How to end the server. A second `Stop` of any kind is a `Stop::Now`, but for a second
/// `Stop::Drain` that comes so soon that it must be the same ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Stop {
    /// Finish the open work first, within the drain timeout (TERM, QUIT, a handle).
    Drain,
    /// As `Drain`, asked by a person at a terminal (INT), who may ask again at once and means it.
    Interrupt,
    /// Kill every worker.
    Now,
}

/// What a worker's end means, whatever the numbers of the operating system were.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Exit {
    /// Exit code 0.
    Clean,
    /// The reserved code: its configuration is wrong, a respawn would fail the same way.
    Misconfigured,
    /// Any other code, or a signal.
    Crash,
}
