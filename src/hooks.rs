//! What a server reports: notices, and the hooks that it calls.

use std::ffi::OsString;
use std::fmt;
use std::time::Duration;

use crate::address::Address;
use crate::codec::record;
use crate::error::BoxError;
use crate::id::{Generation, Slot};
use crate::policy::Outcome;
use crate::stats::Totals;

mod command;
mod json;
mod timed;

pub use self::command::{Limit, WorkerCommand};
pub(crate) use self::timed::Timed;

/// A worker as the hooks and the announce stream know it. With the feature `serde` it can be
/// serialized.
///
/// ```
/// use prefork_server::{BoxError, Generation, Hooks, Slot, WorkerInfo};
///
/// #[derive(Default)]
/// struct Pids(Vec<u32>);
///
/// impl Hooks for Pids {
///     fn worker_spawned(&mut self, worker: &WorkerInfo) -> Result<(), BoxError> {
///         self.0.push(worker.pid);
///         Ok(())
///     }
/// }
///
/// // A test of the hooks.
/// let mut pids = Pids::default();
/// pids.worker_spawned(&WorkerInfo::new(Slot(0), Generation::FIRST, 4711))?;
/// assert_eq!(pids.0, [4711]);
/// # Ok::<(), BoxError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct WorkerInfo {
    /// The slot that it serves.
    pub slot: Slot,
    /// The generation that it belongs to.
    pub generation: Generation,
    /// Its process id. When the process has ended, the number may become that of another process.
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
///
/// ```
/// use prefork_server::WorkerExit;
///
/// /// The kernel sends SIGKILL if no memory is left.
/// fn may_have_lacked_memory(status: WorkerExit) -> bool {
///     matches!(status, WorkerExit::Signal { signal: 9, .. })
/// }
///
/// assert!(!may_have_lacked_memory(WorkerExit::Code(101)));
/// assert_eq!(WorkerExit::Code(101).to_string(), "exit 101");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WorkerExit {
    /// The process called exit(3) with this code.
    Code(i32),
    /// A signal ended the process.
    #[non_exhaustive]
    Signal {
        /// The signal's number (signal(7)).
        signal: i32,
        /// Whether the process left a core file.
        core: Core,
    },
    /// It is not known: another thread of the master's process has reaped the worker (wait(2)).
    Unknown,
}

/// Whether a process left a core file (core(5)).
///
/// ```
/// use prefork_server::{Core, Hooks, WorkerExit, WorkerInfo};
///
/// struct Cores;
///
/// impl Hooks for Cores {
///     fn worker_respawned(&mut self, old: &WorkerInfo, status: WorkerExit, _new: &WorkerInfo) {
///         if let WorkerExit::Signal { core: Core::Dumped, .. } = status {
///             eprintln!("to see why: coredumpctl debug {}", old.pid);
///         }
///     }
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Core {
    /// The kernel wrote a core file.
    Dumped,
    /// The kernel wrote no core file.
    None,
}

/// Something that happened. Hooks and the announce stream get the same values.
///
/// With the feature `serde` it is serialized as a line of the announce stream.
///
/// ```
/// use prefork_server::{Generation, Notice, Slot, WorkerInfo};
///
/// /// What an operator should know.
/// fn alarm(notice: &Notice) -> Option<String> {
///     match notice {
///         Notice::ReloadAbandoned { why, .. } => Some(format!("the reload failed: {why}")),
///         Notice::WorkerHung(worker) => Some(format!("slot {} hung", worker.slot)),
///         _ => None,
///     }
/// }
///
/// let hung = Notice::WorkerHung(WorkerInfo::new(Slot(2), Generation::FIRST, 4711));
/// assert_eq!(alarm(&hung).as_deref(), Some("slot 2 hung"));
/// assert_eq!(hung.name(), "worker_hung");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notice {
    /// Every slot has had a ready worker. Reported once, and not again after an upgrade.
    #[non_exhaustive]
    Serving {
        /// The addresses of the listeners, with the real port where port 0 was given.
        addresses: Vec<Address>,
        /// How many slots there are.
        workers: u16,
        /// The master's process id.
        pid: u32,
    },
    /// A worker process was started. The first worker of an upgrade, the canary, is reported as a
    /// worker of slot 0, beside the worker that serves the slot.
    WorkerSpawned(WorkerInfo),
    /// A worker accepts connections.
    WorkerReady(WorkerInfo),
    /// A worker was asked to finish its open work and to exit.
    WorkerDraining(WorkerInfo),
    /// The event loop of a worker stood still while work was waiting, and the master aborts the
    /// worker. See [`Prefork::hang_timeout`](crate::Prefork::hang_timeout).
    WorkerHung(WorkerInfo),
    /// A worker was sent `SIGKILL`, and five seconds later the kernel has not ended its process: a
    /// thread waits for a disk or a FUSE file (state D in ps(1)), or a debugger holds it. The
    /// server goes on without it. [`Notice::WorkerExited`] follows if the kernel ends it.
    WorkerStuck(WorkerInfo),
    /// A worker process has ended.
    #[non_exhaustive]
    WorkerExited {
        /// The worker.
        worker: WorkerInfo,
        /// How its process ended.
        status: WorkerExit,
        /// How many connections were cut: those that were still open at the drain timeout, or when
        /// the process ended without a drain, by a signal or by exit(3).
        cut: u32,
    },
    /// A slot has no serving worker, and the worker of another slot now accepts from its listeners.
    #[non_exhaustive]
    Adopted {
        /// The slot whose listeners are adopted.
        slot: Slot,
        /// The slot whose worker accepts from them.
        by: Slot,
    },
    /// An adoption has failed: the worker of the slot `by` had no descriptors left, or the message
    /// did not reach it. The master asks another worker. If there is no other, it asks the same one
    /// again after a second.
    #[non_exhaustive]
    NotAdopted {
        /// The slot whose listeners are not adopted.
        slot: Slot,
        /// The slot whose worker could not adopt them.
        by: Slot,
    },
    /// An adoption has ended.
    #[non_exhaustive]
    Released {
        /// The slot whose own worker accepts again.
        slot: Slot,
        /// The slot whose worker accepted from its listeners until now.
        by: Slot,
    },
    /// A worker, or another program that had the listener, had shut it down (shutdown(2)), or used
    /// the socket for something else. The master made it listen again, or another one in its place.
    /// The connections that waited in its queue are lost. Or the file of a Unix listener was
    /// removed, and a reload made it again; then no connection is lost.
    #[non_exhaustive]
    ListenerReopened {
        /// The address of the listener.
        address: Address,
        /// The slot of the listener; `None` if all slots share it.
        slot: Option<Slot>,
    },
    /// A slot waits before its next spawn, because its workers crash one after the other, or exit
    /// with 0, leave or ask to be replaced within a second of being ready.
    #[non_exhaustive]
    BackingOff {
        /// The slot.
        slot: Slot,
        /// How long the slot waits.
        pause: Duration,
    },
    /// A reload has begun, or a running reload now leads to a newer generation. A reload follows
    /// each finished upgrade.
    #[non_exhaustive]
    ReloadStarted {
        /// The generation that the reload leads to.
        generation: Generation,
    },
    /// Workers of the new generation serve every slot.
    #[non_exhaustive]
    ReloadFinished {
        /// The new generation.
        generation: Generation,
    },
    /// The new generation could not start, or the server ends. Slots whose worker was already
    /// replaced keep the new worker; in the other slots the old workers continue to serve. If a
    /// file for TLS cannot be used, no worker was started, and the next reload has the same
    /// generation.
    #[non_exhaustive]
    ReloadAbandoned {
        /// The generation that failed.
        generation: Generation,
        /// What went wrong.
        why: String,
    },
    /// An upgrade has begun: the master tries a worker of the binary that is now on disk, the
    /// canary.
    UpgradeStarted,
    /// The master has become the new binary, and replaces the other workers. The new image reports
    /// it.
    UpgradeFinished,
    /// The upgrade has failed, and the server continues as before.
    #[non_exhaustive]
    UpgradeAbandoned {
        /// What went wrong.
        why: String,
    },
    /// The number of slots has changed.
    #[non_exhaustive]
    Resized {
        /// How many slots there are now.
        workers: u16,
    },
    /// The server was asked to end, and still serves for a while. See
    /// [`Prefork::pre_stop_delay`](crate::Prefork::pre_stop_delay).
    Stopping,
    /// The server was asked to end, and finishes its open work.
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

/// What the server calls while it runs. Every method has a default that does nothing.
///
/// A hook runs in the process and thread that called [`Prefork::serve`](crate::Prefork::serve). The
/// master calls hooks between two of its actions: while a hook runs, the master spawns no worker
/// and handles no signal. A worker calls hooks inside its runtime: while a hook runs, the worker
/// serves no connection. So a hook must not block. The log names a hook that takes longer than 100
/// ms. A hook that panics in the master ends the master, as every panic of its thread does, and the
/// workers finish their open work. In a worker the panic is logged. In a server that runs [in
/// process](crate::Prefork::in_process), a panic of [`serving`](Self::serving) or
/// [`notice`](Self::notice) ends the server, and `serve` panics.
///
/// The program runs once in every process, so each process has a hooks object of its own: a worker
/// does not see what the master changes in its object. After an upgrade the master has a new
/// object. A server that runs [in process](crate::Prefork::in_process) calls
/// [`serving`](Self::serving), [`notice`](Self::notice) for [`Notice::Serving`] alone, and
/// [`reopen_logs`](Self::reopen_logs).
///
/// ```
/// use prefork_server::{Address, BoxError, Hooks, Prefork, WorkerExit, WorkerInfo};
///
/// #[derive(Default)]
/// struct Operator {
///     crashes: u32,
/// }
///
/// impl Hooks for Operator {
///     fn serving(&mut self, addresses: &[Address], _: &[WorkerInfo]) -> Result<(), BoxError> {
///         // If this fails, the server ends.
///         std::fs::write("address.txt", addresses[0].to_string())?;
///         Ok(())
///     }
///
///     fn worker_respawned(&mut self, old: &WorkerInfo, status: WorkerExit, _new: &WorkerInfo) {
///         self.crashes += 1;
///         eprintln!("crash {} in slot {}: {status}", self.crashes, old.slot);
///     }
/// }
///
/// let server = Prefork::bind("127.0.0.1:8080").hooks(Operator::default());
/// ```
pub trait Hooks {
    /// Called in the master, on its thread, before each worker is spawned, the canary of an upgrade
    /// included. It may change the environment, the arguments and the limits of the worker. The
    /// admin process gets the environment of the latest worker that was no canary. The new image of
    /// an upgrade calls it first for its canary, which runs already. If the hook returns an error,
    /// this worker is not started, and the server drains and ends with
    /// [`Error::Hook`](crate::Error::Hook). It must not start processes.
    ///
    /// # Errors
    /// Any error after which the server must not continue.
    fn worker_command(
        &mut self,
        slot: Slot,
        generation: Generation,
        command: &mut WorkerCommand,
    ) -> Result<(), BoxError> {
        let _ = (slot, generation, command);
        Ok(())
    }

    /// Called in the master, on its thread, when a reload was asked for, before it starts a worker.
    /// It may read a configuration again, which [`worker_command`](Self::worker_command) then gives
    /// to the workers. If it returns an error, the reload is abandoned with that reason, and the
    /// workers go on. It is not called for the reload that ends an upgrade.
    ///
    /// # Errors
    /// Any error because of which new workers could not serve.
    fn check_reload(&mut self) -> Result<(), BoxError> {
        Ok(())
    }

    /// Called in the master, on its thread, when the canary of an upgrade is ready, before the
    /// master becomes the new binary, whose `main` then reads a configuration again. So it may
    /// compare the configuration with what it was at [`Notice::UpgradeStarted`]: only that has been
    /// tried. If it returns an error, the upgrade is abandoned with that reason. It is called for a
    /// dry run too.
    ///
    /// Returns variables for the environment of the new image, such as the configuration that was
    /// tried: the file may change again before `main` reads it, and then there is no way back. They
    /// stay in the environment of the master and of its workers.
    ///
    /// # Errors
    /// Any error because of which the new binary could not go on.
    fn check_upgrade(&mut self) -> Result<Vec<(OsString, OsString)>, BoxError> {
        Ok(Vec::new())
    }

    /// Called in the master, on its thread, after each worker was spawned, the canary of an upgrade
    /// included, and before the worker is ready. If it returns an error, the server drains, this
    /// worker too, and ends with [`Error::Hook`](crate::Error::Hook). It must not wait for the
    /// worker.
    ///
    /// # Errors
    /// Any error after which the server must not continue.
    fn worker_spawned(&mut self, worker: &WorkerInfo) -> Result<(), BoxError> {
        let _ = worker;
        Ok(())
    }

    /// Called in the master, on its thread, once, when every slot has had a ready worker. The
    /// addresses have the real port where port 0 was given. A server
    /// that runs [in process](crate::Prefork::in_process) calls it when it accepts connections. If
    /// it returns an error, the server drains and ends with [`Error::Hook`](crate::Error::Hook). It
    /// must not block, and must not wait for a later notice. After an upgrade it is not called
    /// again: the hooks of the new image get [`Notice::UpgradeFinished`].
    ///
    /// # Errors
    /// Any error after which the server must not continue.
    fn serving(&mut self, addresses: &[Address], workers: &[WorkerInfo]) -> Result<(), BoxError> {
        let _ = (addresses, workers);
        Ok(())
    }

    /// Called in the master, on its thread, after a worker ended that was not asked to leave, and a
    /// new worker was spawned in its slot. It is also called for a worker that hung, and not for
    /// one that was killed because it was not ready in time. It returns nothing, so it cannot stop
    /// the server. It must not send a signal to `old.pid`, which may be another process by now.
    fn worker_respawned(&mut self, old: &WorkerInfo, status: WorkerExit, new: &WorkerInfo) {
        let _ = (old, status, new);
    }

    /// Called in the master, on its thread, for every notice, after the more specific hook. It
    /// returns nothing, so it cannot stop the server. It must not block.
    fn notice(&mut self, notice: &Notice) {
        let _ = notice;
    }

    /// Called in every process when logs should be reopened (`SIGUSR1` to the master, or
    /// [`Handle::reopen_logs`](crate::Handle::reopen_logs)): in the master on its thread, in each
    /// worker inside its runtime. It returns nothing, so it cannot stop the server. It must not
    /// block for long: open the files and return.
    fn reopen_logs(&mut self) {}

    /// Called in a worker, inside its runtime, when its master has ended and had not asked the
    /// worker to leave. Afterwards the worker drains and exits. It is not called in an upgrade. It
    /// returns nothing, so it cannot stop the drain. It must not exit, which would cut open
    /// requests, and must not block: the drain begins after it.
    fn master_died(&mut self) {}
}

record!(WorkerInfo {
    slot,
    generation,
    pid
});

record!(enum WorkerExit {
    0 = Code(code),
    1 = Signal { signal, core },
    2 = Unknown,
});

record!(enum Core { 0 = None, 1 = Dumped });

/// The hooks of a server that has none.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NoHooks;

impl Hooks for NoHooks {}

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
            Self::Unknown => f.write_str("unknown exit"),
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
            Self::WorkerStuck(_) => "worker_stuck",
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
            Self::Stopping => "stopping",
            Self::Draining => "draining",
            Self::Finished { .. } => "finished",
        }
    }
}
