//! Measures each hook: while a hook runs, the master spawns no worker and handles no signal.

use std::ffi::OsString;
use std::time::{Duration, Instant};

use super::{Hooks, Notice, WorkerCommand, WorkerExit, WorkerInfo};
use crate::address::Address;
use crate::error::BoxError;
use crate::id::{Generation, Slot};

/// The log names a hook that takes this long or longer.
const LONG: Duration = Duration::from_millis(100);

/// Calls the hooks, and names in the log each call that takes long.
pub(crate) struct Timed {
    hooks: Box<dyn Hooks>,
    long: Duration,
    report: fn(&'static str, Duration),
}

impl Timed {
    pub(crate) fn new(hooks: Box<dyn Hooks>) -> Self {
        let report = |hook, took: Duration| {
            tracing::warn!(
                hook,
                ?took,
                "a hook took long; the server stood still meanwhile"
            );
        };
        Self {
            hooks,
            long: LONG,
            report,
        }
    }

    fn time<T>(&mut self, name: &'static str, hook: impl FnOnce(&mut dyn Hooks) -> T) -> T {
        let begun = Instant::now();
        let outcome = hook(&mut *self.hooks);
        let took = begun.elapsed();
        if took >= self.long {
            (self.report)(name, took);
        }
        outcome
    }
}

impl Hooks for Timed {
    fn worker_command(
        &mut self,
        slot: Slot,
        generation: Generation,
        command: &mut WorkerCommand,
    ) -> Result<(), BoxError> {
        self.time("worker_command", |hooks| {
            hooks.worker_command(slot, generation, command)
        })
    }

    fn check_reload(&mut self) -> Result<(), BoxError> {
        self.time("check_reload", |hooks| hooks.check_reload())
    }

    fn check_upgrade(&mut self) -> Result<Vec<(OsString, OsString)>, BoxError> {
        self.time("check_upgrade", |hooks| hooks.check_upgrade())
    }

    fn worker_spawned(&mut self, worker: &WorkerInfo) -> Result<(), BoxError> {
        self.time("worker_spawned", |hooks| hooks.worker_spawned(worker))
    }

    fn serving(&mut self, addresses: &[Address], workers: &[WorkerInfo]) -> Result<(), BoxError> {
        self.time("serving", |hooks| hooks.serving(addresses, workers))
    }

    fn worker_respawned(&mut self, old: &WorkerInfo, status: WorkerExit, new: &WorkerInfo) {
        self.time("worker_respawned", |hooks| {
            hooks.worker_respawned(old, status, new)
        });
    }

    fn notice(&mut self, notice: &Notice) {
        self.time("notice", |hooks| hooks.notice(notice));
    }

    fn reopen_logs(&mut self) {
        self.time("reopen_logs", |hooks| hooks.reopen_logs());
    }

    fn master_died(&mut self) {
        self.time("master_died", |hooks| hooks.master_died());
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use crate::hooks::NoHooks;

    thread_local! {
        static REPORTED: RefCell<Vec<&'static str>> = const { RefCell::new(Vec::new()) };
    }

    fn all(long: Duration) -> Vec<&'static str> {
        let mut hooks = Timed {
            hooks: Box::new(NoHooks),
            long,
            report: |hook, _| REPORTED.with_borrow_mut(|reported| reported.push(hook)),
        };
        let (slot, generation) = (Slot(0), Generation::FIRST);
        let worker = WorkerInfo::new(slot, generation, 1);
        let mut command = WorkerCommand::default();
        assert!(hooks.worker_command(slot, generation, &mut command).is_ok());
        assert!(hooks.check_reload().is_ok());
        assert!(hooks.check_upgrade().is_ok());
        assert!(hooks.worker_spawned(&worker).is_ok());
        assert!(hooks.serving(&[], &[]).is_ok());
        hooks.worker_respawned(&worker, WorkerExit::Code(0), &worker);
        hooks.notice(&Notice::Draining);
        hooks.reopen_logs();
        hooks.master_died();
        REPORTED.take()
    }

    #[test]
    fn the_log_names_only_hooks_that_take_long() {
        assert_eq!(all(Duration::MAX), [""; 0]);
        let every = [
            "worker_command",
            "check_reload",
            "check_upgrade",
            "worker_spawned",
            "serving",
            "worker_respawned",
            "notice",
            "reopen_logs",
            "master_died",
        ];
        assert_eq!(all(Duration::ZERO), every);
    }
}
