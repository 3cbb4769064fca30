use super::*;

#[test]
fn stop_drains_all_workers_then_closes_the_listeners_and_waits() {
    let mut world = World::new(2);
    world.ready(1).forget();
    world.event(Event::Stop(Stop::Drain)).expect([
        drain_last(1),
        drain_last(2),
        Action::CloseListeners,
    ]);
    world.expect_changes([Change::Draining]);
    world.ready(2).exited(2, Exit::Crash).expect([]);
    world
        .exited(1, Exit::Clean)
        .expect([finish(Outcome::Drained)]);
    world
        .event(Event::Stop(Stop::Now))
        .event(Event::Reload)
        .at(600)
        .expect([]);
    assert_eq!(world.phase(), Phase::Finished);
}

#[test]
fn a_worker_that_does_not_drain_is_killed_and_the_outcome_is_still_drained() {
    let mut world = World::serving(1);
    world.at(10).event(Event::Stop(Stop::Drain)).forget();
    world.at(40).expect([]);
    world.at(41).expect([kill(1)]);
    world
        .exited(1, Exit::Crash)
        .expect([finish(Outcome::Drained)]);
}

#[test]
fn a_second_stop_kills() {
    let (at_once, later) = (0, 1);
    let (drain, now) = (Event::Stop(Stop::Drain), Event::Stop(Stop::Now));
    for (first, second, when) in [
        (drain, drain, later),
        (drain, Event::Interrupt, at_once),
        (drain, now, at_once),
        (Event::Interrupt, Event::Interrupt, at_once),
        (Event::Interrupt, drain, later),
    ] {
        let mut world = World::serving(2);
        world.event(first).at(when).forget();
        world.event(second).expect([kill(1), kill(2)]);
        world.event(second).expect([]);
        world
            .exited(1, Exit::Crash)
            .exited(2, Exit::Crash)
            .expect([finish(Outcome::Stopped)]);
    }
}

#[test]
fn a_second_drain_within_a_second_repeats_the_first() {
    for first in [Event::Stop(Stop::Drain), Event::Interrupt] {
        let mut world = World::serving(1);
        world.at(7).event(first).forget();
        world.event(Event::Stop(Stop::Drain)).expect([]);
        world.at_time(world.now + Duration::from_millis(999));
        world.event(Event::Stop(Stop::Drain)).expect([]);
        // The time runs from the first one: further ones do not extend it.
        world
            .at(8)
            .event(Event::Stop(Stop::Drain))
            .expect([kill(1)]);
    }
}

#[test]
fn stop_now_kills_at_once() {
    let mut world = World::new(2);
    world.ready(1).event(Event::Reload).forget();
    world
        .event(Event::Stop(Stop::Now))
        .expect([kill(1), kill(2), Action::CloseListeners]);
    world
        .exited(1, Exit::Crash)
        .exited(2, Exit::Crash)
        .expect([finish(Outcome::Stopped)]);
}

#[test]
fn a_server_that_ends_because_of_an_error_keeps_its_outcome_when_stopped() {
    let mut world = World::serving(1);
    world
        .event(Event::HookRefused)
        .expect([drain_last(1), Action::CloseListeners]);
    // It drains already, so the first request changes nothing. The second one kills.
    world
        .event(Event::Stop(Stop::Drain))
        .event(Event::HookRefused)
        .expect([]);
    world.event(Event::Interrupt).expect([kill(1)]);
    world
        .exited(1, Exit::Crash)
        .expect([finish(Outcome::HookRefused)]);

    let mut world = World::serving(1);
    world.event(Event::HookRefused).forget();
    world.event(Event::Stop(Stop::Now)).expect([kill(1)]);
}

#[test]
fn the_first_reason_to_end_decides_the_outcome() {
    let mut world = World::serving(2);
    world
        .event(Event::Stop(Stop::Drain))
        .event(Event::HookRefused)
        .forget();
    world
        .exited(1, Exit::Misconfigured)
        .exited(2, Exit::Crash)
        .expect([finish(Outcome::Drained)]);
}

#[test]
fn a_slot_that_rests_is_not_respawned_at_the_end() {
    let mut world = World::serving(1);
    world.exited(1, Exit::Crash).exited(2, Exit::Crash).forget();
    world.event(Event::Stop(Stop::Drain));
    world.expect([Action::CloseListeners, finish(Outcome::Drained)]);
}

#[test]
fn a_reload_ends_with_the_server_and_both_its_workers_drain() {
    let mut world = World::serving(1);
    world.event(Event::Reload).forget();
    world.event(Event::Stop(Stop::Drain)).expect([
        drain_last(1),
        drain_last(2),
        Action::CloseListeners,
    ]);
    let (generation, why) = (Generation(2), Abandoned::Stopping);
    world.expect_changes([
        Change::ReloadAbandoned { generation, why },
        Change::Draining,
    ]);
}

#[test]
fn the_end_lets_more_workers_drain_than_a_reload_would() {
    let mut world = World::serving(1);
    world
        .event(Event::Reload)
        .ready(2)
        .event(Event::Reload)
        .ready(3)
        .forget();
    world.event(Event::Stop(Stop::Drain)).expect([
        drain_last(1),
        drain_last(2),
        drain_last(3),
        Action::CloseListeners,
    ]);
    let drains = |worker: &&worker::Worker| worker.is_draining();
    assert_eq!(world.watched.machine.workers().filter(drains).count(), 3);
}

#[test]
fn a_spawn_that_is_still_queued_is_removed_at_the_end() {
    let mut machine = Supervisor::new(Policy::default(), Time::ZERO);
    machine.handle(Event::Stop(Stop::Drain), Time::ZERO);
    let actions: Vec<_> = std::iter::from_fn(|| machine.next_action()).collect();
    let notified = Action::Notify(Change::Draining);
    assert_eq!(
        actions,
        [notified, Action::CloseListeners, finish(Outcome::Drained)]
    );
}

/// Connections may wait in its listeners.
#[test]
fn the_slot_of_a_worker_that_has_just_gone_is_adopted_before_the_drain() {
    let policy = limited(2, 0);
    let end = [adopt(0, 2), drain_last(2), Action::CloseListeners];
    for exit in [Exit::Crash, Exit::Misconfigured] {
        let mut world = World::with_serving(policy.clone());
        world.exited(1, exit).expect(end);
    }
    // It was to be adopted when the ask to end came.
    let mut world = World::serving(2);
    let machine = &mut world.watched.machine;
    machine.handle(Event::Exited(WorkerId(1), Exit::Crash), Time::ZERO);
    machine.handle(Event::Stop(Stop::Drain), Time::ZERO);
    let mut actions: Vec<_> = std::iter::from_fn(|| machine.next_action()).collect();
    actions.retain(|action| !matches!(action, Action::Notify(_)));
    assert_eq!(actions, end);
}

#[test]
fn nothing_is_resized_or_upgraded_at_the_end() {
    let mut world = World::serving(1);
    world.event(Event::Stop(Stop::Drain)).forget();
    world
        .event(Event::ResizeBy(Step::More))
        .event(Event::Upgrade)
        .event(Event::Reload);
    world.hung(1).expect([]).expect_no_change(|_| true);
}
