//! All small worlds: two slots, and every order of events that is possible.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::num::NonZeroU16;

use crate::id::WorkerId;
use crate::supervisor::tests::crash_limit;
use crate::supervisor::tests::machine::{Machine, Watched};
use crate::supervisor::tests::watch::{Breach, Life, Role, rule};
use crate::supervisor::*;

/// The number of events in an order.
#[derive(Clone, Copy)]
pub(super) struct Depth(pub(super) u8);

/// A debug build takes seconds for this depth, and a release build can go deeper.
const DEPTH: Depth = Depth(if cfg!(debug_assertions) { 5 } else { 6 });

/// What `explore` has explored.
#[derive(Debug, Default)]
pub(super) struct Explored {
    /// Different states of machine and watch.
    worlds: u64,
    /// Events that were handled.
    steps: u64,
    /// Upgrades.
    resumed: u64,
}

/// Two slots. Few crashes end the server, so that a short order of events reaches that too.
pub(super) fn policy() -> Policy {
    Policy {
        workers: NonZeroU16::new(2).expect("two is not zero"),
        crash_limit: crash_limit(2),
        ..Policy::default()
    }
}

/// Gives `machine` every order of `depth` possible events. A world that was reached before with as
/// many events left is not explored again.
pub(super) fn explore<M: Machine + Hash>(
    machine: M,
    policy: &Policy,
    depth: Depth,
) -> Result<Explored, Breach> {
    let mut world = Watched::new(machine, policy);
    world
        .start()
        .map_err(|breach| format!("at the start: {breach}"))?;
    let mut explorer = Explorer::default();
    explorer.explore(&world, Time::ZERO, depth)?;
    Ok(explorer.explored)
}

#[derive(Default)]
struct Explorer {
    /// How deep each world was explored, by its hash.
    known: HashMap<u64, u8>,
    path: Vec<Move>,
    explored: Explored,
}

/// What may happen next.
#[derive(Clone, Copy, Debug)]
enum Move {
    Event(Event),
    /// Nothing, until the next deadline.
    Wait,
}

impl Explorer {
    /// Goes on in the next image, with the same settings and with others.
    fn upgrade<M: Machine + Hash>(
        &mut self,
        world: &Watched<M>,
        now: Time,
        depth: Depth,
    ) -> Result<(), Breach> {
        for workers in [2, 1, 4] {
            let mut world = world.clone();
            let policy = Policy {
                workers: NonZeroU16::new(workers).expect("not zero"),
                ..world.watch.policy.clone()
            };
            world.resume(&policy, now)?;
            self.explored.resumed += 1;
            comes_to_rest(&mut world.clone(), now)?;
            if workers == 2 {
                self.explore(&world, now, depth)?;
            }
        }
        Ok(())
    }

    fn explore<M: Machine + Hash>(
        &mut self,
        world: &Watched<M>,
        now: Time,
        Depth(depth): Depth,
    ) -> Result<(), Breach> {
        if depth == 0 {
            self.explored.worlds += 1;
            return Ok(());
        }
        let mut hasher = DefaultHasher::new();
        (world, now).hash(&mut hasher);
        match self.known.insert(hasher.finish(), depth) {
            Some(before) if before >= depth => {
                self.known.insert(hasher.finish(), before);
                return Ok(());
            }
            Some(_) => {}
            None => self.explored.worlds += 1,
        }
        for next in moves(world) {
            self.path.push(next);
            self.explored.steps += 1;
            let (mut world, mut now) = (world.clone(), now);
            let taken = match next {
                Move::Event(event) => world.handle(event, now),
                Move::Wait => {
                    now = world.machine.next_deadline().unwrap_or(now);
                    world.handle_timeout(now)
                }
            };
            let taken = taken.map_err(|breach| format!("{breach}\nafter {:?}", self.path))?;
            if taken.contains(&Action::ExecInPlace) {
                self.upgrade(&world, now, Depth(depth - 1))
                    .map_err(|breach| format!("{breach}\nin the next image"))?;
            }
            self.explore(&world, now, Depth(depth - 1))?;
            self.path.pop();
        }
        Ok(())
    }
}

/// Lets every process start and end without faults. Then every slot must be served.
fn comes_to_rest<M: Machine>(world: &mut Watched<M>, now: Time) -> Result<(), Breach> {
    let mut now = now;
    for _ in 0..100 {
        let next = world.watch.live().find_map(|(id, seen)| match seen.life {
            Life::Starting => Some(Event::Ready(id)),
            Life::Serving => None,
            Life::Draining | Life::Killed | Life::KilledLeaving | Life::Stuck => {
                Some(Event::Exited(id, Exit::Clean))
            }
        });
        match (next, world.machine.next_deadline()) {
            (Some(event), _) => drop(world.handle(event, now)?),
            (None, Some(deadline)) => {
                now = deadline;
                world.handle_timeout(now)?;
            }
            (None, None) => break,
        }
    }
    let calm = world.watch.is_calm() && world.watch.is_of_one_piece();
    // A worker that was killed before the exec may exceed the crash limit.
    rule(calm || world.watch.is_finished(), || {
        format!("no rest after an upgrade: {:#?}", world.watch)
    })
}

/// Every command, every event of each process, and an event of a worker that does not exist.
fn moves<M: Machine>(world: &Watched<M>) -> Vec<Move> {
    let mut events = vec![
        Event::ReloadAsked,
        Event::Reload,
        Event::Upgrade,
        Event::ResizeBy(Step::More),
        Event::ResizeBy(Step::Fewer),
        Event::Stop(Stop::Drain),
        Event::Interrupt,
        Event::Stop(Stop::Now),
        Event::HookRefused,
        Event::CanaryIncompatible,
        Event::UpgradeFailed,
        Event::UpgradeTried,
        Event::Exited(WorkerId(99), Exit::Crash),
    ];
    if let Some(canary) = world.watch.canary() {
        events.push(Event::Ready(canary));
        events.push(Event::Exited(canary, Exit::Crash));
    }
    for (slot, by) in world.watch.adopters() {
        events.push(Event::NotAdopted { slot, by });
    }
    for (id, seen) in world
        .watch
        .live()
        .filter(|(_, seen)| seen.role == Role::Slot)
    {
        events.push(Event::Exited(id, Exit::Clean));
        events.push(Event::Exited(id, Exit::Crash));
        match seen.life {
            Life::Starting => {
                let misconfigured = Event::Exited(id, Exit::Misconfigured);
                events.extend([Event::Ready(id), Event::SpawnFailed(id), misconfigured]);
            }
            Life::Serving => {
                let misconfigured = Event::Exited(id, Exit::Misconfigured);
                events.extend([
                    Event::Hung(id),
                    Event::Recycle(id, Asker::Worker),
                    Event::Ready(id),
                    misconfigured,
                ]);
                events.push(Event::Leaving(id));
            }
            Life::Draining | Life::Killed | Life::KilledLeaving | Life::Stuck => {
                events.extend([Event::Ready(id), Event::Hung(id), Event::Leaving(id)]);
            }
        }
    }
    events
        .into_iter()
        .map(Move::Event)
        .chain([Move::Wait])
        .collect()
}

/// From the first `Spawn` on.
#[test]
fn every_order_of_events_keeps_the_rules() {
    let machine = Supervisor::new(policy(), Time::ZERO);
    let explored = explore(machine, &policy(), DEPTH).unwrap_or_else(|breach| panic!("{breach}"));
    println!("{explored:?}");
    assert!(explored.worlds > 10_000, "only {} worlds", explored.worlds);
}

/// From a server that serves, so that no event is needed to get there.
#[test]
fn every_order_of_events_keeps_the_rules_of_a_serving_server() {
    let mut machine = Watched::new(Supervisor::new(policy(), Time::ZERO), &policy());
    machine.start().expect("a start keeps the rules");
    for worker in [1, 2].map(WorkerId) {
        let served = machine.handle(Event::Ready(worker), Time::ZERO);
        served.expect("a start keeps the rules");
    }
    let mut explorer = Explorer::default();
    explorer
        .explore(&machine, Time::ZERO, DEPTH)
        .unwrap_or_else(|breach| panic!("{breach}"));
    let explored = explorer.explored;
    println!("{explored:?}");
    assert!(explored.worlds > 10_000, "only {} worlds", explored.worlds);
    assert!(
        explored.resumed > 1_000,
        "only {} upgrades",
        explored.resumed
    );
}
