//! Workers that have served their share, and are replaced.

use super::*;

#[test]
fn a_worker_that_asks_serves_until_its_replacement_is_ready() {
    let mut world = World::serving(2);
    world.recycle(1).expect([spawn(3, 0, 1)]);
    world.ready(3).expect([drain(1)]);
    world.exited(1, Exit::Clean).expect([]);
    world.expect_no_change(is_backing_off);
}

#[test]
fn workers_that_ask_are_replaced_one_after_the_other() {
    let mut world = World::serving(3);
    world
        .recycle(2)
        .recycle(1)
        .recycle(3)
        .expect([spawn(4, 1, 1)]);
    world.ready(4).expect([drain(2), spawn(5, 0, 1)]);
    world.ready(5).expect([drain(1), spawn(6, 2, 1)]);
    world.ready(6).expect([drain(3)]);
}

/// The next replacement may fail for the same reason.
#[test]
fn after_a_failed_replacement_the_worker_serves_until_it_asks_again() {
    let mut world = World::serving(1);
    world.recycle(1).expect([spawn(2, 0, 1)]);
    world.exited(2, Exit::Misconfigured).expect([]);
    assert_eq!(world.phase(), Phase::Serving);
    world.at(3600).expect([]);
    world.recycle(1).expect([spawn(3, 0, 1)]);
    world.at(3600 + 60).expect([kill(3)]);
    world.exited(3, Exit::Crash).expect([]);
    world.recycle(1).expect([spawn(4, 0, 1)]);
    world.ready(4).expect([drain(1)]);
}

#[test]
fn replacements_that_always_fail_do_not_end_the_server() {
    let mut world = World::serving(1);
    for new in 2..=30 {
        world.at(new).recycle(1).expect([spawn(new, 0, 1)]);
        world.exited(new, Exit::Crash).expect([]);
    }
    world.expect_no_change(is_backing_off);
    // If the worker crashes later, its slot does not rest for the failed replacement.
    world.exited(1, Exit::Crash).expect([spawn(31, 0, 1)]);
}

#[test]
fn workers_that_ask_soon_after_ready_are_replaced_more_and_more_slowly() {
    let mut world = World::serving(1);
    world.recycle(1).expect([spawn(2, 0, 1)]);
    world.ready(2).exited(1, Exit::Clean).forget();
    for (worker, millis) in (2..).zip([100, 200, 400, 800, 1600, 3200, 6400]) {
        world.recycle(worker).recycle(worker).expect([]);
        let (pause, most) = (world.rest(), Duration::from_millis(millis));
        assert!(pause >= most / 2 && pause <= most, "{pause:?} of {most:?}");
        let slot = Slot(0);
        world.expect_changes([Change::BackingOff { slot, pause }]);
        // It serves on until then.
        world
            .at_time(world.now + pause)
            .expect([spawn(worker + 1, 0, 1)]);
        world.ready(worker + 1).expect([drain(worker)]);
        world.exited(worker, Exit::Clean);
    }
    world.at(600).recycle(9).expect([spawn(10, 0, 1)]);
}

#[test]
fn an_operator_waits_for_no_pause_and_causes_none() {
    let mut world = World::serving(1);
    for worker in 1..=9 {
        let asked = Event::Recycle(WorkerId(worker), Asker::Operator);
        world.event(asked).expect([spawn(worker + 1, 0, 1)]);
        world.ready(worker + 1).expect([drain(worker)]);
        world.exited(worker, Exit::Clean);
    }
    world.expect_no_change(is_backing_off);
    // The worker itself has asked twice, so it pauses.
    world.recycle(10).ready(11).exited(10, Exit::Clean);
    world.recycle(11).forget();
    let asked = Event::Recycle(WorkerId(11), Asker::Operator);
    world.event(asked).expect([spawn(12, 0, 1)]);
}

#[test]
fn a_worker_that_pauses_may_crash_leave_hang_or_be_reloaded() {
    let pausing = || {
        let mut world = World::serving(1);
        world.recycle(1).ready(2).exited(1, Exit::Clean).recycle(2);
        world.expect_changes([Change::BackingOff {
            slot: Slot(0),
            pause: world.rest(),
        }]);
        world.forget();
        world
    };
    pausing()
        .exited(2, Exit::Clean)
        .at(1)
        .expect([spawn(3, 0, 1)]);
    pausing().hung(2).at(1).expect([abort(2), kill(2)]);
    let mut world = pausing();
    world.event(Event::Reload).expect([spawn(3, 0, 2)]);
    world.at(1).ready(3).expect([drain(2)]);
    let mut world = pausing();
    world.event(Event::Stop(Stop::Drain)).forget();
    world.at(1).expect([]);
}

#[test]
fn a_reload_comes_first() {
    let mut world = World::serving(2);
    world.recycle(2).expect([spawn(3, 1, 1)]);
    // The replacement that starts stays, and is replaced by the reload in its turn.
    world.event(Event::Reload).expect([]);
    world.ready(3).expect([drain(2), spawn(4, 0, 2)]);
    world.recycle(1).expect([]);
    world.ready(4).expect([drain(1), spawn(5, 1, 2)]);
    world.ready(5).expect([drain(3)]);
    world.expect_changes([Change::ReloadFinished {
        generation: Generation(2),
    }]);
}

#[test]
fn an_upgrade_waits_for_a_replacement_that_starts() {
    let mut world = World::serving(1);
    world.recycle(1).expect([spawn(2, 0, 1)]);
    world.event(Event::Upgrade).expect([]);
    world.ready(2);
    world.expect_changes([Change::UpgradeStarted]);
}

#[test]
fn a_worker_that_asks_and_does_not_serve_is_not_replaced_twice() {
    let mut world = World::serving(1);
    world.recycle(1).expect([spawn(2, 0, 1)]);
    world.recycle(1).recycle(2).recycle(9).expect([]);
    world.ready(2).recycle(1).expect([drain(1)]);
}
