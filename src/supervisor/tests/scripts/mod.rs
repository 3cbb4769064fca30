//! One story per test, as an operator would tell it.

mod adoption;
mod crash;
mod ending;
mod recycle;
mod reload;
mod resize;
mod start;
mod upgrade;

use std::num::NonZeroU16;
use std::time::Duration;

use crate::drain::Idle;
use crate::id::{Generation, Slot, WorkerId};
use crate::supervisor::tests::machine::Watched;
use crate::supervisor::*;

/// A server in a story: the clock, and what has been asked for since the last `expect`.
struct World {
    watched: Watched<Supervisor>,
    now: Time,
    deeds: Vec<Action>,
    changes: Vec<Change>,
}

impl World {
    /// A server of `workers` slots that has just begun.
    fn new(workers: u16) -> Self {
        Self::with(Policy {
            workers: slots(workers),
            ..Policy::default()
        })
    }

    fn with(policy: Policy) -> Self {
        let machine = Supervisor::new(policy.clone(), Time::ZERO);
        let watched = Watched::new(machine, &policy);
        let mut world = Self {
            watched,
            now: Time::ZERO,
            deeds: Vec::new(),
            changes: Vec::new(),
        };
        let actions = world.watched.start();
        world.note(actions);
        world
    }

    /// A server whose workers 1, 2, ... serve in the slots 0, 1, ... since the start.
    fn serving(workers: u16) -> Self {
        Self::with_serving(Policy {
            workers: slots(workers),
            ..Policy::default()
        })
    }

    fn with_serving(policy: Policy) -> Self {
        let workers = policy.workers.get();
        let mut world = Self::with(policy);
        for worker in 1..=u64::from(workers) {
            world.ready(worker);
        }
        world.forget();
        world
    }

    /// Lets time pass until `seconds` after the start, acting on each deadline on the way.
    fn at(&mut self, seconds: u64) -> &mut Self {
        self.at_time(Time::ZERO + Duration::from_secs(seconds))
    }

    fn at_time(&mut self, time: Time) -> &mut Self {
        while let Some(deadline) = self
            .watched
            .machine
            .next_deadline()
            .filter(|&due| due <= time)
        {
            self.now = deadline;
            let actions = self.watched.handle_timeout(deadline);
            self.note(actions);
        }
        self.now = time;
        self
    }

    fn ready(&mut self, worker: u64) -> &mut Self {
        self.event(Event::Ready(WorkerId(worker)))
    }

    fn exited(&mut self, worker: u64, exit: Exit) -> &mut Self {
        self.event(Event::Exited(WorkerId(worker), exit))
    }

    fn hung(&mut self, worker: u64) -> &mut Self {
        self.event(Event::Hung(WorkerId(worker)))
    }

    fn spent(&mut self, worker: u64) -> &mut Self {
        self.event(Event::Spent(WorkerId(worker)))
    }

    fn spawn_failed(&mut self, worker: u64) -> &mut Self {
        self.event(Event::SpawnFailed(WorkerId(worker)))
    }

    fn event(&mut self, event: Event) -> &mut Self {
        let actions = self.watched.handle(event, self.now);
        self.note(actions);
        self
    }

    /// The next image goes on, whose policy has that many workers.
    fn resume(&mut self, workers: u16) -> &mut Self {
        let policy = Policy {
            workers: slots(workers),
            ..self.watched.watch.policy.clone()
        };
        let actions = self.watched.resume(&policy, self.now);
        self.note(actions);
        self
    }

    fn note(&mut self, actions: Result<Vec<Action>, String>) {
        for action in actions.unwrap_or_else(|breach| panic!("at {}: {breach}", self.now)) {
            match action {
                Action::Notify(change) => self.changes.push(change),
                deed => self.deeds.push(deed),
            }
        }
    }

    fn forget(&mut self) -> &mut Self {
        self.deeds.clear();
        self.changes.clear();
        self
    }

    /// What was to be done since the last `expect`.
    #[track_caller]
    fn expect<const N: usize>(&mut self, deeds: [Action; N]) -> &mut Self {
        assert_eq!(self.deeds, deeds, "at {}", self.now);
        self.deeds.clear();
        self
    }

    /// That this was told since the last `forget`, in this order, among other things.
    #[track_caller]
    fn told<const N: usize>(&mut self, changes: [Change; N]) -> &mut Self {
        let mut told = self.changes.iter();
        for change in changes {
            let found = told.any(|one| *one == change);
            assert!(
                found,
                "{change:?} was not told at {}: {:?}",
                self.now, self.changes
            );
        }
        self.changes.clear();
        self
    }

    #[track_caller]
    fn not_told(&mut self, what: impl Fn(&Change) -> bool) -> &mut Self {
        assert!(
            !self.changes.iter().any(what),
            "at {}: {:?}",
            self.now,
            self.changes
        );
        self
    }

    /// How long it is until the next deadline, which is the end of a slot's pause.
    fn rest(&self) -> Duration {
        let deadline = self.watched.machine.next_deadline();
        deadline.expect("a slot rests").since(self.now)
    }

    fn phase(&self) -> Phase {
        self.watched.machine.phase()
    }
}

fn slots(number: u16) -> NonZeroU16 {
    NonZeroU16::new(number).expect("a story has slots")
}

fn spawn(worker: u64, slot: u16, generation: u32) -> Action {
    let (slot, generation) = (Slot(slot), Generation(generation));
    Action::Spawn {
        worker: WorkerId(worker),
        slot,
        generation,
    }
}

fn drain(worker: u64) -> Action {
    Action::Drain(WorkerId(worker), Idle::HandOver)
}

/// As the server ends, or has been told to.
fn drain_last(worker: u64) -> Action {
    Action::Drain(WorkerId(worker), Idle::Close)
}

fn abort(worker: u64) -> Action {
    Action::Abort(WorkerId(worker))
}

fn kill(worker: u64) -> Action {
    Action::Kill(WorkerId(worker))
}

fn adopt(slot: u16, by: u64) -> Action {
    Action::Adopt {
        slot: Slot(slot),
        by: WorkerId(by),
    }
}

fn release(slot: u16, by: u64) -> Action {
    Action::Release {
        slot: Slot(slot),
        by: WorkerId(by),
    }
}

fn finish(outcome: Outcome) -> Action {
    Action::Finish(outcome)
}

fn is_backing_off(change: &Change) -> bool {
    matches!(change, Change::BackingOff { .. })
}
