use super::*;

#[test]
fn a_reload_is_checked_before_a_worker_is_touched() {
    let mut world = World::serving(2);
    world
        .event(Event::ReloadAsked)
        .expect([Action::CheckReload]);
    world.event(Event::Reload).expect([spawn(3, 0, 2)]);
}

#[test]
fn one_check_is_for_all_that_asked_before_it() {
    let mut world = World::serving(1);
    let machine = &mut world.watched.machine;
    for _ in 0..3 {
        machine.handle(Event::ReloadAsked, Time::ZERO);
    }
    assert_eq!(machine.next_action(), Some(Action::CheckReload));
    assert_eq!(machine.next_action(), None);
    machine.handle(Event::ReloadAsked, Time::ZERO);
    assert_eq!(
        machine.next_action(),
        Some(Action::CheckReload),
        "a later one"
    );
}

#[test]
fn a_refused_reload_changes_nothing_and_is_notified() {
    let mut world = World::serving(1);
    world
        .event(Event::ReloadAsked)
        .event(Event::ReloadRefused)
        .expect([Action::CheckReload]);
    let (generation, why) = (Generation(2), Abandoned::Refused);
    world.expect_changes([
        Change::ReloadStarted { generation },
        Change::ReloadAbandoned { generation, why },
    ]);
    assert_eq!(world.phase(), Phase::Serving);
    world.event(Event::Reload).expect([spawn(2, 0, 2)]);
}

#[test]
fn a_refused_reload_does_not_end_the_one_that_runs() {
    let mut world = World::serving(1);
    world.event(Event::Reload).expect([spawn(2, 0, 2)]);
    world
        .event(Event::ReloadRefused)
        .ready(2)
        .expect([drain(1)]);
    let generation = Generation(2);
    world.expect_changes([Change::ReloadFinished { generation }]);
}

#[test]
fn a_server_that_ends_checks_no_reload() {
    let mut world = World::serving(1);
    world.event(Event::Stop(Stop::Drain)).forget();
    world
        .event(Event::ReloadAsked)
        .event(Event::ReloadRefused)
        .expect([]);
    world.expect_no_change(|_| true);
}

#[test]
fn slot_by_slot_the_new_worker_is_ready_before_the_old_one_drains() {
    let mut world = World::serving(2);
    world.event(Event::Reload).expect([spawn(3, 0, 2)]);
    world.ready(3).expect([drain(1), spawn(4, 1, 2)]);
    world.ready(4).expect([drain(2)]);
    let generation = Generation(2);
    world.expect_changes([
        Change::ReloadStarted { generation },
        Change::ReloadFinished { generation },
    ]);
    world
        .exited(1, Exit::Clean)
        .exited(2, Exit::Crash)
        .expect([]);
    assert_eq!(world.phase(), Phase::Serving);
}

#[test]
fn a_batch_is_replaced_at_a_time() {
    let mut world = World::with_serving(Policy {
        workers: slots(3),
        reload_batch: slots(2),
        ..Policy::default()
    });
    world
        .event(Event::Reload)
        .expect([spawn(4, 0, 2), spawn(5, 1, 2)]);
    world.ready(5).expect([drain(2), spawn(6, 2, 2)]);
}

#[test]
fn a_worker_that_does_not_drain_in_time_is_killed() {
    let mut world = World::serving(1);
    world
        .event(Event::Reload)
        .ready(2)
        .expect([spawn(2, 0, 2), drain(1)]);
    world.at(30).expect([]);
    world.at(31).expect([kill(1)]);
    world.ready(1).exited(1, Exit::Crash).expect([]);
}

#[test]
fn a_reload_waits_where_many_workers_drain() {
    let mut world = World::serving(1);
    for worker in 2..=5 {
        world.event(Event::Reload).ready(worker);
    }
    world.forget().event(Event::Reload).expect([]);
    world.exited(3, Exit::Clean).expect([spawn(6, 0, 6)]);
    world.ready(6).expect([drain(5)]);
}

#[test]
fn a_reload_that_waits_goes_on_at_the_drain_deadline() {
    let mut world = World::serving(1);
    for worker in 2..=5 {
        world.event(Event::Reload).ready(worker);
    }
    world.event(Event::Reload).forget();
    world
        .at(31)
        .expect([kill(1), kill(2), kill(3), kill(4), spawn(6, 0, 6)]);
}

#[test]
fn a_new_worker_that_ends_leaves_the_old_one_serving_and_is_no_crash() {
    let policy = limited(2, 0);
    let generation = Generation(2);
    for (exit, why) in [
        (Event::Exited(WorkerId(4), Exit::Crash), Abandoned::Died),
        (Event::Exited(WorkerId(4), Exit::Clean), Abandoned::Died),
        (
            Event::Exited(WorkerId(4), Exit::Misconfigured),
            Abandoned::Misconfigured,
        ),
        (Event::SpawnFailed(WorkerId(4)), Abandoned::NotSpawned),
    ] {
        let mut world = World::with_serving(policy.clone());
        world.event(Event::Reload).ready(3).forget();
        // The first slot keeps its new worker.
        world
            .event(exit)
            .expect([])
            .expect_changes([Change::ReloadAbandoned { generation, why }]);
        assert_eq!(world.phase(), Phase::Serving);
        world.event(Event::Reload).expect([spawn(5, 1, 3)]);
    }
}

#[test]
fn a_new_worker_that_is_late_is_killed_and_the_old_one_stays() {
    let mut world = World::serving(1);
    world.event(Event::Reload).forget();
    let (generation, why) = (Generation(2), Abandoned::NotReadyInTime);
    world
        .at(60)
        .expect([kill(2)])
        .expect_changes([Change::ReloadAbandoned { generation, why }]);
    world.exited(2, Exit::Crash).ready(1).expect([]);
}

#[test]
fn an_abandoned_reload_drains_the_other_new_workers() {
    let mut world = World::with_serving(Policy {
        workers: slots(2),
        reload_batch: slots(2),
        ..Policy::default()
    });
    world.event(Event::Reload).forget();
    world.exited(3, Exit::Crash).expect([drain(4)]);
}

#[test]
fn a_reload_during_a_reload_raises_its_target() {
    let mut world = World::serving(2);
    world
        .event(Event::Reload)
        .event(Event::Reload)
        .expect([spawn(3, 0, 2)]);
    world.ready(3).expect([drain(1), spawn(4, 1, 3)]);
    world
        .ready(4)
        .ready(5)
        .expect([drain(2), spawn(5, 0, 3), drain(3)]);
    world.expect_changes([Change::ReloadFinished {
        generation: Generation(3),
    }]);
}

#[test]
fn reloads_without_end_replace_every_worker() {
    let mut world = World::serving(3);
    world.event(Event::Reload).expect([spawn(4, 0, 2)]);
    for ((new, generation), (old, next)) in (4..).zip(3..).zip([(1, 1), (2, 2), (3, 0), (4, 1)]) {
        world.event(Event::Reload).ready(new);
        world.expect([drain(old), spawn(new + 1, next, generation)]);
    }
}

#[test]
fn a_failure_of_an_earlier_target_does_not_abandon_the_reload() {
    let mut world = World::serving(1);
    world.event(Event::Reload).event(Event::Reload).forget();
    world.exited(2, Exit::Crash).expect([spawn(3, 0, 3)]);
    world.ready(3).expect_changes([Change::ReloadFinished {
        generation: Generation(3),
    }]);
}

#[test]
fn a_slot_in_backoff_is_reloaded_at_once() {
    let mut world = World::serving(2);
    world.exited(2, Exit::Crash).exited(3, Exit::Crash).forget();
    world
        .event(Event::Reload)
        .expect([spawn(4, 1, 2), spawn(5, 0, 2)]);
    // If the new generation fails too, the slot rests and starts the old one again.
    world.exited(4, Exit::Crash).expect([drain(5)]);
    world.at(1).expect([spawn(6, 1, 1)]);
}

#[test]
fn alone_in_its_slot_a_new_worker_that_is_late_abandons_the_reload_too() {
    let mut world = World::serving(2);
    world.exited(2, Exit::Crash).exited(3, Exit::Crash);
    world
        .event(Event::Reload)
        .ready(5)
        .exited(1, Exit::Clean)
        .forget();
    world.at(60).expect([kill(4)]);
    let (generation, why) = (Generation(2), Abandoned::NotReadyInTime);
    world.expect_changes([Change::ReloadAbandoned { generation, why }]);
    // A worker of the generation was ready in the first slot.
    world.at(62).expect([spawn(6, 1, 2)]);
}

#[test]
fn a_crash_during_a_reload_is_replaced_by_the_new_generation() {
    let mut world = World::serving(3);
    world.event(Event::Reload).forget();
    world
        .exited(3, Exit::Crash)
        .expect([adopt(2, 1), spawn(5, 2, 2)]);
    world
        .exited(1, Exit::Crash)
        .expect([adopt(0, 2), adopt(2, 2), spawn(6, 1, 2)]);
}

#[test]
fn a_crash_after_an_abandoned_reload_is_replaced_by_the_newest_that_was_ready() {
    let mut world = World::serving(3);
    world
        .event(Event::Reload)
        .ready(4)
        .exited(5, Exit::Crash)
        .forget();
    world
        .exited(3, Exit::Crash)
        .expect([adopt(2, 4), spawn(6, 2, 2)]);

    let mut world = World::serving(1);
    world.event(Event::Reload).exited(2, Exit::Crash).forget();
    world.exited(1, Exit::Crash).expect([spawn(3, 0, 1)]);
}
