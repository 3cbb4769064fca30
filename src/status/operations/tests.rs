//! What becomes of commands as notices and states of the server come.

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
    assert!(operations.begin(1, command, &status(&[10, 11])));
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
    // Slot 0 rests after a crash, so it has fewer than two workers.
    let mut first_rests = status(&[10, 11]);
    first_rests.slots[0].workers.clear();
    operations.on_status(&first_rests);
    assert_eq!(state(&operations), &State::Running);
    operations.on_canary_ended();
    assert_eq!(state(&operations), &State::Done);
    // The canary of another upgrade.
    let mut operations = begun(Command::TryUpgrade);
    operations.on_canary_ended();
    assert_eq!(state(&operations), &State::Running);
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
fn a_replacement_that_cannot_begin_fails_and_says_why() {
    let mut two_workers = status(&[10, 11]);
    let second = two_workers.slots[1].workers[0].clone();
    two_workers.slots[0].workers.push(second);
    let mut starts = status(&[10, 11]);
    starts.slots[0].workers[0].state = WorkerState::Starting;
    let mut rests = status(&[10, 11]);
    rests.slots[0].workers.clear();
    // The worker of a retired slot serves until another slot has one that does.
    let mut retired = status(&[10, 11]);
    retired.workers = 1;
    for (slot, status, expected) in [
        (
            9,
            status(&[10]),
            "there is no slot 9; the server has slot 0 only",
        ),
        (
            2,
            status(&[10, 11]),
            "there is no slot 2; the server has slots 0 to 1",
        ),
        (1, retired, "there is no slot 1; the server has slot 0 only"),
        (0, starts, "no worker serves slot 0 now"),
        (0, rests, "no worker serves slot 0 now"),
        (
            0,
            two_workers,
            "slot 0 has 2 workers; it can be recycled when it has one",
        ),
    ] {
        let mut operations = Operations::default();
        assert!(!operations.begin(1, Command::Recycle(Slot(slot)), &status));
        assert_eq!(state(&operations), &State::Failed(expected.to_owned()));
    }
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
    let mut operations = begun(Command::Recycle(Slot(1)));
    operations.on_notice(&resized(2));
    assert_eq!(state(&operations), &State::Running);
    operations.on_notice(&resized(1));
    let retired = "the server was resized to 1".to_owned();
    assert_eq!(state(&operations), &State::Failed(retired));
}

#[test]
fn a_resize_fails_with_the_spawn_of_one_of_its_workers() {
    let three = NonZeroU16::new(3).expect("not zero");
    let why = "execve(2): Permission denied";
    for (slot, is_failed) in [(Slot(2), true), (Slot(0), true), (Slot(3), false)] {
        let mut operations = begun(Command::Resize(three));
        operations.on_notice(&Notice::Resized { workers: 3 });
        // The slot gets another worker, or has one.
        operations.on_failed_start(slot, Some(12), why);
        operations.on_failed_start(slot, None, why);
        assert_eq!(state(&operations), &State::Running);
        operations.on_empty_slot(slot, why);
        let has_failed = state(&operations) == &State::Failed(why.to_owned());
        assert_eq!(has_failed, is_failed, "{slot}");
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
    assert!(!operations.begin(1, Command::Reload, &status));
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
