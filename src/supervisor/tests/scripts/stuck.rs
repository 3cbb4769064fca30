//! Killed workers that the kernel does not end.

use super::*;
use crate::supervisor::policy::LEAVING_MAX;
use crate::supervisor::tests::scripts::upgrade::canary;

fn is_stuck(worker: u64, slot: u16) -> Change {
    Change::WorkerStuck(WorkerId(worker), Slot(slot), Generation(1))
}

/// Its worker hangs at 5 s, is killed at 6 s and counts as stuck at 11 s.
fn hang(world: &mut World, worker: u64) {
    world.at(5).hung(worker).at(10).forget();
}

#[test]
fn a_stuck_worker_is_a_crash_and_another_one_starts_in_its_slot() {
    let mut world = World::serving(1);
    hang(&mut world, 1);
    world.at(11).expect([spawn(2, 0, 1)]);
    world.expect_changes([is_stuck(1, 0)]);
    world.ready(2).at(1_000).expect([]);
    world.exited(1, Exit::Crash).expect([]);

    let mut world = World::with_serving(limited(1, 0));
    hang(&mut world, 1);
    let outcome = Outcome::CrashLimit {
        crashes: 1,
        per: Duration::from_secs(60),
    };
    world
        .at(11)
        .expect([Action::CloseListeners, finish(outcome)]);
}

#[test]
fn a_reload_ends_without_a_stuck_worker() {
    let mut world = World::serving(2);
    hang(&mut world, 2);
    world.event(Event::Reload).ready(3).forget();
    world.at(11).expect([spawn(4, 1, 2)]);
    let generation = Generation(2);
    world
        .ready(4)
        .expect_changes([is_stuck(2, 1), Change::ReloadFinished { generation }]);
}

#[test]
fn a_successor_holds_the_slot_of_a_stuck_worker() {
    let mut world = World::serving(1);
    world.at(5).event(Event::Reload).hung(1).at(10).forget();
    world.at(11).expect([]);
    world.expect_changes([is_stuck(1, 0)]);
    let generation = Generation(2);
    world
        .ready(2)
        .expect_changes([Change::ReloadFinished { generation }]);
    world.expect([]);
}

#[test]
fn the_end_of_the_server_does_not_wait_for_a_stuck_worker() {
    let mut world = World::serving(2);
    world.event(Event::Stop(Stop::Drain)).forget();
    world.exited(1, Exit::Clean).at(30).expect([]);
    world.at(31).expect([kill(2)]);
    world.at(35).expect([]);
    world.at(36).expect([finish(Outcome::Drained)]);

    let mut world = World::serving(1);
    hang(&mut world, 1);
    world.at(11).forget();
    world
        .event(Event::Stop(Stop::Now))
        .expect([kill(2), Action::CloseListeners]);
    world
        .exited(2, Exit::Crash)
        .expect([finish(Outcome::Stopped)]);
}

#[test]
fn an_upgrade_does_not_wait_for_a_stuck_canary() {
    let mut world = World::serving(1);
    world.event(Event::Upgrade).event(Event::Upgrade).forget();
    world.at(60).expect([kill(2)]);
    world.event(Event::Upgrade).at(64).expect([]);
    world.at(65).expect([canary(3, 3)]);
    world.ready(3).expect([Action::ExecInPlace]);
    world.resume(1).exited(2, Exit::Crash).forget();
    assert_eq!(world.phase(), Phase::Serving);
}

#[test]
fn a_slot_with_many_stuck_workers_waits_until_one_is_gone() {
    let mut world = World::with_serving(limited(1, 100));
    let max = u64::try_from(LEAVING_MAX).expect("a small number");
    for worker in 1..=max {
        world.hung(worker).at(worker * 50).ready(worker + 1);
    }
    world.forget().event(Event::Upgrade).at(10_000).expect([]);
    let (upgraded, respawned) = (canary(max + 1, 2), spawn(max + 2, 0, 1));
    world.exited(3, Exit::Crash).expect([upgraded, respawned]);
}
