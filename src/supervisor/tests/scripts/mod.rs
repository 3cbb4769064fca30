//! One scenario per test: events, and the actions that they must give.

mod adoption;
mod crash;
mod ending;
mod recycle;
mod reload;
mod resize;
mod start;
mod stuck;
mod upgrade;

use std::num::NonZeroU16;
use std::time::Duration;

use crate::drain::Idle;
use crate::id::{Generation, Slot, WorkerId};
use crate::policy::{Backoff, CrashLimit};
use crate::supervisor::tests::crash_limit;
use crate::supervisor::tests::machine::Watched;
use crate::supervisor::*;

/// A server in a scenario: the clock, and the actions since the last `expect`.
struct World {
    watched: Watched<Supervisor>,
    now: Time,
    actions: Vec<Action>,
    changes: Vec<Change>,
}

impl World {
    /// A server of `workers` slots that has just started.
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
            actions: Vec::new(),
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

    /// Advances the time to `seconds` after the start, and handles each deadline on the way.
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

    fn recycle(&mut self, worker: u64) -> &mut Self {
        self.event(Event::Recycle(WorkerId(worker), Asker::Worker))
    }

    fn spawn_failed(&mut self, worker: u64) -> &mut Self {
        self.event(Event::SpawnFailed(WorkerId(worker)))
    }

    fn event(&mut self, event: Event) -> &mut Self {
        let actions = self.watched.handle(event, self.now);
        self.note(actions);
        self
    }

    /// Goes on in the next image, whose policy has this many workers.
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
                action => self.actions.push(action),
            }
        }
    }

    fn forget(&mut self) -> &mut Self {
        self.actions.clear();
        self.changes.clear();
        self
    }

    /// Asserts the actions since the last `expect`.
    #[track_caller]
    fn expect<const N: usize>(&mut self, actions: [Action; N]) -> &mut Self {
        assert_eq!(self.actions, actions, "at {}", self.now);
        self.actions.clear();
        self
    }

    /// Asserts that the notices since the last `forget` contain these, in this order.
    #[track_caller]
    fn expect_changes<const N: usize>(&mut self, changes: [Change; N]) -> &mut Self {
        let mut notified = self.changes.iter();
        for change in changes {
            let found = notified.any(|one| *one == change);
            assert!(
                found,
                "{change:?} was not notified at {}: {:?}",
                self.now, self.changes
            );
        }
        self.changes.clear();
        self
    }

    #[track_caller]
    fn expect_no_change(&mut self, what: impl Fn(&Change) -> bool) -> &mut Self {
        assert!(
            !self.changes.iter().any(what),
            "at {}: {:?}",
            self.now,
            self.changes
        );
        self
    }

    /// How long until the next deadline, which is the end of a slot's pause.
    fn rest(&self) -> Duration {
        let deadline = self.watched.machine.next_deadline();
        deadline.expect("a slot rests").since(self.now)
    }

    fn phase(&self) -> Phase {
        self.watched.machine.phase()
    }
}

/// A policy with this many slots, in which more crashes than these end the server.
fn limited(workers: u16, crashes: u32) -> Policy {
    Policy {
        workers: slots(workers),
        crash_limit: crash_limit(crashes),
        ..Policy::default()
    }
}

fn slots(number: u16) -> NonZeroU16 {
    NonZeroU16::new(number).expect("a scenario has slots")
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

/// As [`drain`], when the server ends.
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
