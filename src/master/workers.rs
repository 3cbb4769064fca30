//! The worker processes, and what they have counted: how they start ([`spawn`]), what the master
//! knows of one ([`process`]), the messages that wait for one ([`outbox`]), and how they end
//! (`exit`).

mod exit;
pub(super) mod outbox;
pub(super) mod process;
pub(super) mod spawn;

use std::collections::{BTreeMap, BTreeSet};

use nix::unistd::Pid;

use crate::hooks::{WorkerExit, WorkerInfo};
use crate::id::{Slot, WorkerId};
use crate::master::workers::process::Process;
use crate::protocol::scoreboard::Scoreboard;
use crate::sys::reap;

#[derive(Debug)]
pub(super) struct Workers {
    /// How many slots the server has.
    pub(super) count: u16,
    /// The processes that were spawned and are not reaped yet.
    pub(super) processes: BTreeMap<WorkerId, Process>,
    /// Workers that ended unasked, until another is spawned in their slot.
    pub(super) respawning: BTreeMap<Slot, (WorkerInfo, WorkerExit)>,
    pub(super) scoreboard: Scoreboard,
}

impl Workers {
    pub(super) fn new(count: u16, scoreboard: Scoreboard) -> Self {
        Self {
            count,
            processes: BTreeMap::new(),
            respawning: BTreeMap::new(),
            scoreboard,
        }
    }

    pub(super) fn by_pid(&self, pid: Pid) -> Option<WorkerId> {
        let mut processes = self.processes.iter();
        let found = processes.find(|(_, process)| process.pid == pid);
        found.map(|(&worker, _)| worker)
    }

    /// The slots with workers that the master has aborted or killed.
    pub(super) fn slots_of_killed(&self) -> BTreeSet<Slot> {
        let processes = self.processes.values();
        let killed = processes.filter(|it| it.is_killed());
        killed.map(|it| it.slot).collect()
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
