use super::*;

fn canary(worker: u64, generation: u32) -> Action {
    let generation = Generation(generation);
    Action::StartCanary {
        worker: WorkerId(worker),
        slot: Slot(0),
        generation,
    }
}

fn abandoned(why: Abandoned) -> Change {
    Change::UpgradeAbandoned { why }
}

#[test]
fn the_master_becomes_the_new_image_once_its_canary_is_ready() {
    let mut world = World::serving(1);
    world
        .event(Event::Upgrade)
        .expect([canary(2, 2)])
        .told([Change::UpgradeStarted]);
    world.event(Event::Upgrade).expect([]);
    world
        .event(Event::CanaryReady)
        .expect([Action::ExecInPlace]);
    world.ready(2).event(Event::CanaryReady).expect([]);
}

#[test]
fn a_canary_that_fails_changes_nothing() {
    for (fails, why) in [
        (
            Event::CanaryFailed(Abandoned::Misconfigured),
            Abandoned::Misconfigured,
        ),
        (Event::Exited(WorkerId(2), Exit::Crash), Abandoned::Died),
        (
            Event::Exited(WorkerId(2), Exit::Misconfigured),
            Abandoned::Misconfigured,
        ),
        (Event::SpawnFailed(WorkerId(2)), Abandoned::NotSpawned),
    ] {
        let mut world = World::serving(1);
        world.event(Event::Upgrade).forget();
        world.event(fails).expect([]).told([abandoned(why)]);
        world
            .event(Event::CanaryFailed(why))
            .exited(2, Exit::Crash)
            .expect([])
            .not_told(|_| true);
        assert_eq!(world.phase(), Phase::Serving);
    }
}

#[test]
fn a_canary_that_is_late_is_killed_and_the_next_waits_until_it_is_gone() {
    let mut world = World::serving(1);
    world.event(Event::Upgrade).forget();
    world
        .at(60)
        .expect([kill(2)])
        .told([abandoned(Abandoned::NotReadyInTime)]);
    world
        .event(Event::CanaryReady)
        .event(Event::Upgrade)
        .expect([]);
    world.exited(2, Exit::Crash).expect([canary(3, 3)]);
}

#[test]
fn an_upgrade_that_cannot_be_executed_drains_its_canary() {
    let mut world = World::serving(1);
    world.event(Event::Upgrade).ready(2).forget();
    world
        .event(Event::UpgradeFailed)
        .expect([drain(2)])
        .told([abandoned(Abandoned::ExecFailed)]);
    world.at(31).expect([kill(2)]);
    world.exited(2, Exit::Crash).expect([]);
}

#[test]
fn a_canary_that_dies_in_its_last_moment_takes_the_upgrade_with_it() {
    let mut world = World::serving(1);
    world.event(Event::Upgrade).forget();
    let machine = &mut world.watched.machine;
    machine.handle(Event::CanaryReady, Time::ZERO);
    machine.handle(Event::Exited(WorkerId(2), Exit::Crash), Time::ZERO);
    let actions: Vec<_> = std::iter::from_fn(|| machine.next_action()).collect();
    assert!(!actions.contains(&Action::ExecInPlace), "{actions:?}");
}

#[test]
fn a_reload_waits_for_an_upgrade_and_an_upgrade_for_a_reload() {
    let mut world = World::serving(1);
    world
        .event(Event::Reload)
        .event(Event::Upgrade)
        .event(Event::Upgrade);
    world.expect([spawn(2, 0, 2)]);
    world.ready(2).expect([drain(1), canary(3, 3)]);
    world.event(Event::Reload).event(Event::Reload).expect([]);
    world
        .event(Event::CanaryFailed(Abandoned::Died))
        .expect([spawn(4, 0, 4)]);
}

#[test]
fn crashes_and_resizes_go_on_during_an_upgrade() {
    let mut world = World::serving(1);
    world.event(Event::Upgrade).forget();
    world.exited(1, Exit::Crash).expect([spawn(3, 0, 1)]);
    world
        .event(Event::ResizeBy(Step::More))
        .expect([spawn(4, 1, 1)]);
    world.hung(2).expect([]);
}

#[test]
fn the_end_of_the_server_drains_the_canary_and_abandons_the_upgrade() {
    let mut world = World::serving(1);
    world.event(Event::Upgrade).forget();
    world
        .event(Event::Stop(Stop::Drain))
        .expect([drain(1), drain(2), Action::CloseListeners]);
    world.told([abandoned(Abandoned::Stopping), Change::Draining]);
    world
        .exited(1, Exit::Clean)
        .event(Event::CanaryReady)
        .expect([]);
    world
        .event(Event::CanaryFailed(Abandoned::Died))
        .expect([finish(Outcome::Drained)]);
}
