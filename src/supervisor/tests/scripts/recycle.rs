//! Workers that have served their share.

use super::*;

#[test]
fn a_spent_worker_serves_until_its_replacement_is_ready() {
    let mut world = World::serving(2);
    world.spent(1).expect([spawn(3, 0, 1)]);
    world.ready(3).expect([drain(1)]);
    world.exited(1, Exit::Clean).expect([]);
    world.not_told(is_backing_off);
}

#[test]
fn they_are_replaced_one_after_the_other() {
    let mut world = World::serving(3);
    world.spent(2).spent(1).spent(3).expect([spawn(4, 1, 1)]);
    world.ready(4).expect([drain(2), spawn(5, 0, 1)]);
    world.ready(5).expect([drain(1), spawn(6, 2, 1)]);
    world.ready(6).expect([drain(3)]);
}

/// Its cause may be there for the next one too.
#[test]
fn after_a_failed_replacement_the_spent_one_serves_until_it_asks_again() {
    let mut world = World::serving(1);
    world.spent(1).expect([spawn(2, 0, 1)]);
    world.exited(2, Exit::Misconfigured).expect([]);
    assert_eq!(world.phase(), Phase::Serving);
    world.at(3600).expect([]);
    world.spent(1).expect([spawn(3, 0, 1)]);
    world.at(3600 + 60).expect([kill(3)]);
    world.exited(3, Exit::Crash).expect([]);
    world.spent(1).expect([spawn(4, 0, 1)]);
    world.ready(4).expect([drain(1)]);
}

#[test]
fn replacements_that_always_fail_end_no_server_that_serves() {
    let mut world = World::serving(1);
    for new in 2..=30 {
        world.spent(1).expect([spawn(new, 0, 1)]);
        world.exited(new, Exit::Crash).expect([]);
    }
    world.not_told(is_backing_off);
    // Nor does the slot pay for it when the spent worker falls.
    world.exited(1, Exit::Crash).expect([spawn(31, 0, 1)]);
}

#[test]
fn a_reload_comes_first() {
    let mut world = World::serving(2);
    world.spent(2).expect([spawn(3, 1, 1)]);
    // The replacement on its way is let be, and takes its turn in the reload.
    world.event(Event::Reload).expect([]);
    world.ready(3).expect([drain(2), spawn(4, 0, 2)]);
    world.spent(1).expect([]);
    world.ready(4).expect([drain(1), spawn(5, 1, 2)]);
    world.ready(5).expect([drain(3)]);
    world.told([Change::ReloadFinished {
        generation: Generation(2),
    }]);
}

#[test]
fn an_upgrade_waits_for_a_replacement_on_its_way() {
    let mut world = World::serving(1);
    world.spent(1).expect([spawn(2, 0, 1)]);
    world.event(Event::Upgrade).expect([]);
    world.ready(2);
    world.told([Change::UpgradeStarted]);
}

#[test]
fn one_that_does_not_serve_is_not_replaced_twice() {
    let mut world = World::serving(1);
    world.spent(1).expect([spawn(2, 0, 1)]);
    world.spent(1).spent(2).spent(9).expect([]);
    world.ready(2).spent(1).expect([drain(1)]);
}
