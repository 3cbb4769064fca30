//! The worker processes, and what they have counted: how they start ([`spawn`]), what the master
//! knows of one ([`process`]), the messages that wait for one ([`outbox`]), and how they end
//! (`exit`).

mod exit;
pub(super) mod outbox;
pub(super) mod process;
pub(super) mod spawn;

use std::collections::BTreeMap;
use std::time::Duration;

use nix::unistd::Pid;

use crate::hooks::{WorkerExit, WorkerInfo};
use crate::id::{Slot, WorkerId};
use crate::master::workers::process::Process;
use crate::protocol::scoreboard::Scoreboard;
use crate::sys::{clock, reap};

/// The kernel ends a process that was sent SIGKILL within this time, unless something holds it.
const ENDS_WITHIN: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct Workers {
    /// How many slots the server has.
    pub(super) count: u16,
    /// The processes that were spawned and are not reaped yet.
    pub(super) processes: BTreeMap<WorkerId, Process>,
    /// Workers that ended unasked, until another is spawned in their slot.
    pub(super) respawning: BTreeMap<Slot, (WorkerInfo, WorkerExit)>,
    /// Workers that were sent SIGKILL, and when the log is to say that they have not ended, on the
    /// monotonic clock.
    pub(super) killed: BTreeMap<WorkerId, Duration>,
    pub(super) scoreboard: Scoreboard,
}

impl Workers {
    pub(super) fn new(count: u16, scoreboard: Scoreboard) -> Self {
        Self {
            count,
            processes: BTreeMap::new(),
            respawning: BTreeMap::new(),
            killed: BTreeMap::new(),
            scoreboard,
        }
    }

    pub(super) fn by_pid(&self, pid: Pid) -> Option<WorkerId> {
        let mut processes = self.processes.iter();
        let found = processes.find(|(_, process)| process.pid == pid);
        found.map(|(&worker, _)| worker)
    }

    /// A worker was sent SIGKILL.
    pub(super) fn on_killed(&mut self, worker: WorkerId) {
        let told = clock::monotonic() + ENDS_WITHIN;
        self.killed.entry(worker).or_insert(told);
    }

    pub(super) fn next_unended(&self) -> Option<Duration> {
        self.killed.values().min().copied()
    }

    /// Says once of each killed worker that it has not ended.
    pub(super) fn tell_unended(&mut self, now: Duration) {
        for (worker, process) in &self.processes {
            if self.killed.get(worker).is_some_and(|at| *at <= now) {
                let (slot, pid) = (process.slot, process.pid);
                tracing::error!(
                    %slot, %pid,
                    "a worker was sent SIGKILL {ENDS_WITHIN:?} ago, and the kernel has not ended \
                     it: it may wait for a disk (state D in ps(1)), or a debugger may hold it"
                );
            }
        }
        self.killed.retain(|_, at| *at > now);
    }

    /// A worker whose process has ended and was reaped by another thread, which waits for every
    /// process (wait(2)).
    pub(super) fn reaped_elsewhere(&self) -> Option<WorkerId> {
        let mut processes = self.processes.iter();
        // The kernel closes a process's channel before another one can reap it.
        let found = processes
            .find(|(_, process)| process.channel().is_none() && reap::is_gone(process.pid));
        found.map(|(&worker, _)| worker)
    }

    /// The workers that were not asked to end.
    pub(super) fn wanted(&self) -> impl Iterator<Item = WorkerInfo> {
        let wanted = self
            .processes
            .values()
            .filter(|process| process.is_wanted());
        wanted.map(Process::info)
    }
}
