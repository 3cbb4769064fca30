//! The commands of operators, and what has become of them. The master keeps them, so they outlive
//! admin processes and images. Notices and the state of the server say when one is done.
//!
//! | command | done | failed |
//! |---|---|---|
//! | reload | the reload that it started, or a later one, has left no older worker | abandoned |
//! | upgrade | so for the reload of the new image | the upgrade or its reload was abandoned |
//! | upgrade, a trial | the canary has served and exited | abandoned for another reason |
//! | scale | that many slots, each with one worker that serves | another resize, a failed spawn |
//! | recycle | another process serves the slot | that one failed, or the slot was retired |
//! | stop | the server has ended | - |
//! | reopen | at once | - |

#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use serde_json::{Value, json};

use crate::codec::record;
use crate::handle::Command;
use crate::hooks::Notice;
use crate::id::{Generation, Slot};
use crate::policy::{ServerState, Stop, WorkerState};
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
    /// The canary of the trial ends.
    CanaryEnds,
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
    9 = CanaryEnds,
    10 = Resized(workers),
    11 = ReloadChecked,
});

impl Operations {
    /// Call it before the master carries the command out. Returns whether the master is to do so.
    pub(crate) fn begin(&mut self, number: u64, command: Command, status: &Status) -> bool {
        let until = match command {
            Command::Reload => Ok(Until::ReloadChecked),
            Command::Upgrade => Ok(Until::UpgradeEnds),
            Command::TryUpgrade => Ok(Until::TrialEnds),
            Command::Resize(workers) if workers.get() == status.workers => {
                Ok(Until::Slots(workers.get()))
            }
            Command::Resize(workers) => Ok(Until::Resized(workers.get())),
            Command::Stop(_) => Ok(Until::Ended),
            Command::ReopenLogs => Ok(Until::Nothing),
            Command::Recycle(slot) => {
                serving(status, slot).map(|pid| Until::Replaced { slot, pid })
            }
        };
        let drains = status.state == ServerState::Draining;
        let (until, state) = match until {
            Ok(Until::Nothing) => (Until::Nothing, State::Done),
            Ok(Until::Ended) => (Until::Ended, State::Running),
            _ if drains => (
                Until::Nothing,
                State::Failed("the server drains".to_owned()),
            ),
            Ok(until) => (until, State::Running),
            Err(why) => (Until::Nothing, State::Failed(why)),
        };
        let has_failed = matches!(state, State::Failed(_));
        if self.0.len() == KEPT {
            self.0.pop_front();
        }
        self.0.push_back(Operation {
            number,
            command,
            state,
            until,
        });
        // It would end the server at once.
        let repeats_drain = drains && command == Command::Stop(Stop::Drain);
        !has_failed && !repeats_drain
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

    /// No worker could be spawned for a slot that has none. The server tries again, until it can:
    /// perhaps never.
    pub(crate) fn on_empty_slot(&mut self, slot: Slot, why: &str) {
        for operation in self.running() {
            if matches!(operation.until, Until::Slots(workers) if slot.0 < workers) {
                operation.state = State::Failed(why.to_owned());
            }
        }
    }

    /// The process of a canary has ended. There is one canary at most, and none in an image that
    /// an upgrade has made.
    pub(crate) fn on_canary_ended(&mut self) {
        for operation in self.running() {
            if operation.until == Until::CanaryEnds {
                operation.state = State::Done;
            }
        }
    }

    pub(crate) fn on_status(&mut self, status: &Status) {
        for operation in self.running() {
            let is_done = match operation.until {
                Until::Resized(workers) | Until::Slots(workers) => has_slots(status, workers),
                Until::NoneBefore(generation) => has_none_before(status, generation),
                Until::Replaced { slot, pid } => serving(status, slot).is_ok_and(|now| now != pid),
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
                self.until = Until::CanaryEnds;
            }
            (Until::UpgradeEnds | Until::TrialEnds, Notice::UpgradeAbandoned { why }) => {
                self.state = failed(why);
            }
            (Until::Resized(ours), Notice::Resized { workers }) if *workers == ours => {
                self.until = Until::Slots(ours);
            }
            (Until::Slots(ours), Notice::Resized { workers }) if *workers != ours => {
                self.state = failed(&format!("the server was resized to {workers}"));
            }
            (Until::Replaced { slot, .. }, Notice::Resized { workers }) if slot.0 >= *workers => {
                self.state = failed(&format!("the server was resized to {workers}"));
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

/// The pid of the worker that serves the slot alone. The error says why no worker does.
pub(crate) fn serving(status: &Status, slot: Slot) -> Result<u32, String> {
    if slot.0 >= status.workers {
        let there_are = match status.workers.saturating_sub(1) {
            0 => "slot 0 only".to_owned(),
            last => format!("slots 0 to {last}"),
        };
        return Err(format!(
            "there is no slot {slot}; the server has {there_are}"
        ));
    }
    let workers = status.slots.iter().find(|it| it.slot == slot);
    match workers.map_or(&[][..], |slot| &slot.workers) {
        [worker] if worker.state == WorkerState::Serving => Ok(worker.worker.pid),
        [] | [_] => Err(format!("no worker serves slot {slot} now")),
        several => Err(format!(
            "slot {slot} has {} workers; it can be recycled when it has one",
            several.len()
        )),
    }
}
