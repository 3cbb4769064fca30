//! What the master reports to the supervisor: commands of an operator, and facts of processes.

use std::num::NonZeroU16;

use crate::id::{Slot, WorkerId};
use crate::policy::Stop;

/// One thing that happened. Events may come in any order: the supervisor ignores what does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Event {
    /// An operator or a worker asks for a reload (HUP). It begins when `CheckReload` has succeeded.
    ReloadAsked,
    /// Replace every worker, slot by slot: `CheckReload` has succeeded, or the master itself needs
    /// new workers.
    Reload,
    /// `CheckReload` has failed.
    ReloadRefused,
    /// Start a canary of the binary that is now on disk; if it serves, become that binary (USR2).
    Upgrade,
    /// Have this many slots.
    Resize(NonZeroU16),
    /// Have one slot more or one fewer (TTIN, TTOU).
    ResizeBy(Step),
    /// End the server (TERM, QUIT, a handle). After any event that ends it, a second one is a
    /// `Stop::Now`, unless it is a `Stop::Drain` within a second of the first: that is the same
    /// ask.
    Stop(Stop),
    /// As `Stop::Drain`, asked by a person at a terminal (INT): a second ask counts at once.
    Interrupt,

    /// The process of this worker exists. The worker is not ready yet.
    Spawned(WorkerId),
    /// There is no process for this worker and there will be none: fork(2) or execve(2) failed.
    SpawnFailed(WorkerId),
    /// The worker accepts connections.
    Ready(WorkerId),
    /// The worker drains because it got a signal that is not from the master. It accepts no more.
    Leaving(WorkerId),
    /// The process has ended and was reaped.
    Exited(WorkerId, Exit),
    /// The worker's event loop stands still although work is waiting for it.
    Hung(WorkerId),
    /// The worker is to be replaced.
    Recycle(WorkerId, Asker),
    /// The worker could not adopt the slot, and does not attend to it.
    NotAdopted { slot: Slot, by: WorkerId },
    /// A hook has returned an error. The server must end.
    HookRefused,
    /// The canary accepts connections, but its image cannot read this image's state.
    CanaryIncompatible,
    /// `ExecInPlace` has failed. This image still runs.
    UpgradeFailed,
    /// The canary serves, and the master was asked to try the binary only.
    UpgradeTried,
}

/// Who asks for the replacement of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Asker {
    /// A worker, for example because it has served its share of requests or time.
    Worker,
    /// An operator or the program in the master.
    Operator,
}

/// A change of the number of slots by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Step {
    /// One slot more, up to `MAX_WORKERS`.
    More,
    /// One slot fewer, down to 1.
    Fewer,
}

/// What the end of a worker's process means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Exit {
    /// Exit code 0.
    Clean,
    /// The reserved exit code: the configuration is wrong, and a respawn would fail in the same
    /// way.
    Misconfigured,
    /// Any other code, or a signal.
    Crash,
}
