use super::*;

pub(super) fn canary(worker: u64, generation: u32) -> Action {
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
        .expect_changes([Change::UpgradeStarted]);
    world.event(Event::Upgrade).expect([]);
    world
        .ready(2)
        .expect([Action::ExecInPlace])
        .ready(2)
        .expect([]);
}

#[test]
fn a_canary_that_fails_changes_nothing() {
    for (fails, why) in [
        (Event::Exited(WorkerId(2), Exit::Crash), Abandoned::Died),
        (
            Event::Exited(WorkerId(2), Exit::Misconfigured),
            Abandoned::Misconfigured,
        ),
        (Event::SpawnFailed(WorkerId(2)), Abandoned::NotSpawned),
    ] {
        let mut world = World::serving(1);
        world.event(Event::Upgrade).forget();
        world
            .event(fails)
            .expect([])
            .expect_changes([abandoned(why)]);
        world
            .spawn_failed(2)
            .ready(2)
            .exited(2, Exit::Crash)
            .expect([])
            .expect_no_change(|_| true);
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
        .expect_changes([abandoned(Abandoned::NotReadyInTime)]);
    world.ready(2).event(Event::Upgrade).expect([]);
    world.exited(2, Exit::Crash).expect([canary(3, 3)]);
}

#[test]
fn an_upgrade_that_cannot_be_executed_drains_its_canary() {
    for (event, why) in [
        (Event::UpgradeFailed, Abandoned::ExecFailed),
        (Event::UpgradeTried, Abandoned::DryRun),
        (Event::CanaryIncompatible, Abandoned::Incompatible),
    ] {
        let mut world = World::serving(1);
        world.event(Event::Upgrade).ready(2).forget();
        world
            .event(event)
            .expect([drain(2)])
            .expect_changes([abandoned(why)]);
        world.at(31).expect([kill(2)]);
        world.exited(2, Exit::Crash).expect([]);
    }
}

#[test]
fn other_actions_come_before_the_exec() {
    let mut world = World::serving(2);
    world.event(Event::Upgrade).forget();
    let machine = &mut world.watched.machine;
    machine.handle(Event::Ready(WorkerId(3)), Time::ZERO);
    machine.handle(Event::Exited(WorkerId(2), Exit::Crash), Time::ZERO);
    let actions: Vec<_> = std::iter::from_fn(|| machine.next_action()).collect();
    assert!(actions.contains(&spawn(4, 1, 1)), "{actions:?}");
    assert_eq!(actions.last(), Some(&Action::ExecInPlace));
}

/// A server whose canary, worker `canary`, is ready: the master is about to exec.
fn upgrading(world: &mut World, canary: u64) {
    world.event(Event::Upgrade).ready(canary);
    assert_eq!(world.actions.last(), Some(&Action::ExecInPlace));
    world.forget();
}

#[test]
fn the_next_image_goes_on_with_the_canary_and_reloads_the_other_slots() {
    let mut world = World::serving(2);
    upgrading(&mut world, 3);
    world.resume(2).expect([drain(1), spawn(4, 1, 2)]);
    let generation = Generation(2);
    world.expect_changes([
        Change::UpgradeFinished,
        Change::WorkerDraining(WorkerId(1), Slot(0), Generation::FIRST),
        Change::ReloadStarted { generation },
    ]);
    world.ready(4).expect([drain(2)]);
    world.expect_changes([Change::ReloadFinished { generation }]);
    world
        .exited(3, Exit::Crash)
        .expect([adopt(0, 4), spawn(5, 0, 2)]);
}

#[test]
fn the_next_images_upgrade_is_an_upgrade_like_the_first() {
    let mut world = World::serving(1);
    upgrading(&mut world, 2);
    world.resume(1).exited(1, Exit::Clean).forget();
    upgrading(&mut world, 3);
    world.resume(1).expect([drain(2)]);
    assert_eq!(world.phase(), Phase::Serving);
}

#[test]
fn deadlines_crashes_and_pending_commands_cross_an_upgrade() {
    let limit = CrashLimit {
        max: 1,
        ..CrashLimit::default()
    };
    let mut world = World::with_serving(Policy {
        workers: slots(2),
        crash_limit: limit,
        ..Policy::default()
    });
    world.event(Event::Reload).ready(3).ready(4).forget();
    world.exited(3, Exit::Crash).ready(5);
    upgrading(&mut world, 6);
    world.event(Event::Reload);
    world.resume(2).forget().ready(7);
    world.expect_changes([
        Change::ReloadFinished {
            generation: Generation(3),
        },
        Change::ReloadStarted {
            generation: Generation(4),
        },
    ]);
    world.at(30).forget().at(31);
    assert!(world.actions.contains(&kill(1)), "its drain began long ago");
    world.exited(6, Exit::Crash);
    let crashes = 2;
    let outcome = Outcome::CrashLimit {
        crashes,
        per: limit.per,
    };
    assert!(matches!(world.phase(), Phase::Draining { outcome: of, .. } if of == outcome));
}

#[test]
fn the_next_images_policy_sizes_a_server_that_was_not_resized() {
    let mut world = World::serving(2);
    upgrading(&mut world, 3);
    world.resume(1).expect([drain(1), drain(2), adopt(1, 3)]);
    world.expect_changes([Change::Resized { workers: slots(1) }]);

    let mut world = World::serving(1);
    world.event(Event::ResizeBy(Step::More)).ready(2);
    upgrading(&mut world, 3);
    world.resume(1).expect([drain(1), spawn(4, 1, 2)]);
    world.expect_no_change(|change| matches!(change, Change::Resized { .. }));
}

#[test]
fn a_vacant_slot_gets_the_canary_in_the_next_image() {
    let mut world = World::serving(2);
    world.exited(1, Exit::Crash).exited(3, Exit::Crash);
    assert_eq!(world.phase(), Phase::Serving);
    upgrading(&mut world, 4);
    world.resume(2).expect([release(0, 2), spawn(5, 1, 2)]);
}

#[test]
fn a_canary_that_ends_before_the_exec_abandons_the_upgrade() {
    let mut world = World::serving(1);
    world.event(Event::Upgrade).forget();
    let machine = &mut world.watched.machine;
    machine.handle(Event::Ready(WorkerId(2)), Time::ZERO);
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
    world.exited(3, Exit::Crash).expect([spawn(4, 0, 4)]);
}

#[test]
fn a_reload_does_not_wait_for_the_canary_of_an_abandoned_upgrade() {
    for (asked, after_canary) in [
        (&[Event::Reload][..], &[][..]),
        (&[Event::Upgrade, Event::Reload], &[canary(4, 4)]),
        (&[Event::Reload, Event::Upgrade], &[canary(4, 4)]),
    ] {
        let mut world = World::serving(1);
        upgrading(&mut world, 2);
        world.event(Event::UpgradeFailed).expect([drain(2)]);
        for event in asked {
            world.event(*event);
        }
        world.expect([spawn(3, 0, 3)]).ready(3).expect([drain(1)]);
        world.exited(2, Exit::Clean);
        assert_eq!(world.actions, after_canary, "{asked:?}");
    }
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
    world.event(Event::Stop(Stop::Drain)).expect([
        drain_last(1),
        drain_last(2),
        Action::CloseListeners,
    ]);
    world.expect_changes([abandoned(Abandoned::Stopping), Change::Draining]);
    world.exited(1, Exit::Clean).ready(2).expect([]);
    world
        .exited(2, Exit::Clean)
        .expect([finish(Outcome::Drained)]);
}
