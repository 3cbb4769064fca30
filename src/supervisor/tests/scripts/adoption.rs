use super::*;
use crate::supervisor::policy::ADOPT_AGAIN;

#[test]
fn a_slot_without_a_worker_is_adopted_until_its_next_is_ready() {
    let mut world = World::serving(2);
    world
        .exited(2, Exit::Crash)
        .expect([adopt(1, 1), spawn(3, 1, 1)]);
    world.expect_changes([Change::Adopted {
        slot: Slot(1),
        by: WorkerId(1),
    }]);
    world.ready(3).expect([release(1, 1)]);
    world.expect_changes([Change::Released {
        slot: Slot(1),
        by: WorkerId(1),
    }]);
}

#[test]
fn the_worker_with_the_fewest_adopted_slots_adopts() {
    let mut world = World::serving(4);
    world
        .exited(4, Exit::Clean)
        .expect([adopt(3, 1), spawn(5, 3, 1)]);
    world
        .exited(3, Exit::Clean)
        .expect([adopt(2, 2), spawn(6, 2, 1)]);
    world.ready(6).expect([release(2, 2)]);
    world
        .exited(2, Exit::Clean)
        .expect([adopt(1, 6), spawn(7, 1, 1)]);
}

#[test]
fn when_an_adopter_ends_another_worker_adopts() {
    let mut world = World::serving(3);
    world
        .exited(3, Exit::Clean)
        .expect([adopt(2, 1), spawn(4, 2, 1)]);
    world
        .exited(1, Exit::Clean)
        .expect([adopt(0, 2), adopt(2, 2), spawn(5, 0, 1)]);
}

#[test]
fn when_an_adopter_is_replaced_another_worker_adopts() {
    let mut world = World::serving(2);
    world
        .event(Event::Resize(slots(1)))
        .expect([drain(2), adopt(1, 1)]);
    world
        .event(Event::Reload)
        .ready(3)
        .expect([spawn(3, 0, 2), drain(1), adopt(1, 3)]);
}

#[test]
fn a_slot_is_adopted_as_soon_as_a_worker_serves() {
    let mut world = World::serving(2);
    world.exited(1, Exit::Clean).exited(2, Exit::Clean);
    world.expect([adopt(0, 2), spawn(3, 0, 1), spawn(4, 1, 1)]);
    world.ready(4).expect([adopt(0, 4)]);
}

#[test]
fn a_slot_in_backoff_is_attended() {
    let mut world = World::serving(2);
    world.exited(2, Exit::Crash).exited(3, Exit::Crash);
    world.expect([adopt(1, 1), spawn(3, 1, 1)]);
    world.expect_changes([Change::BackingOff {
        slot: Slot(1),
        pause: world.rest(),
    }]);
}

#[test]
fn at_the_end_nothing_is_adopted() {
    let mut world = World::serving(2);
    world.event(Event::Stop(Stop::Drain)).forget();
    world
        .exited(2, Exit::Crash)
        .expect([])
        .expect_no_change(|_| true);
}

#[test]
fn when_a_worker_cannot_adopt_another_is_asked_and_later_all_again() {
    let mut world = World::serving(3);
    world
        .event(Event::Resize(slots(2)))
        .expect([drain(3), adopt(2, 1)]);
    let slot = Slot(2);
    let not_adopted = |by| Event::NotAdopted {
        slot,
        by: WorkerId(by),
    };
    world
        .event(not_adopted(1))
        .expect([release(2, 1), adopt(2, 2)]);
    let by = WorkerId(1);
    world.expect_changes([Change::NotAdopted { slot, by }]);
    // That worker gets no more messages for it, and a repeated report changes nothing.
    world.event(not_adopted(1)).expect([]);
    world.event(not_adopted(2)).expect([release(2, 2)]);
    let again = Time::ZERO + ADOPT_AGAIN;
    world.at_time(again).expect([adopt(2, 1)]);
    world
        .event(not_adopted(1))
        .expect([release(2, 1), adopt(2, 2)]);
    world.event(not_adopted(2)).expect([release(2, 2)]);
    // Its own worker starts and ends; the other workers have still just failed.
    world
        .event(Event::Resize(slots(3)))
        .ready(4)
        .expect([spawn(4, 2, 1)]);
    world
        .exited(4, Exit::Clean)
        .expect([spawn(5, 2, 1)])
        .at_time(again + ADOPT_AGAIN)
        .expect([adopt(2, 1)]);
}
