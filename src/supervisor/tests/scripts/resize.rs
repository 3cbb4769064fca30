use super::*;

#[test]
fn growth_spawns_and_shrinking_drains_and_adopts() {
    let mut world = World::serving(1);
    world
        .event(Event::ResizeBy(Step::More))
        .expect([adopt(1, 1), spawn(2, 1, 1)]);
    world.expect_changes([Change::Resized { workers: slots(2) }]);
    world.ready(2).expect([release(1, 1)]);
    world
        .event(Event::ResizeBy(Step::Fewer))
        .expect([drain(2), adopt(1, 1)]);
    world.expect_changes([Change::Resized { workers: slots(1) }]);
    world.exited(2, Exit::Clean).expect([]);
    world
        .event(Event::Resize(slots(2)))
        .expect([spawn(3, 1, 1)]);
    world.ready(3).expect([release(1, 1)]);
}

#[test]
fn the_number_of_slots_has_a_minimum_and_a_maximum() {
    let mut world = World::serving(1);
    world
        .event(Event::ResizeBy(Step::Fewer))
        .event(Event::Resize(slots(1)))
        .expect([]);
    world.expect_no_change(|_| true);
    world
        .event(Event::Resize(NonZeroU16::MAX))
        .expect_changes([Change::Resized {
            workers: MAX_WORKERS,
        }]);
    world
        .forget()
        .event(Event::ResizeBy(Step::More))
        .expect([])
        .expect_no_change(|_| true);
    assert_eq!(world.watched.machine.workers, MAX_WORKERS);
    let policy = Policy {
        workers: NonZeroU16::MAX,
        ..Policy::default()
    };
    assert_eq!(Supervisor::new(policy, Time::ZERO).workers, MAX_WORKERS);
}

#[test]
fn a_slot_that_rests_is_retired_without_a_spawn() {
    let mut world = World::serving(2);
    world.exited(2, Exit::Crash).exited(3, Exit::Crash).forget();
    world.event(Event::ResizeBy(Step::Fewer)).at(40).expect([]);
}

#[test]
fn a_worker_that_is_not_ready_is_retired_too() {
    let mut world = World::serving(1);
    world.event(Event::ResizeBy(Step::More)).forget();
    world.event(Event::ResizeBy(Step::Fewer)).expect([drain(2)]);
    world.ready(2).expect([]);
}

#[test]
fn a_slot_that_is_retired_in_mid_reload_loses_both_workers() {
    let mut world = World::serving(2);
    world.event(Event::Reload).ready(3).forget();
    world
        .event(Event::ResizeBy(Step::Fewer))
        .expect([drain(2), drain(4), adopt(1, 3)]);
    world.expect_changes([Change::ReloadFinished {
        generation: Generation(2),
    }]);
}

#[test]
fn a_slot_that_comes_in_mid_reload_gets_the_new_generation() {
    let mut world = World::serving(1);
    world.event(Event::Reload).forget();
    world
        .event(Event::ResizeBy(Step::More))
        .expect([adopt(1, 1), spawn(3, 1, 2)]);
}

#[test]
fn a_slot_with_many_killed_processes_spawns_no_worker() {
    let mut world = World::serving(2);
    for _ in 0..20 {
        world
            .event(Event::ResizeBy(Step::Fewer))
            .event(Event::ResizeBy(Step::More));
    }
    let live = |world: &World| world.watched.watch.live().count();
    assert_eq!(live(&world), 1 + policy::LEAVING_MAX);
    world.forget();
    world.exited(2, Exit::Clean).expect([spawn(10, 1, 1)]);
}

#[test]
fn the_last_worker_that_serves_is_retired_when_another_slot_serves() {
    let mut world = World::serving(2);
    world.exited(1, Exit::Crash).exited(3, Exit::Crash).forget();
    // Slot 0 rests. It is respawned at once, and worker 2 serves until then.
    world
        .event(Event::ResizeBy(Step::Fewer))
        .expect([spawn(4, 0, 1)]);
    world.ready(4).expect([drain(2), adopt(1, 4)]);
    world.exited(2, Exit::Clean).expect([]);
}

#[test]
fn the_last_worker_that_serves_stays_through_the_pauses_of_the_slot_that_remains() {
    let mut world = World::serving(2);
    world.exited(1, Exit::Crash).exited(3, Exit::Crash);
    world.event(Event::ResizeBy(Step::Fewer)).forget();
    world.exited(4, Exit::Crash).expect([]);
    world.expect_changes([Change::BackingOff {
        slot: Slot(0),
        pause: world.rest(),
    }]);
    world.at(1).expect([spawn(5, 0, 1)]);
    // The slot is wanted again, and its worker has served all the time.
    world.event(Event::ResizeBy(Step::More)).expect([]);
    world.ready(5).expect([release(0, 2)]);
}

#[test]
fn a_retired_slot_gets_no_other_worker() {
    for exit in [Exit::Clean, Exit::Crash] {
        let mut world = World::serving(2);
        world.exited(1, Exit::Crash).exited(3, Exit::Crash);
        world.event(Event::ResizeBy(Step::Fewer)).forget();
        world
            .exited(2, exit)
            .expect([])
            .expect_no_change(is_backing_off);
        world.ready(4).expect([adopt(1, 4)]);
    }
    // And none beside it.
    let mut world = World::serving(2);
    world.exited(1, Exit::Crash).event(Event::Reload).forget();
    world.event(Event::ResizeBy(Step::Fewer)).expect([drain(4)]);
}

#[test]
fn slots_that_an_earlier_master_has_left_are_adopted_and_not_taken_for_a_resize() {
    let mut machine = Supervisor::new(Policy::default(), Time::ZERO);
    machine.add_retired(3);
    machine.handle(Event::Ready(WorkerId(1)), Time::ZERO);
    let mut actions: Vec<_> = std::iter::from_fn(|| machine.next_action()).collect();
    let resized = Action::Notify(Change::Resized { workers: slots(1) });
    assert!(actions.contains(&resized), "{actions:?}");
    actions.retain(|action| !matches!(action, Action::Notify(_)));
    assert_eq!(actions, [spawn(1, 0, 1), adopt(1, 1), adopt(2, 1)]);
    // The next image has as many slots as its settings say.
    machine.handle(Event::Upgrade, Time::ZERO);
    machine.handle(Event::Ready(WorkerId(2)), Time::ZERO);
    assert_eq!(machine.snapshot().workers_after(slots(2)), slots(2));
}
