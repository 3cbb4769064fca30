//! Hooks by the clock: while one runs, nobody is respawned and no signal is answered.

use std::time::{Duration, Instant};

use super::{Hooks, Notice, WorkerCommand, WorkerExit, WorkerInfo};
use crate::address::Address;
use crate::error::BoxError;
use crate::id::{Generation, Slot};

/// A hook that takes longer is told of in the log.
const LONG: Duration = Duration::from_millis(100);

/// Hooks that are watched: one that blocks is named in the log.
pub(crate) struct Timed {
    hooks: Box<dyn Hooks>,
    long: Duration,
    tell: fn(&'static str, Duration),
}

impl Timed {
    pub(crate) fn new(hooks: Box<dyn Hooks>) -> Self {
        let tell = |hook, took: Duration| {
            tracing::warn!(
                hook,
                ?took,
                "a hook took long; the server stood still meanwhile"
            );
        };
        Self {
            hooks,
            long: LONG,
            tell,
        }
    }

    fn time<T>(&mut self, name: &'static str, hook: impl FnOnce(&mut dyn Hooks) -> T) -> T {
        let begun = Instant::now();
        let outcome = hook(&mut *self.hooks);
        let took = begun.elapsed();
        if took >= self.long {
            (self.tell)(name, took);
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
        static TOLD: RefCell<Vec<&'static str>> = const { RefCell::new(Vec::new()) };
    }

    fn all(long: Duration) -> Vec<&'static str> {
        let mut hooks = Timed {
            hooks: Box::new(NoHooks),
            long,
            tell: |hook, _| TOLD.with_borrow_mut(|told| told.push(hook)),
        };
        let (slot, generation) = (Slot(0), Generation::FIRST);
        let worker = WorkerInfo::new(slot, generation, 1);
        let mut command = WorkerCommand::default();
        assert!(hooks.worker_command(slot, generation, &mut command).is_ok());
        assert!(hooks.worker_spawned(&worker).is_ok());
        assert!(hooks.serving(&[], &[]).is_ok());
        hooks.worker_respawned(&worker, WorkerExit::Code(0), &worker);
        hooks.notice(&Notice::Draining);
        hooks.reopen_logs();
        hooks.master_died();
        TOLD.take()
    }

    #[test]
    fn only_long_ones_are_told_of() {
        assert_eq!(all(Duration::MAX), [""; 0]);
        let every = [
            "worker_command",
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
