use super::*;

#[test]
fn each_slot_gets_a_worker_and_serving_is_notified_when_all_are_ready() {
    let mut world = World::new(2);
    world.expect([spawn(1, 0, 1), spawn(2, 1, 1)]);
    world.event(Event::Spawned(WorkerId(1))).expect([]);
    world.at(1).ready(2).expect([adopt(0, 2)]);
    world.expect_no_change(|change| *change == Change::Serving);
    world.at(2).ready(1).expect([release(0, 2)]);
    world.expect_changes([
        Change::WorkerReady(WorkerId(1), Slot(0), Generation(1)),
        Change::Serving,
    ]);
    world
        .ready(1)
        .ready(2)
        .expect([])
        .expect_no_change(|_| true);
    assert_eq!(world.phase(), Phase::Serving);
}

#[test]
fn a_server_ends_at_once_if_no_slot_becomes_ready() {
    let mut world = World::new(2);
    world.at(1).exited(1, Exit::Crash).forget();
    world.spawn_failed(2);
    // The second worker of the first slot starts, and has to leave first.
    world.expect([drain_last(3), Action::CloseListeners]);
    world
        .exited(3, Exit::Clean)
        .expect([finish(Outcome::NeverReady)]);
}

#[test]
fn exit_code_0_before_ready_is_a_failure_too() {
    let mut world = World::new(1);
    world.forget().exited(1, Exit::Clean);
    world.expect([Action::CloseListeners, finish(Outcome::NeverReady)]);
}

#[test]
fn many_slots_that_all_fail_end_as_never_ready_even_at_the_crash_limit() {
    let mut world = World::new(32);
    for worker in 1..=11 {
        world.exited(worker, Exit::Crash);
    }
    world.at(32).forget();
    let live: Vec<_> = world.watched.watch.live().map(|(id, _)| id.0).collect();
    for worker in live {
        world.exited(worker, Exit::Crash);
    }
    world.expect([finish(Outcome::NeverReady)]);
}

#[test]
fn with_one_slot_ready_a_failing_one_backs_off_and_is_tried_again() {
    let mut world = World::new(2);
    world.ready(1).forget();
    world.exited(2, Exit::Crash).expect([spawn(3, 1, 1)]);
    world.exited(3, Exit::Crash).expect([]);
    world.at(1).expect([spawn(4, 1, 1)]);
    world.ready(4).expect_changes([Change::Serving]);
}

#[test]
fn a_worker_that_is_not_ready_in_time_is_killed_and_counts_once() {
    let mut world = World::with(limited(2, 1));
    world.ready(1).forget();
    world.at(59).expect([]);
    world.at(60).expect([kill(2)]);
    world.ready(2).hung(2).expect([]);
    world.exited(2, Exit::Crash).expect([spawn(3, 1, 1)]);
    world.ready(3).expect_changes([Change::Serving]);
}

#[test]
fn a_worker_that_says_its_configuration_is_wrong_ends_the_server() {
    let mut world = World::new(2);
    world.ready(1).forget();
    world
        .exited(2, Exit::Misconfigured)
        .expect([drain_last(1), Action::CloseListeners]);
    world
        .exited(1, Exit::Clean)
        .expect([finish(Outcome::Misconfigured)]);
}

#[test]
fn commands_during_the_start_wait_for_its_end() {
    let mut world = World::new(1);
    world
        .event(Event::Upgrade)
        .event(Event::Reload)
        .event(Event::Reload)
        .forget();
    world.expect([]).ready(1);
    world.expect_changes([Change::Serving, Change::UpgradeStarted]);
    world.exited(2, Exit::Crash);
    world.expect_changes([Change::ReloadStarted {
        generation: Generation(3),
    }]);
}

/// It waits for every slot.
#[test]
fn a_start_ends_although_the_workers_of_one_slot_cannot_be_spawned() {
    let mut world = World::new(2);
    // The second slot tries again at once, and later after pauses.
    world.ready(1).spawn_failed(2).forget();
    for worker in 3..100 {
        world.spawn_failed(worker).forget();
        if world.phase() != Phase::Starting {
            return;
        }
        let due = world.now + world.rest();
        world.at_time(due).forget();
    }
    panic!("it still starts");
}

#[test]
fn the_policy_has_the_numbers_that_are_documented() {
    let policy = Policy::default();
    assert_eq!(policy.workers, slots(1));
    assert_eq!(
        policy.drain_timeout + policy.kill_grace,
        Duration::from_secs(31)
    );
    assert_eq!(policy.ready_timeout, Duration::from_secs(60));
    assert_eq!(
        policy.crash_limit,
        CrashLimit {
            max: 10,
            per: Duration::from_secs(60)
        }
    );
    let backoff = Backoff {
        first: Duration::from_millis(100),
        max: Duration::from_secs(30),
        reset_after: Duration::from_secs(60),
    };
    assert_eq!(policy.backoff, backoff);
}
