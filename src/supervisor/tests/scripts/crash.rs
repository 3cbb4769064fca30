use super::*;

#[test]
fn a_crashed_worker_is_respawned_at_once_the_first_time() {
    let mut world = World::serving(1);
    world
        .at(2)
        .exited(1, Exit::Crash)
        .expect([spawn(2, 0, 1)])
        .expect_no_change(is_backing_off);
}

#[test]
fn further_crashes_make_the_slot_rest() {
    let mut world = World::serving(1);
    world.exited(1, Exit::Crash).ready(2).forget();
    world.exited(2, Exit::Crash).expect([]);
    let Some(&Change::BackingOff {
        slot: Slot(0),
        pause,
    }) = world.changes.first()
    else {
        panic!("the slot does not rest: {:?}", world.changes);
    };
    assert!(pause >= Duration::from_millis(50) && pause <= Duration::from_millis(100));
    world
        .at_time(Time::ZERO + (pause - Duration::from_nanos(1)))
        .expect([]);
    world.at_time(Time::ZERO + pause).expect([spawn(3, 0, 1)]);
}

#[test]
fn after_a_minute_of_service_earlier_crashes_do_not_count() {
    let mut world = World::serving(1);
    world.exited(1, Exit::Crash).ready(2).forget();
    world.at(60).exited(2, Exit::Crash).expect([spawn(3, 0, 1)]);
}

#[test]
fn exit_code_0_recycles_a_worker_and_is_never_counted() {
    let mut world = World::serving(1);
    for worker in 1..100 {
        world
            .at(worker)
            .exited(worker, Exit::Clean)
            .expect([spawn(worker + 1, 0, 1)]);
        world
            .ready(worker + 1)
            .expect([])
            .expect_no_change(is_backing_off);
    }
}

/// A worker that has served for a second is replaced at once, see above.
#[test]
fn workers_that_exit_soon_after_ready_are_replaced_more_and_more_slowly() {
    let exits: [fn(&mut World, u64); 2] = [
        |world, worker| {
            world.exited(worker, Exit::Clean);
        },
        |world, worker| {
            world.event(Event::Leaving(WorkerId(worker)));
            world.exited(worker, Exit::Clean);
        },
    ];
    for exit in exits {
        let mut world = World::serving(1);
        exit(&mut world, 1);
        world.expect_no_change(is_backing_off).ready(2).forget();
        for (worker, millis) in (2..).zip([100, 200, 400, 800, 1600, 3200, 6400]) {
            exit(&mut world, worker);
            let (pause, most) = (world.rest(), Duration::from_millis(millis));
            assert!(pause >= most / 2 && pause <= most, "{pause:?} of {most:?}");
            let slot = Slot(0);
            world.expect_changes([Change::BackingOff { slot, pause }]);
            world.at_time(world.now + pause).ready(worker + 1).forget();
        }
        // It does not count as a crash, and the server does not end.
        assert_eq!(world.phase(), Phase::Serving);
        assert_eq!(world.watched.machine.crashes.len(), 0);
    }
}

#[test]
fn a_worker_that_leaves_by_itself_is_replaced_before_it_is_gone() {
    let mut world = World::serving(1);
    world
        .event(Event::Leaving(WorkerId(1)))
        .expect([drain(1), spawn(2, 0, 1)]);
    world.ready(2).expect([]);
    world.exited(1, Exit::Clean).expect([]);
}

#[test]
fn only_crashes_beyond_the_limit_end_the_server() {
    let mut world = World::serving(16);
    for worker in 1..=10 {
        world.exited(worker, Exit::Crash);
    }
    assert_eq!(world.phase(), Phase::Serving);
    world.forget().exited(11, Exit::Crash);
    assert!(world.watched.machine.is_draining());
    world.expect_changes([Change::Draining]);
    for worker in (12..=16).chain(17..=26) {
        world.exited(worker, Exit::Clean);
    }
    let outcome = Outcome::CrashLimit {
        crashes: 11,
        per: Duration::from_secs(60),
    };
    assert_eq!(world.actions.last(), Some(&finish(outcome)));
}

#[test]
fn crashes_outside_the_window_do_not_count() {
    let mut world = World::serving(1);
    for minute in 1..100 {
        let worker = minute;
        world
            .at(minute * 61)
            .exited(worker, Exit::Crash)
            .expect([spawn(worker + 1, 0, 1)]);
        world.ready(worker + 1);
    }
    assert_eq!(world.phase(), Phase::Serving);
}

#[test]
fn a_hung_worker_is_aborted_and_its_exit_is_a_crash() {
    let mut world = World::with_serving(limited(2, 0));
    world.at(5).hung(2).expect([abort(2), adopt(1, 1)]);
    world.expect_changes([Change::WorkerHung(WorkerId(2), Slot(1), Generation(1))]);
    world.hung(2).ready(2).expect([]);
    world
        .exited(2, Exit::Crash)
        .expect([drain_last(1), Action::CloseListeners]);
}

#[test]
fn a_hung_worker_whose_successor_is_ready_before_it_is_gone_is_a_crash_too() {
    let mut world = World::with_serving(limited(1, 0));
    world
        .event(Event::Reload)
        .hung(1)
        .expect([spawn(2, 0, 2), abort(1)]);
    world
        .ready(2)
        .expect([drain_last(2), Action::CloseListeners]);
}

#[test]
fn a_hung_worker_that_does_not_end_is_killed() {
    let mut world = World::serving(1);
    world.at(5).hung(1).expect([abort(1)]);
    world.at(6).expect([kill(1)]);
    world.at(10).expect([]);
    world.exited(1, Exit::Crash).expect([spawn(2, 0, 1)]);
}

#[test]
fn a_hung_worker_that_has_left_its_slot_is_killed() {
    let mut world = World::serving(1);
    world.event(Event::Reload).hung(1).forget();
    // Its successor gets the slot, and its deadline stays.
    world.ready(2).at(1).expect([kill(1)]);
    world.exited(1, Exit::Crash).expect([]);
}

#[test]
fn stop_now_does_not_wait_for_the_core_of_a_hung_worker() {
    let mut world = World::serving(1);
    world.at(5).hung(1).forget();
    world
        .event(Event::Stop(Stop::Now))
        .expect([kill(1), Action::CloseListeners]);
    world.at(9).expect([]);
}

#[test]
fn a_starting_or_draining_worker_does_not_hang() {
    let mut world = World::serving(1);
    world.event(Event::Reload).hung(2).expect([spawn(2, 0, 2)]);
    world.ready(2).forget();
    world.hung(1).expect([]);
}

/// Processes, memory or descriptors are short.
#[test]
fn workers_that_cannot_be_spawned_do_not_end_the_server_and_are_tried_again() {
    let mut world = World::serving(2);
    world
        .exited(1, Exit::Crash)
        .expect([adopt(0, 2), spawn(3, 0, 1)]);
    world.spawn_failed(3).forget();
    for worker in 4..100 {
        let pause = world.rest();
        assert!(pause <= Backoff::default().max, "{pause:?}");
        let due = world.now + pause;
        world.at_time(due).expect([spawn(worker, 0, 1)]);
        world.spawn_failed(worker).expect([]);
    }
    assert_eq!(world.phase(), Phase::Serving);
    let due = world.now + world.rest();
    world.at_time(due).expect([spawn(100, 0, 1)]);
    world.ready(100).expect([release(0, 2)]);
}

/// The server is of no use then, and its own supervisor hears of the end.
#[test]
fn workers_that_cannot_be_spawned_end_the_server_if_no_worker_is_left() {
    let mut world = World::serving(1);
    world.exited(1, Exit::Crash).forget();
    for worker in 2..100 {
        world.spawn_failed(worker).forget();
        if world.phase() == Phase::Finished {
            return;
        }
        let due = world.now + world.rest();
        world.at_time(due).forget();
    }
    panic!("it has no worker and goes on");
}

#[test]
fn events_of_unknown_workers_are_ignored() {
    let mut world = World::serving(1);
    world
        .ready(0)
        .hung(7)
        .spawn_failed(7)
        .exited(7, Exit::Misconfigured)
        .expect([]);
    world
        .event(Event::Spawned(WorkerId(7)))
        .event(Event::CanaryIncompatible)
        .event(Event::UpgradeFailed)
        .expect([]);
    world.expect_no_change(|_| true);
}

#[test]
fn a_clock_that_goes_back_changes_nothing() {
    let mut world = World::serving(1);
    world.at(90).exited(1, Exit::Crash).forget();
    world.now = Time::ZERO;
    world.event(Event::Spawned(WorkerId(2)));
    assert_eq!(
        world.watched.machine.next_deadline(),
        Some(Time::ZERO + Duration::from_secs(150))
    );
}
