//! What the supervisor asks of the master: actions and notices.

use std::fmt;
use std::num::NonZeroU16;
use std::time::Duration;

use crate::drain::Idle;
use crate::id::{Generation, Slot, WorkerId};
use crate::policy::Outcome;
use crate::status::DRY_RUN;

/// One thing for the master to do. The master does them in the order in which they come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Action {
    /// Start a worker of the running image on the slot's listeners. Make the listeners first if the
    /// slot has none. Answered by `Spawned` or `SpawnFailed`.
    Spawn {
        worker: WorkerId,
        slot: Slot,
        generation: Generation,
    },
    /// Ask the worker to accept no more connections, to finish its open work and to exit. `Idle`
    /// says what becomes of its idle connections. At the end of the server a second `Drain` asks a
    /// worker to close what it was to hand over.
    Drain(WorkerId, Idle),
    /// Send SIGABRT, so that a core shows where the worker hung. Answered by `Exited`, or followed
    /// by `Kill`.
    Abort(WorkerId),
    /// Send SIGKILL. Answered by `Exited`, if the kernel ends the process.
    Kill(WorkerId),
    /// Give the slot's listeners to a worker of another slot, which accepts from them until
    /// `Release`. Make the listeners first if the slot has none. Answered by `NotAdopted` if the
    /// worker cannot adopt.
    Adopt { slot: Slot, by: WorkerId },
    /// Tell the adopter that the slot's own worker attends to the slot again.
    Release { slot: Slot, by: WorkerId },
    /// Close the master's copies of the listeners, so that they close when the last worker has
    /// emptied its queue. Comes once, when the server ends.
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
    /// Become the binary that the canary runs. It is the last action in the queue. Answered by
    /// `UpgradeFailed` if the exec fails.
    ExecInPlace,
    /// Notify the observers.
    Notify(Change),
    /// End the server. It is the last action. No worker is left, but for stuck ones.
    Finish(Outcome),
}

/// A change that is worth a notice. The master adds what only it knows: pids and addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Change {
    /// Every slot has had a ready worker. Once.
    Serving,
    /// The worker accepts connections.
    WorkerReady(WorkerId, Slot, Generation),
    /// The worker was asked to drain.
    WorkerDraining(WorkerId, Slot, Generation),
    /// The worker hung. It is aborted.
    WorkerHung(WorkerId, Slot, Generation),
    /// The worker was killed, but the kernel does not end it. Nothing waits for it any more.
    WorkerStuck(WorkerId, Slot, Generation),
    /// The server ends, and workers finish their open work.
    Draining,
    /// A reload began, or a reload that runs was given this newer generation as its target.
    ReloadStarted { generation: Generation },
    /// Every slot is served by this generation.
    ReloadFinished { generation: Generation },
    /// The reload was abandoned. Slots that it had not replaced keep their workers.
    ReloadAbandoned {
        generation: Generation,
        why: Abandoned,
    },
    /// A canary starts.
    UpgradeStarted,
    /// The new image has taken over. That image reports it.
    UpgradeFinished,
    /// The upgrade was abandoned, and nothing has changed.
    UpgradeAbandoned { why: Abandoned },
    /// The server has this many slots now.
    Resized { workers: NonZeroU16 },
    /// The worker `by` attends to the slot, whose own worker does not serve.
    Adopted { slot: Slot, by: WorkerId },
    /// The worker `by` could not adopt the slot. Another one is asked, if one serves that has not
    /// failed as well.
    NotAdopted { slot: Slot, by: WorkerId },
    /// The slot's own worker attends to it again.
    Released { slot: Slot, by: WorkerId },
    /// The slot crashed again. It is respawned after this pause.
    BackingOff { slot: Slot, pause: Duration },
}

/// Why a reload or an upgrade was abandoned.
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
    /// The new image does not read the version in which this image writes its state.
    Incompatible,
    /// The master could not become the new image.
    ExecFailed,
    /// The upgrade was to be tried only, and the canary serves.
    DryRun,
    /// The server ends.
    Stopping,
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
            Self::DryRun => DRY_RUN,
            Self::Stopping => "the server is ending",
        })
    }
}
