//! What the supervisor asks for: what to do, what to tell, and how it ended.

use std::fmt;
use std::num::NonZeroU16;
use std::time::Duration;

use crate::drain::Idle;
use crate::id::{Generation, Slot, WorkerId};

/// One thing for the master to carry out, in the order given. Nothing else leaves the supervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Action {
    /// Start a worker of the running image on the slot's listeners, making them if no worker served
    /// that could adopt the new slot. Answered by `Spawned` or `SpawnFailed`.
    Spawn {
        worker: WorkerId,
        slot: Slot,
        generation: Generation,
    },
    /// Tell the worker to accept no more, to finish its open work and to exit, and what becomes of
    /// its connections. A second one, at the end of the server, takes the heir from a worker that
    /// was to hand them over.
    Drain(WorkerId, Idle),
    /// SIGABRT, so that a core tells where it stood still. Answered by `Exited`, or followed by
    /// `Kill`.
    Abort(WorkerId),
    /// SIGKILL. Answered by `Exited`, as every end of a process is.
    Kill(WorkerId),
    /// Hand the slot's listeners to a worker of another slot, to accept from until `Release`. Makes
    /// them if the slot is new. Answered by `NotAdopted` if a worker cannot adopt.
    Adopt { slot: Slot, by: WorkerId },
    /// Tell the adopter that the slot is attended by its own worker again.
    Release { slot: Slot, by: WorkerId },
    /// Give up the master's copies of the listeners, so that they close when the last worker has
    /// emptied its queue. Comes once, when the end has begun.
    CloseListeners,
    /// As `Spawn`, with the binary that is now on disk.
    StartCanary {
        worker: WorkerId,
        slot: Slot,
        generation: Generation,
    },
    /// Check what the master gives to new workers (the files of TLS). Answered by `Reload` or
    /// `ReloadRefused`.
    CheckReload,
    /// Become the binary that the canary is. No other action waits behind it. Answered by
    /// `UpgradeFailed` if this image goes on.
    ExecInPlace,
    /// Tell whoever listens.
    Notify(Change),
    /// Leave. The last action there is; no worker is left.
    Finish(Outcome),
}

/// A change worth telling. The master adds what it alone knows (pids, addresses).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Change {
    /// Every slot has had a ready worker. Once.
    Serving,
    /// The worker accepts connections.
    WorkerReady(WorkerId, Slot, Generation),
    /// The worker was told to drain.
    WorkerDraining(WorkerId, Slot, Generation),
    /// The worker stood still with work waiting; it is aborted.
    WorkerHung(WorkerId, Slot, Generation),
    /// The end has begun and open work is being finished.
    Draining,
    /// A reload began, or one that runs was given this newer generation to reach.
    ReloadStarted { generation: Generation },
    /// Every slot is served by this generation.
    ReloadFinished { generation: Generation },
    /// The reload is off. Slots that it had not replaced keep their workers.
    ReloadAbandoned {
        generation: Generation,
        why: Abandoned,
    },
    /// A canary is being tried.
    UpgradeStarted,
    /// The new image has taken over. Told by that image.
    UpgradeFinished,
    /// The upgrade is off and nothing has changed.
    UpgradeAbandoned { why: Abandoned },
    /// The server has this many slots now.
    Resized { workers: NonZeroU16 },
    /// A slot without a serving worker is attended by a sibling.
    Adopted { slot: Slot, by: WorkerId },
    /// That sibling could not. Another is told to attend to the slot, if one serves that has not
    /// failed as well.
    NotAdopted { slot: Slot, by: WorkerId },
    /// The slot's own worker attends to it again.
    Released { slot: Slot, by: WorkerId },
    /// The slot crashed again and is respawned only after this pause.
    BackingOff { slot: Slot, pause: Duration },
}

/// Why a reload or an upgrade was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Abandoned {
    /// `CheckReload` has failed. No worker was replaced.
    Refused,
    /// The process of a new worker could not be started.
    NotSpawned,
    /// A new worker exited before it was ready.
    Died,
    /// A new worker refused its configuration before it was ready.
    Misconfigured,
    /// A new worker was not ready in time.
    NotReadyInTime,
    /// The new image does not know the form in which this one would hand over its state.
    Incompatible,
    /// The master could not become the new image.
    ExecFailed,
    /// The end of the server came first.
    Stopping,
}

/// How the server ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Outcome {
    /// Asked to drain, and every worker has left.
    Drained,
    /// Asked to stop now, or asked twice.
    Stopped,
    /// At the first start the first worker of every slot failed before any worker was ready.
    NeverReady,
    /// More crashes than the limit allows.
    CrashLimit { crashes: u32, per: Duration },
    /// A worker said that its configuration is wrong.
    Misconfigured,
    /// A hook refused.
    HookRefused,
}

impl fmt::Display for Abandoned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Refused => "what new workers need cannot be used",
            Self::NotSpawned => "a new worker could not be started",
            Self::Died => "a new worker exited before it was ready",
            Self::Misconfigured => "a new worker refused its configuration",
            Self::NotReadyInTime => "a new worker was not ready in time",
            Self::Incompatible => "the new image cannot take over from this one",
            Self::ExecFailed => "the new image could not be executed",
            Self::Stopping => "the server is ending",
        })
    }
}
