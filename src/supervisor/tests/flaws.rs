//! Supervisors with deliberate mistakes, which the checks must find.

use crate::drain::Idle;
use crate::id::WorkerId;
use crate::supervisor::slot::SlotEntry;
use crate::supervisor::tests::exhaustive::{self, Depth};
use crate::supervisor::tests::machine::Machine;
use crate::supervisor::tests::world::{self, Hours, Seed};
use crate::supervisor::*;

/// A mistake that a change of the supervisor could make.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Flaw {
    ForgetsRespawn,
    DrainsBeforeReady,
    ClosesListenersEarly,
    FinishesTwice,
    ForgetsAdoption,
    ForgetsKill,
    MissesDeadline,
    ForgetsWorkerInUpgrade,
    RetiresLastServer,
}

const FLAWS: [Flaw; 9] = [
    Flaw::ForgetsRespawn,
    Flaw::DrainsBeforeReady,
    Flaw::ClosesListenersEarly,
    Flaw::FinishesTwice,
    Flaw::ForgetsAdoption,
    Flaw::ForgetsKill,
    Flaw::MissesDeadline,
    Flaw::ForgetsWorkerInUpgrade,
    Flaw::RetiresLastServer,
];

/// A supervisor whose actions are changed by a flaw.
#[derive(Clone, Hash)]
struct Flawed {
    inner: Supervisor,
    flaw: Flaw,
    lost: Option<WorkerId>,
    queued: Vec<Action>,
}

impl Flawed {
    fn new(policy: &Policy, flaw: Flaw) -> Self {
        let inner = Supervisor::new(policy.clone(), Time::ZERO);
        Self {
            inner,
            flaw,
            lost: None,
            queued: Vec::new(),
        }
    }

    /// The worker that serves in the slot of a worker that was just spawned.
    fn predecessor(&self, of: WorkerId) -> Option<WorkerId> {
        let entry = self
            .inner
            .entries
            .iter()
            .find(|entry| entry.workers().any(|one| one.id == of))?;
        entry.server().map(|worker| worker.id)
    }
}

impl Machine for Flawed {
    fn handle(&mut self, event: Event, now: Time) {
        if let Event::Exited(worker, _) = event {
            self.lost = Some(worker);
        }
        self.inner.handle(event, now);
    }

    fn handle_timeout(&mut self, now: Time) {
        self.inner.handle_timeout(now);
    }

    fn next_action(&mut self) -> Option<Action> {
        if let Some(action) = self.queued.pop() {
            return Some(action);
        }
        let action = self.inner.next_action()?;
        match (self.flaw, action) {
            (Flaw::ForgetsRespawn, Action::Spawn { .. }) if self.lost.is_some() => {
                return self.next_action();
            }
            (Flaw::DrainsBeforeReady, Action::Spawn { worker, .. }) => {
                let early = self.predecessor(worker);
                self.queued
                    .extend(early.map(|worker| Action::Drain(worker, Idle::HandOver)));
            }
            (Flaw::ClosesListenersEarly, Action::Notify(Change::WorkerDraining(..))) => {
                self.queued.push(Action::CloseListeners);
            }
            (Flaw::RetiresLastServer, Action::Notify(Change::Resized { workers })) => {
                let retired = self.inner.entries.iter().skip(workers.get().into());
                let drains = retired.filter_map(SlotEntry::server);
                let drains = drains.map(|worker| Action::Drain(worker.id, Idle::HandOver));
                self.queued.extend(drains);
            }
            (Flaw::FinishesTwice, Action::Finish(_)) => self.queued.push(action),
            (Flaw::ForgetsAdoption, Action::Adopt { .. }) => return self.next_action(),
            (Flaw::ForgetsKill, Action::Kill(_)) => return self.next_action(),
            _ => {}
        }
        Some(action)
    }

    fn next_deadline(&self) -> Option<Time> {
        self.inner
            .next_deadline()
            .filter(|_| self.flaw != Flaw::MissesDeadline)
    }

    fn resume(&self, policy: &Policy, now: Time) -> Self {
        let mut image = self.clone();
        if self.flaw == Flaw::ForgetsWorkerInUpgrade {
            // The worker of the first slot is replaced in any case.
            image
                .inner
                .entries
                .iter_mut()
                .skip(1)
                .for_each(SlotEntry::move_to_leaving);
            image
                .inner
                .entries
                .iter_mut()
                .for_each(|entry| entry.leaving.clear());
        }
        image.inner = Machine::resume(&image.inner, policy, now);
        image
    }
}

#[test]
fn all_small_worlds_notice_each_flaw() {
    for flaw in FLAWS {
        let policy = exhaustive::policy();
        let breach = exhaustive::explore(Flawed::new(&policy, flaw), &policy, Depth(4));
        println!(
            "{flaw:?}: {}",
            breach.expect_err(&format!("{flaw:?} went unnoticed"))
        );
    }
}

#[test]
fn random_worlds_notice_each_flaw() {
    // Here it is too rare that only a slot serves that will be retired.
    for flaw in FLAWS
        .into_iter()
        .filter(|flaw| *flaw != Flaw::RetiresLastServer)
    {
        let breach = (0..20).map(Seed).find_map(|seed| {
            let policy = world::policy(seed);
            world::run(Flawed::new(&policy, flaw), &policy, seed, Hours(10)).err()
        });
        println!(
            "{flaw:?}: {}",
            breach.unwrap_or_else(|| panic!("{flaw:?} went unnoticed"))
        );
    }
}
