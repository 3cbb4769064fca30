//! What happens when a worker's process ends.

use crate::error::EXIT_MISCONFIGURED;
use crate::hooks::{Notice, WorkerExit};
use crate::id::{Slot, WorkerId};
use crate::master::Master;
use crate::master::admin::Admin;
use crate::master::workers::process::{EndRequest, Intent, Process};
use crate::supervisor::{Event, Exit};
use crate::sys::reap;

/// Why a worker ended that exited with 0 and had not accepted.
const UNREADY: &str = "it was not ready yet; `main` has to call `serve` or `run` in each process, \
     and the app of `run` has to accept";

/// Why a worker ended that exited with another code and has not said why: its `main` ended it, such
/// as at a lock that the master holds.
const ENDED_EARLY: &str = "it was not ready yet; `main` runs in each worker too";

impl Master {
    /// The next worker whose process has ended and is not reaped yet. Processes that are no workers
    /// are reaped here: as PID 1 the master is the parent of orphans.
    pub(in crate::master) fn next_ended(&mut self) -> Option<WorkerId> {
        while let Some(pid) = reap::ended() {
            if let Some(worker) = self.workers.by_pid(pid) {
                return Some(worker);
            }
            let taken = reap::take(pid);
            if self.on_admin_ended(pid, taken.unwrap_or(WorkerExit::Unknown)) {
                continue;
            }
            match taken {
                Some(status) => {
                    tracing::debug!(%pid, %status, "reaped a process that is no worker");
                }
                None => tracing::warn!(%pid, "a process was reaped by another thread"),
            }
        }
        let admin = self.observers.admin.as_ref();
        if let Some(pid) = admin.and_then(Admin::reaped_elsewhere) {
            self.on_admin_ended(pid, WorkerExit::Unknown);
        }
        self.workers.reaped_elsewhere()
    }

    /// Reaps a worker whose process has ended.
    pub(in crate::master) fn reap(&mut self, worker: WorkerId) {
        let Process { pid, slot, .. } = self.workers.processes[&worker];
        let status = reap::take(pid).unwrap_or(WorkerExit::Unknown);
        self.on_exit(worker, status);
        self.mend_listeners(slot);
    }

    fn on_exit(&mut self, worker: WorkerId, status: WorkerExit) {
        let mut process = self
            .workers
            .processes
            .remove(&worker)
            .expect("the worker was found a moment ago");
        process.close_channel();
        // A worker that was killed has sent nothing, but its page says how many were open.
        let cut = process.cut().unwrap_or_else(|| process.stats.connections());
        // In one step for handles: the counts are in the worker's page, or in that of the ended.
        self.publish_status_after(|scoreboard| scoreboard.keep(&process.stats));
        if let Some(admin) = &mut self.observers.admin {
            admin.on_reaped(process.info());
        }
        if let Some(watch) = &mut self.hang {
            watch.forget(worker);
        }
        let exit = match status {
            WorkerExit::Code(0) => Exit::Clean,
            WorkerExit::Code(EXIT_MISCONFIGURED) => Exit::Misconfigured,
            _ => Exit::Crash,
        };
        let is_starting = self.supervisor.is_starting(worker);
        // The supervisor takes this for a crash.
        let is_unready = exit == Exit::Clean && is_starting;
        if is_starting && process.intent == Intent::Stay {
            match (exit, status) {
                (Exit::Clean, _) => process.blame(UNREADY.into()),
                (Exit::Crash, WorkerExit::Code(_)) => process.blame(ENDED_EARLY.into()),
                _ => {}
            }
        }
        if status == WorkerExit::Unknown {
            process.blame("another thread of the master has reaped it".into());
        }
        let exit_report = process.exit_report(status);
        let info = process.info();
        match (process.end_request, exit) {
            (EndRequest::None, Exit::Clean) => tracing::info!("{exit_report}"),
            (EndRequest::None | EndRequest::Abort, _) => tracing::warn!("{exit_report}"),
            (EndRequest::Drain | EndRequest::Kill, _) => tracing::debug!("{exit_report}"),
        }
        log_cut(info.slot, cut, process.stats.upgrades_cut());
        self.failures.last = Some((info.generation, exit_report.clone()));
        if self.is_canary(worker) {
            self.canary_failed(exit_report);
            self.observers.operations.on_canary_ended();
        } else {
            let unasked = matches!(process.end_request, EndRequest::None | EndRequest::Abort);
            if unasked && !self.has_another(info.slot) {
                self.workers.respawning.insert(info.slot, (info, status));
            }
            let operations = &mut self.observers.operations;
            operations.on_failed_start(info.slot, Some(info.pid), &exit_report);
            if exit != Exit::Clean || is_unready {
                self.failures.keep(exit_report);
            }
        }
        self.observers.notify(&Notice::WorkerExited {
            worker: info,
            status,
            cut,
        });
        self.handle_event(Event::Exited(worker, exit));
    }

    /// Whether the slot has another worker that stays.
    pub(super) fn has_another(&self, slot: Slot) -> bool {
        let mut processes = self.workers.processes.iter();
        processes.any(|(&worker, process)| process.slot == slot && self.stays(worker, process))
    }

    /// Whether the worker was not asked to end and is no canary.
    pub(in crate::master) fn stays(&self, worker: WorkerId, process: &Process) -> bool {
        process.is_wanted() && !self.is_canary(worker)
    }
}

/// Logs how many connections a worker has cut, and of what kind.
fn log_cut(slot: Slot, open: u32, upgraded: u64) {
    if open > 0 || upgraded > 0 {
        tracing::warn!(
            %slot, open, upgraded,
            "connections were cut: those that were open at the worker's end, and upgraded ones, \
             such as WebSockets, after their grace time"
        );
    }
}
