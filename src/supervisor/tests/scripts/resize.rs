use super::*;

#[test]
fn growth_spawns_and_shrinking_drains_and_adopts() {
    let mut world = World::serving(1);
    world
        .event(Event::ResizeBy(Step::More))
        .expect([adopt(1, 1), spawn(2, 1, 1)]);
    world.told([Change::Resized { workers: slots(2) }]);
    world.ready(2).expect([release(1, 1)]);
    world
        .event(Event::ResizeBy(Step::Fewer))
        .expect([drain(2), adopt(1, 1)]);
    world.told([Change::Resized { workers: slots(1) }]);
    world.exited(2, Exit::Clean).expect([]);
    world
        .event(Event::Resize(slots(2)))
        .expect([spawn(3, 1, 1)]);
    world.ready(3).expect([release(1, 1)]);
}

#[test]
fn there_is_a_least_and_a_most() {
    let mut world = World::serving(1);
    world
        .event(Event::ResizeBy(Step::Fewer))
        .event(Event::Resize(slots(1)))
        .expect([]);
    world.not_told(|_| true);
    world
        .event(Event::Resize(NonZeroU16::MAX))
        .told([Change::Resized {
            workers: MAX_WORKERS,
        }]);
    world
        .forget()
        .event(Event::ResizeBy(Step::More))
        .expect([])
        .not_told(|_| true);
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
    world.told([Change::ReloadFinished {
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
fn processes_the_kernel_does_not_let_go_of_keep_a_slot_from_growing_more() {
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
    // Slot 0 rests; it is started at once, and worker 2 serves until then.
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
    world.told([Change::BackingOff {
        slot: Slot(0),
        pause: world.rest(),
    }]);
    world.at(1).expect([spawn(5, 0, 1)]);
    // It is wanted again, and has been serving all the time.
    world.event(Event::ResizeBy(Step::More)).expect([]);
    world.ready(5).expect([release(0, 2)]);
}

#[test]
fn nobody_comes_after_the_last_worker_of_a_retired_slot() {
    for exit in [Exit::Clean, Exit::Crash] {
        let mut world = World::serving(2);
        world.exited(1, Exit::Crash).exited(3, Exit::Crash);
        world.event(Event::ResizeBy(Step::Fewer)).forget();
        world.exited(2, exit).expect([]).not_told(is_backing_off);
        world.ready(4).expect([adopt(1, 4)]);
    }
    // Nor beside it.
    let mut world = World::serving(2);
    world.exited(1, Exit::Crash).event(Event::Reload).forget();
    world.event(Event::ResizeBy(Step::Fewer)).expect([drain(4)]);
}
