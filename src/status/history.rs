//! What has happened to a server so far, from its notices.

use std::collections::VecDeque;

use crate::codec::record;
use crate::hooks::{Notice, WorkerExit, WorkerInfo};
use crate::id::Generation;
use crate::status::is_dry_run;

/// How many exits of workers are kept.
const EXITS_MAX: usize = 8;

/// Counts that only grow, and the latest events. The master keeps it, also through upgrades.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct History {
    /// Worker processes that were started.
    pub(crate) starts: u64,
    /// Worker processes that exited with 0, exited with another code, or were ended by a signal.
    pub(crate) exits: Exits,
    /// Workers that hung.
    pub(crate) hung: u64,
    pub(crate) reloads: Operations,
    pub(crate) upgrades: Operations,
    pub(crate) resizes: u64,
    /// Listeners that were shut down and listen again.
    pub(crate) reopened: u64,
    /// The latest exits, the oldest first, with their time in milliseconds after 1970.
    pub(crate) last_exits: VecDeque<(u64, (WorkerInfo, WorkerExit))>,
    /// The reload or upgrade that runs, or the last one.
    pub(crate) operation: Option<Operation>,
}

record!(History {
    starts,
    exits,
    hung,
    reloads,
    upgrades,
    resizes,
    reopened,
    last_exits,
    operation
});

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Exits {
    pub(crate) clean: u64,
    pub(crate) failed: u64,
    pub(crate) signal: u64,
}

record!(Exits {
    clean,
    failed,
    signal
});

/// How many have finished, and how many were abandoned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Operations {
    pub(crate) finished: u64,
    pub(crate) abandoned: u64,
}

record!(Operations {
    finished,
    abandoned
});

/// A reload or an upgrade. Times are milliseconds after 1970.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Operation {
    /// The generation of a reload; `None` for an upgrade.
    generation: Option<Generation>,
    pub(crate) began: u64,
    pub(crate) ended: Option<u64>,
    /// Why it was abandoned.
    pub(crate) why: Option<String>,
}

record!(Operation {
    generation,
    began,
    ended,
    why
});

impl Operation {
    pub(crate) fn name(&self) -> &'static str {
        match self.generation {
            Some(_) => "reload",
            None => "upgrade",
        }
    }
}

impl History {
    /// Counts a notice that was reported at this time.
    pub(crate) fn note(&mut self, notice: &Notice, millis: u64) {
        match notice {
            Notice::WorkerSpawned(_) => self.starts += 1,
            Notice::WorkerHung(_) => self.hung += 1,
            Notice::WorkerExited { worker, status, .. } => {
                *match status {
                    WorkerExit::Code(0) => &mut self.exits.clean,
                    WorkerExit::Code(_) | WorkerExit::Unknown => &mut self.exits.failed,
                    WorkerExit::Signal { .. } => &mut self.exits.signal,
                } += 1;
                if self.last_exits.len() == EXITS_MAX {
                    self.last_exits.pop_front();
                }
                self.last_exits.push_back((millis, (*worker, *status)));
            }
            Notice::Resized { .. } => self.resizes += 1,
            Notice::ListenerReopened { .. } => self.reopened += 1,
            Notice::ReloadStarted { generation } => self.began(Some(*generation), millis),
            Notice::UpgradeStarted => self.began(None, millis),
            Notice::ReloadFinished { generation } => self.ended(Some(*generation), millis, None),
            Notice::UpgradeFinished => self.ended(None, millis, None),
            Notice::ReloadAbandoned { generation, why } => {
                self.ended(Some(*generation), millis, Some(why));
            }
            Notice::UpgradeAbandoned { why } if is_dry_run(why) => self.operation = None,
            Notice::UpgradeAbandoned { why } => self.ended(None, millis, Some(why)),
            _ => {}
        }
    }

    /// A reload has begun, or an upgrade, which has no generation.
    fn began(&mut self, generation: Option<Generation>, began: u64) {
        self.operation = Some(Operation {
            generation,
            began,
            ended: None,
            why: None,
        });
    }

    fn ended(&mut self, generation: Option<Generation>, millis: u64, why: Option<&String>) {
        let counts = match generation {
            Some(_) => &mut self.reloads,
            None => &mut self.upgrades,
        };
        match why {
            None => counts.finished += 1,
            Some(_) => counts.abandoned += 1,
        }
        // A reload that is refused does not end the operation that runs.
        let running = self.operation.as_mut();
        if let Some(operation) = running.filter(|it| it.generation == generation) {
            operation.ended = Some(millis);
            operation.why = why.cloned();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::Slot;

    #[test]
    fn notices_are_counted_and_the_latest_are_kept() {
        let mut history = History::default();
        let worker = |pid| WorkerInfo::new(Slot(0), Generation::FIRST, pid);
        for pid in 0..10 {
            history.note(&Notice::WorkerSpawned(worker(pid)), 1);
            let status = WorkerExit::Code(i32::try_from(pid % 2).expect("0 or 1"));
            let exited = Notice::WorkerExited {
                worker: worker(pid),
                status,
                cut: 0,
            };
            history.note(&exited, 2);
        }
        assert_eq!(
            (history.starts, history.exits.clean, history.exits.failed),
            (10, 5, 5)
        );
        let kept: Vec<u32> = history
            .last_exits
            .iter()
            .map(|(_, (it, _))| it.pid)
            .collect();
        assert_eq!(kept, [2, 3, 4, 5, 6, 7, 8, 9]);
        let generation = Generation(2);
        history.note(&Notice::ReloadStarted { generation }, 3);
        let why = "no file".to_owned();
        history.note(&Notice::ReloadAbandoned { generation, why }, 4);
        assert_eq!(history.reloads.abandoned, 1);
        let operation = history.operation.as_ref().expect("there was one");
        assert_eq!((operation.began, operation.ended), (3, Some(4)));
        assert_eq!(operation.why.as_deref(), Some("no file"));
        history.note(&Notice::ReloadStarted { generation }, 5);
        let refused = Generation(3);
        let why = "no file".to_owned();
        let refused = Notice::ReloadAbandoned {
            generation: refused,
            why,
        };
        history.note(&refused, 6);
        let operation = history.operation.as_ref().expect("it runs");
        assert_eq!((operation.began, operation.ended), (5, None));
    }
}
