//! What a server tells: notices, and the hooks that hear them.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::time::Duration;

use crate::address::Address;
use crate::error::BoxError;
use crate::id::{Generation, Slot};
use crate::policy::Outcome;
use crate::row::Totals;

mod timed;

pub(crate) use self::timed::Timed;

/// A worker as the outside knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkerInfo {
    /// The seat it fills.
    pub slot: Slot,
    /// The round it belongs to.
    pub generation: Generation,
    /// Its process id, as long as it lives.
    pub pid: u32,
}

impl WorkerInfo {
    /// For tests of [`Hooks`]: the server makes its own.
    #[must_use]
    pub fn new(slot: Slot, generation: Generation, pid: u32) -> Self {
        Self {
            slot,
            generation,
            pid,
        }
    }
}

/// How the process of a worker ended (wait(2)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WorkerExit {
    /// It called exit(3) with this code.
    Code(i32),
    /// This signal ended it.
    #[non_exhaustive]
    Signal {
        /// The signal's number (signal(7)).
        signal: i32,
        /// Whether a core was written.
        core: Core,
    },
}

/// Whether a process left a core file (core(5)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Core {
    /// A core was written.
    Dumped,
    /// None was.
    None,
}

/// Something happened. The hooks, the announce stream and the tests see the same values.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notice {
    /// Every slot has had a ready worker; said once, and not again after an upgrade.
    #[non_exhaustive]
    Serving {
        /// What is listened on; a port 0 has become the real one.
        addresses: Vec<Address>,
        /// How many slots there are.
        workers: u16,
        /// The master's process id.
        pid: u32,
    },
    /// A worker process was started. An upgrade's first one, the canary, is told as a worker of
    /// slot 0, beside the one that has the slot.
    WorkerSpawned(WorkerInfo),
    /// A worker accepts connections.
    WorkerReady(WorkerInfo),
    /// A worker was asked to finish what is open and leave.
    WorkerDraining(WorkerInfo),
    /// A worker's event loop stood still while work was waiting; it is aborted. See
    /// [`Prefork::hang_timeout`](crate::Prefork::hang_timeout).
    WorkerHung(WorkerInfo),
    /// A worker process has ended.
    #[non_exhaustive]
    WorkerExited {
        /// Which.
        worker: WorkerInfo,
        /// How.
        status: WorkerExit,
        /// Connections that were cut: open at the drain deadline, or when a signal ended it.
        cut: u32,
    },
    /// A slot without a serving worker is accepted for by the worker of the slot `by`.
    #[non_exhaustive]
    Adopted {
        /// The slot whose listeners are adopted.
        slot: Slot,
        /// The slot whose worker accepts for it.
        by: Slot,
    },
    /// An adoption has failed: the worker of the slot `by` had no descriptors left, or did not
    /// hear. Another worker is told to; if there is none, the same one after a second.
    #[non_exhaustive]
    NotAdopted {
        /// The slot whose listeners were to be adopted.
        slot: Slot,
        /// The slot whose worker does not accept for it.
        by: Slot,
    },
    /// The end of an adoption.
    #[non_exhaustive]
    Released {
        /// The slot whose own worker accepts again.
        slot: Slot,
        /// The slot whose worker did so until now.
        by: Slot,
    },
    /// A worker, or another program that had it, had shut a listener down (shutdown(2)); it listens
    /// again, without the connections that waited in its queue.
    #[non_exhaustive]
    ListenerReopened {
        /// Its address.
        address: Address,
        /// The slot whose listener it is; `None` if all slots share it.
        slot: Option<Slot>,
    },
    /// A slot waits before the next spawn: its workers crash in a row, or exit with 0, leave or
    /// ask to be replaced within a second of being ready.
    #[non_exhaustive]
    BackingOff {
        /// The slot.
        slot: Slot,
        /// For how long.
        pause: Duration,
    },
    /// A reload has begun, or one that runs is to reach this generation now. Each finished upgrade
    /// is followed by one.
    #[non_exhaustive]
    ReloadStarted {
        /// The generation it leads to.
        generation: Generation,
    },
    /// Every slot is served by the new generation.
    #[non_exhaustive]
    ReloadFinished {
        /// That generation.
        generation: Generation,
    },
    /// The new generation could not start, or the server ends. Slots that had been replaced keep
    /// their new workers, the old ones serve on in the others. If a file for TLS is bad no worker
    /// was started, and the next reload is of the same generation.
    #[non_exhaustive]
    ReloadAbandoned {
        /// The generation that failed.
        generation: Generation,
        /// What went wrong.
        why: String,
    },
    /// A worker of the binary that is now on disk, the canary, is being tried.
    UpgradeStarted,
    /// The master is that binary now, and replaces the other workers; told by the new image.
    UpgradeFinished,
    /// The server goes on as it was.
    #[non_exhaustive]
    UpgradeAbandoned {
        /// What went wrong.
        why: String,
    },
    /// The number of slots has changed.
    #[non_exhaustive]
    Resized {
        /// How many there are now.
        workers: u16,
    },
    /// The server has been asked to end and finishes what is open.
    Draining,
    /// No worker is left.
    #[non_exhaustive]
    Finished {
        /// How the server ended.
        outcome: Outcome,
        /// What all workers have done.
        totals: Totals,
    },
}

/// What the server calls while it lives. Every method has a default that does nothing.
///
/// Hooks run in the process and thread that called [`Prefork::serve`](crate::Prefork::serve). In
/// the master that is between two of its actions: while a hook runs no worker is respawned and no
/// signal is answered. In a worker it is inside its runtime: no connection is served. So a hook
/// must not block; one that takes longer than 100 ms is named in the log. A hook that panics ends
/// the master, as any panic of its thread does, and its workers finish what is open; in a worker
/// the panic is logged.
///
/// Since the program runs once in every process, each has a hooks object of its own; state put
/// into it in the master is not seen in a worker. After an upgrade the master has a new one.
/// A server that runs [in process](crate::Prefork::in_process) calls [`serving`](Self::serving),
/// [`notice`](Self::notice) for [`Notice::Serving`] alone, and [`reopen_logs`](Self::reopen_logs).
pub trait Hooks {
    /// Called in the master, on its thread, before each worker is spawned, an upgrade's canary
    /// among them, to adjust its environment, arguments or limits. An error counts as the hook's
    /// refusal: this worker is not started, the server drains and ends with
    /// [`Error::Hook`](crate::Error::Hook). It must not start processes.
    ///
    /// # Errors
    /// Whatever makes it impossible to go on.
    fn worker_command(
        &mut self,
        slot: Slot,
        generation: Generation,
        command: &mut WorkerCommand,
    ) -> Result<(), BoxError> {
        let _ = (slot, generation, command);
        Ok(())
    }

    /// Called in the master, on its thread, after each worker was spawned, an upgrade's canary
    /// among them, and before it is ready. An error is a refusal as in
    /// [`worker_command`](Self::worker_command), and the worker drains with the others. It must
    /// not wait for the worker.
    ///
    /// # Errors
    /// Whatever makes it impossible to go on.
    fn worker_spawned(&mut self, worker: &WorkerInfo) -> Result<(), BoxError> {
        let _ = worker;
        Ok(())
    }

    /// Called in the master, on its thread, once, when every slot has had a ready worker; in a
    /// server that runs [in process](crate::Prefork::in_process), when it accepts. An error is a
    /// refusal as in [`worker_command`](Self::worker_command). It must not block, nor wait for what
    /// only a notice will tell. After an upgrade it is not called again: the hooks of the new image
    /// hear [`Notice::UpgradeFinished`].
    ///
    /// # Errors
    /// Whatever makes it impossible to go on.
    fn serving(&mut self, addresses: &[Address], workers: &[WorkerInfo]) -> Result<(), BoxError> {
        let _ = (addresses, workers);
        Ok(())
    }

    /// Called in the master, on its thread, after a worker that was not asked to leave has ended
    /// and another was spawned in its slot. One that hung is such a worker; one that was killed for
    /// not being ready in time is none. It cannot refuse. It must not signal `old.pid`, which may
    /// by now be another process.
    fn worker_respawned(&mut self, old: &WorkerInfo, status: WorkerExit, new: &WorkerInfo) {
        let _ = (old, status, new);
    }

    /// Called in the master, on its thread, for every notice, after the more specific hook. It
    /// cannot refuse. It must not block.
    fn notice(&mut self, notice: &Notice) {
        let _ = notice;
    }

    /// Called in every process when logs should be reopened (`SIGUSR1` to the master, or
    /// [`Handle::reopen_logs`](crate::Handle::reopen_logs)): in the master on its thread, in each
    /// worker inside its runtime. It cannot refuse. It must not block for long: open and return.
    fn reopen_logs(&mut self) {}

    /// Called in a worker, inside its runtime, when its master has ended without asking it to
    /// leave; the worker then drains and leaves. An upgrade is no such end. It cannot refuse. It
    /// must not exit, or open requests are cut, and must not block: the drain begins after it.
    fn master_died(&mut self) {}
}

/// The hooks of a server that has none.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NoHooks;

impl Hooks for NoHooks {}

/// What a worker will be started with; see [`Hooks::worker_command`].
///
/// The program itself is not to choose: a worker is always the running image, so a reload never
/// changes code. Only an upgrade's first worker, the canary, is of the binary on disk.
#[derive(Debug, Default)]
pub struct WorkerCommand {
    pub(crate) arguments: Vec<OsString>,
    pub(crate) environment: BTreeMap<OsString, Option<OsString>>,
    pub(crate) limits: Vec<(Limit, u64)>,
}

/// A resource limit that a worker can be given (getrlimit(2)); soft and hard limit alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Limit {
    /// `RLIMIT_NOFILE`: open descriptors.
    OpenFiles,
    /// `RLIMIT_AS`: bytes of address space.
    AddressSpace,
    /// `RLIMIT_CORE`: bytes of a core file.
    Core,
    /// `RLIMIT_CPU`: seconds of CPU time.
    CpuTime,
}

impl WorkerCommand {
    /// The arguments after the program's name; at first those of the master.
    pub fn arguments(&mut self) -> &mut Vec<OsString> {
        &mut self.arguments
    }

    /// Sets an environment variable in the worker.
    pub fn env(&mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> &mut Self {
        self.environment
            .insert(name.as_ref().to_owned(), Some(value.as_ref().to_owned()));
        self
    }

    /// Takes an environment variable away from the worker.
    pub fn env_remove(&mut self, name: impl AsRef<OsStr>) -> &mut Self {
        self.environment.insert(name.as_ref().to_owned(), None);
        self
    }

    /// Limits a resource of the worker (setrlimit(2)). Raising a hard limit needs privilege;
    /// without it the spawn fails, which counts as a crash.
    pub fn limit(&mut self, limit: Limit, value: u64) -> &mut Self {
        self.limits.push((limit, value));
        self
    }
}

impl fmt::Display for WorkerExit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit {code}"),
            Self::Signal {
                signal,
                core: Core::None,
            } => write!(f, "signal {signal}"),
            Self::Signal {
                signal,
                core: Core::Dumped,
            } => {
                write!(f, "signal {signal}, core dumped")
            }
        }
    }
}

impl Notice {
    /// The notice's name in the announce stream.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Serving { .. } => "serving",
            Self::WorkerSpawned(_) => "worker_spawned",
            Self::WorkerReady(_) => "worker_ready",
            Self::WorkerDraining(_) => "worker_draining",
            Self::WorkerHung(_) => "worker_hung",
            Self::WorkerExited { .. } => "worker_exited",
            Self::Adopted { .. } => "adopted",
            Self::NotAdopted { .. } => "not_adopted",
            Self::Released { .. } => "released",
            Self::ListenerReopened { .. } => "listener_reopened",
            Self::BackingOff { .. } => "backing_off",
            Self::ReloadStarted { .. } => "reload_started",
            Self::ReloadFinished { .. } => "reload_finished",
            Self::ReloadAbandoned { .. } => "reload_abandoned",
            Self::UpgradeStarted => "upgrade_started",
            Self::UpgradeFinished => "upgrade_finished",
            Self::UpgradeAbandoned { .. } => "upgrade_abandoned",
            Self::Resized { .. } => "resized",
            Self::Draining => "draining",
            Self::Finished { .. } => "finished",
        }
    }
}
