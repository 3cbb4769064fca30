//! The commands of operators, and what has become of them. The master keeps them, so they outlive
//! admin processes and images. Notices and the state of the server say when one is done.
//!
//! | command | done | failed |
//! |---|---|---|
//! | reload | the reload that it started, or a later one, has left no older worker | abandoned |
//! | upgrade | so for the reload of the new image | the upgrade or its reload was abandoned |
//! | upgrade, a trial | the canary has served and exited | abandoned for another reason |
//! | scale | as many slots as asked for, each with one worker, which serves | another resize |
//! | recycle | the slot is served by another process | that one ended, or did not start |
//! | stop | the server has ended | - |
//! | reopen | at once | - |

use std::collections::VecDeque;

use serde_json::{Value, json};

use crate::codec::record;
use crate::handle::Command;
use crate::hooks::Notice;
use crate::id::{Generation, Slot};
use crate::policy::{ServerState, WorkerState};
use crate::status::{SlotStatus, Status, is_dry_run};

/// How many operations are kept.
const KEPT: usize = 64;

/// The operations, the latest last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Operations(VecDeque<Operation>);

record!(Operations { 0 });

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Operation {
    number: u64,
    command: Command,
    state: State,
    /// What it waits for.
    until: Until,
}

record!(Operation {
    number,
    command,
    state,
    until
});

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    Running,
    Done,
    Failed(String),
}

record!(enum State { 0 = Running, 1 = Done, 2 = Failed(why) });

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Until {
    Nothing,
    /// The server is resized to this many slots.
    Resized(u16),
    /// The server has this many slots, and all of them serve.
    Slots(u16),
    /// Another process than this one serves the slot.
    Replaced {
        slot: Slot,
        pid: u32,
    },
    /// The master checks what a reload gives to workers.
    ReloadChecked,
    /// A reload starts.
    ReloadStarts,
    /// The reload to this generation ends.
    ReloadEnds(Generation),
    /// No worker of an older generation runs.
    NoneBefore(Generation),
    /// The upgrade ends.
    UpgradeEnds,
    /// The trial of an upgrade ends.
    TrialEnds,
    /// Each slot has one worker, which serves.
    Settled,
    /// The server has ended.
    Ended,
}

record!(enum Until {
    0 = Nothing,
    1 = Slots(workers),
    2 = Replaced { slot, pid },
    3 = ReloadStarts,
    4 = ReloadEnds(generation),
    5 = UpgradeEnds,
    6 = Ended,
    7 = TrialEnds,
    8 = NoneBefore(generation),
    9 = Settled,
    10 = Resized(workers),
    11 = ReloadChecked,
});

impl Operations {
    /// Call it before the master carries the command out.
    pub(crate) fn begin(&mut self, number: u64, command: Command, status: &Status) {
        let until = match command {
            Command::Reload => Until::ReloadChecked,
            Command::Upgrade => Until::UpgradeEnds,
            Command::TryUpgrade => Until::TrialEnds,
            Command::Resize(workers) if workers.get() == status.workers => {
                Until::Slots(workers.get())
            }
            Command::Resize(workers) => Until::Resized(workers.get()),
            Command::Stop(_) => Until::Ended,
            Command::ReopenLogs => Until::Nothing,
            Command::Recycle(slot) => match serving(status, slot) {
                Some(pid) => Until::Replaced { slot, pid },
                None => Until::Nothing,
            },
        };
        let is_draining = status.state == ServerState::Draining;
        let state = match until {
            Until::Nothing => State::Done,
            Until::Ended => State::Running,
            _ if is_draining => State::Failed("the server drains".to_owned()),
            _ => State::Running,
        };
        if self.0.len() == KEPT {
            self.0.pop_front();
        }
        self.0.push_back(Operation {
            number,
            command,
            state,
            until,
        });
    }

    pub(crate) fn get(&self, number: u64) -> Option<&Operation> {
        self.0.iter().find(|operation| operation.number == number)
    }

    /// Returns the numbers of the operations that the notice is about.
    pub(crate) fn on_notice(&mut self, notice: &Notice) -> Vec<u64> {
        let concerned = |operation: &mut Operation| {
            let number = operation.number;
            operation.on_notice(notice).then_some(number)
        };
        self.running().filter_map(concerned).collect()
    }

    /// The check of a reload has succeeded. Call it before the reload begins, or waits.
    pub(crate) fn on_reload_checked(&mut self) {
        for operation in self.running() {
            if operation.until == Until::ReloadChecked {
                operation.until = Until::ReloadStarts;
            }
        }
    }

    /// A worker of the slot has ended, or was not started: then it has no pid.
    pub(crate) fn on_failed_start(&mut self, slot: Slot, pid: Option<u32>, why: &str) {
        for operation in self.running() {
            // What ends beside the old worker is the one that was to replace it.
            let is_its_own = matches!(operation.until, Until::Replaced { slot: ours, pid: old }
                if ours == slot && pid != Some(old));
            if is_its_own {
                operation.state = State::Failed(why.to_owned());
            }
        }
    }

    pub(crate) fn on_status(&mut self, status: &Status) {
        for operation in self.running() {
            let is_done = match operation.until {
                Until::Resized(workers) | Until::Slots(workers) => has_slots(status, workers),
                Until::Settled => has_slots(status, status.workers),
                Until::NoneBefore(generation) => has_none_before(status, generation),
                Until::Replaced { slot, pid } => {
                    serving(status, slot).is_some_and(|now| now != pid)
                }
                _ => false,
            };
            if is_done {
                operation.state = State::Done;
            }
        }
    }

    fn running(&mut self) -> impl Iterator<Item = &mut Operation> {
        let list = self.0.iter_mut();
        list.filter(|operation| operation.state == State::Running)
    }
}

impl Operation {
    /// What the master has not begun yet.
    pub(crate) fn given(number: u64, command: Command) -> Self {
        Self {
            number,
            command,
            state: State::Running,
            until: Until::Nothing,
        }
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.state != State::Running
    }

    /// Returns whether the notice is about this operation.
    fn on_notice(&mut self, notice: &Notice) -> bool {
        let failed = |why: &str| State::Failed(why.to_owned());
        match (self.until, notice) {
            (Until::ReloadChecked | Until::ReloadStarts, Notice::ReloadStarted { generation }) => {
                self.until = Until::ReloadEnds(*generation);
            }
            // It was refused while another reload runs or waits.
            (Until::ReloadChecked, Notice::ReloadAbandoned { why, .. }) => self.state = failed(why),
            // The reload that runs goes on to a later generation.
            (Until::ReloadEnds(_), Notice::ReloadStarted { generation }) => {
                self.until = Until::ReloadEnds(*generation);
            }
            (Until::ReloadEnds(ours), Notice::ReloadFinished { generation })
                if *generation == ours =>
            {
                self.until = Until::NoneBefore(ours);
            }
            (Until::ReloadEnds(ours), Notice::ReloadAbandoned { generation, why })
                if *generation == ours =>
            {
                self.state = failed(why);
            }
            (Until::UpgradeEnds, Notice::UpgradeStarted) => {}
            (Until::UpgradeEnds, Notice::UpgradeFinished) => self.until = Until::ReloadStarts,
            (Until::TrialEnds, Notice::UpgradeStarted) => {}
            // An upgrade that was asked for meanwhile.
            (Until::TrialEnds, Notice::UpgradeFinished) => self.state = State::Done,
            (Until::TrialEnds, Notice::UpgradeAbandoned { why }) if is_dry_run(why) => {
                self.until = Until::Settled;
            }
            (Until::UpgradeEnds | Until::TrialEnds, Notice::UpgradeAbandoned { why }) => {
                self.state = failed(why);
            }
            (Until::Resized(ours), Notice::Resized { workers }) if *workers == ours => {
                self.until = Until::Slots(ours);
            }
            (Until::Slots(ours), Notice::Resized { workers }) if *workers != ours => {
                self.state = State::Failed(format!("the server was resized to {workers}"));
            }
            (Until::Ended, Notice::Finished { .. }) => self.state = State::Done,
            (Until::Ended, Notice::Stopping | Notice::Draining) => {}
            (_, Notice::Draining | Notice::Finished { .. }) => {
                self.state = failed("the server ends");
            }
            _ => return false,
        }
        true
    }

    pub(crate) fn to_json(&self) -> Value {
        let (state, why) = match &self.state {
            State::Running => ("running", None),
            State::Done => ("done", None),
            State::Failed(why) => ("failed", Some(why)),
        };
        json!({ "id": self.number, "operation": self.command.name(), "state": state, "why": why })
    }
}

/// Whether there are this many slots, each with one worker, which serves.
fn has_slots(status: &Status, workers: u16) -> bool {
    let serves = |slot: &SlotStatus| match &slot.workers[..] {
        [worker] => worker.state == WorkerState::Serving,
        _ => false,
    };
    matches!(status.state, ServerState::Serving | ServerState::Stopping)
        && status.workers == workers
        && status.slots.len() == usize::from(workers)
        && status.slots.iter().all(serves)
}

fn has_none_before(status: &Status, generation: Generation) -> bool {
    let mut workers = status.slots.iter().flat_map(|slot| &slot.workers);
    workers.all(|worker| worker.worker.generation >= generation)
}

/// The process that serves the slot alone.
pub(crate) fn serving(status: &Status, slot: Slot) -> Option<u32> {
    let slot = status.slots.iter().find(|it| it.slot == slot)?;
    match &slot.workers[..] {
        [worker] if worker.state == WorkerState::Serving => Some(worker.worker.pid),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU16;

    use super::*;
    use crate::hooks::WorkerInfo;
    use crate::policy::{Outcome, Stop};
    use crate::stats::Totals;
    use crate::status::{DRY_RUN, WorkerStatus};

    /// A server with one worker of these pids in each slot.
    fn status(pids: &[u32]) -> Status {
        status_of(pids, 1)
    }

    fn status_of(pids: &[u32], generation: u32) -> Status {
        let generation = Generation(generation);
        let slots = (0..).map(Slot).zip(pids).map(|(slot, &pid)| SlotStatus {
            slot,
            workers: vec![WorkerStatus {
                worker: WorkerInfo::new(slot, generation, pid),
                state: WorkerState::Serving,
                connections: 0,
                requests: 0,
            }],
            adopted_by: None,
            backing_off: false,
        });
        let slots: Vec<_> = slots.collect();
        Status {
            state: ServerState::Serving,
            addresses: Vec::new(),
            workers: u16::try_from(slots.len()).expect("few"),
            generation: Generation::FIRST,
            slots,
            totals: Totals::default(),
        }
    }

    fn begun(command: Command) -> Operations {
        let mut operations = Operations::default();
        operations.begin(1, command, &status(&[10, 11]));
        operations
    }

    fn state(operations: &Operations) -> &State {
        &operations.get(1).expect("it is kept").state
    }

    fn started(generation: u32) -> Notice {
        let generation = Generation(generation);
        Notice::ReloadStarted { generation }
    }

    fn abandoned(generation: u32) -> Notice {
        let why = "no file".to_owned();
        let generation = Generation(generation);
        Notice::ReloadAbandoned { generation, why }
    }

    fn finished(generation: u32) -> Notice {
        let generation = Generation(generation);
        Notice::ReloadFinished { generation }
    }

    #[test]
    fn a_reload_is_done_when_the_one_that_started_after_it_has_finished() {
        let mut operations = begun(Command::Reload);
        for (notice, is_concerned) in [
            (finished(2), false),
            (started(3), true),
            (finished(2), false),
        ] {
            let concerned = operations.on_notice(&notice);
            assert_eq!(concerned == [1], is_concerned, "{notice:?}");
        }
        assert_eq!(state(&operations), &State::Running);
        // It goes on to a later generation, and one more is refused meanwhile.
        operations.on_notice(&started(4));
        operations.on_notice(&abandoned(5));
        operations.on_notice(&finished(4));
        operations.on_status(&status_of(&[10, 11], 3));
        assert_eq!(state(&operations), &State::Running, "an old worker drains");
        operations.on_status(&status_of(&[12, 13], 4));
        assert_eq!(state(&operations), &State::Done);
        // One waits for an upgrade, and one that follows is refused.
        let mut operations = begun(Command::Reload);
        operations.on_reload_checked();
        operations.begin(2, Command::Reload, &status(&[10, 11]));
        assert_eq!(operations.on_notice(&abandoned(5)), [2]);
        assert_eq!(state(&operations), &State::Running);
        assert!(operations.get(2).is_some_and(Operation::has_ended));
        let mut operations = begun(Command::Reload);
        operations.on_notice(&started(2));
        operations.on_notice(&abandoned(2));
        assert_eq!(state(&operations), &State::Failed("no file".to_owned()));
    }

    #[test]
    fn an_upgrade_is_done_when_its_reload_has_finished() {
        let mut operations = begun(Command::Upgrade);
        for notice in [Notice::UpgradeStarted, Notice::UpgradeFinished, started(2)] {
            operations.on_notice(&notice);
        }
        assert_eq!(state(&operations), &State::Running);
        operations.on_notice(&finished(2));
        operations.on_status(&status_of(&[12, 13], 2));
        assert_eq!(state(&operations), &State::Done);
        let mut operations = begun(Command::TryUpgrade);
        operations.on_notice(&Notice::UpgradeStarted);
        let why = format!("/bin/server: {DRY_RUN}");
        operations.on_notice(&Notice::UpgradeAbandoned { why });
        assert_eq!(state(&operations), &State::Running, "the canary drains");
        operations.on_status(&status(&[10, 11]));
        assert_eq!(state(&operations), &State::Done);
        let mut operations = begun(Command::Upgrade);
        let why = "exit 1".to_owned();
        operations.on_notice(&Notice::UpgradeAbandoned { why });
        assert_eq!(state(&operations), &State::Failed("exit 1".to_owned()));
    }

    #[test]
    fn the_state_of_the_slots_says_when_a_resize_or_a_replacement_is_done() {
        let three = NonZeroU16::new(3).expect("not zero");
        let mut operations = begun(Command::Resize(three));
        operations.on_status(&status(&[10, 11]));
        assert_eq!(state(&operations), &State::Running);
        operations.on_status(&status(&[10, 11, 12]));
        assert_eq!(state(&operations), &State::Done);
        let mut operations = begun(Command::Recycle(Slot(1)));
        operations.on_status(&status(&[12, 11]));
        assert_eq!(state(&operations), &State::Running);
        operations.on_status(&status(&[10, 12]));
        assert_eq!(state(&operations), &State::Done);
    }

    #[test]
    fn a_resize_that_is_overtaken_and_a_replacement_that_fails_have_failed() {
        let slots = |count| NonZeroU16::new(count).expect("not zero");
        let resized = |workers| Notice::Resized { workers };
        let mut operations = begun(Command::Resize(slots(3)));
        // That of an earlier command.
        assert!(operations.on_notice(&resized(5)).is_empty());
        operations.on_notice(&resized(3));
        operations.on_notice(&resized(4));
        let why = "the server was resized to 4";
        assert_eq!(state(&operations), &State::Failed(why.to_owned()));
        let mut operations = begun(Command::Resize(slots(2)));
        operations.on_notice(&resized(4));
        assert_eq!(state(&operations), &State::Failed(why.to_owned()));
        let why = "exit 1";
        for (slot, pid, is_failed) in [
            (Slot(0), Some(11), false),
            (Slot(1), Some(11), false),
            (Slot(1), Some(12), true),
            (Slot(1), None, true),
        ] {
            let mut operations = begun(Command::Recycle(Slot(1)));
            operations.on_failed_start(slot, pid, why);
            let has_failed = state(&operations) == &State::Failed(why.to_owned());
            assert_eq!(has_failed, is_failed, "{slot} {pid:?}");
        }
    }

    #[test]
    fn the_end_of_the_server_ends_each_operation() {
        let ended = Notice::Finished {
            outcome: Outcome::Drained,
            totals: Totals::default(),
        };
        let mut operations = begun(Command::Reload);
        operations.on_notice(&Notice::Draining);
        assert_eq!(
            state(&operations),
            &State::Failed("the server ends".to_owned())
        );
        let mut operations = begun(Command::Stop(Stop::Drain));
        operations.on_notice(&Notice::Draining);
        assert_eq!(state(&operations), &State::Running);
        operations.on_notice(&ended);
        assert_eq!(state(&operations), &State::Done);
        let mut operations = Operations::default();
        let mut status = status(&[10]);
        status.state = ServerState::Draining;
        operations.begin(1, Command::Reload, &status);
        assert_eq!(
            state(&operations),
            &State::Failed("the server drains".to_owned())
        );
    }

    #[test]
    fn the_oldest_are_forgotten() {
        let mut operations = Operations::default();
        for number in 0..=64 {
            operations.begin(number, Command::ReopenLogs, &status(&[10]));
        }
        assert!(operations.get(0).is_none() && operations.get(1).is_some());
    }
}
