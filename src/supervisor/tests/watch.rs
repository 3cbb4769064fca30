//! Checks what a machine does only by its events and actions, without its state.
//!
//! It keeps its own record of the workers, so a mistake in the supervisor's state cannot hide from
//! it. `invariants.rs` checks the state itself, and says why there are two checks.

mod events;
mod settled;

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU16;
use std::time::Duration;

use crate::drain::Idle;
use crate::id::{Generation, Slot, WorkerId};
use crate::supervisor::policy::DRAINING_MAX;
use crate::supervisor::*;

/// The rule that was broken, as text.
pub(super) type Breach = String;

/// What is known of the server by its events and actions.
#[derive(Clone, Debug, Hash)]
pub(super) struct Watch {
    pub(super) policy: Policy,
    now: Time,
    pub(super) workers: NonZeroU16,
    slots: u16,
    seen: BTreeMap<WorkerId, Seen>,
    resting: BTreeMap<Slot, Time>,
    adopters: BTreeMap<Slot, WorkerId>,
    /// The workers that could not adopt a slot, and until when they are not asked again.
    failed_adopters: BTreeMap<Slot, (BTreeSet<WorkerId>, Time)>,
    hung: BTreeSet<WorkerId>,
    recycle: BTreeSet<WorkerId>,
    /// The workers that have reported that they leave.
    leaving: BTreeSet<WorkerId>,
    /// The workers that drained already when the server ended, and got a second `Drain`.
    drained_twice: BTreeSet<WorkerId>,
    /// Until when workers that were aborted may take to end.
    aborted: BTreeMap<WorkerId, Time>,
    /// Until when the kernel may take to end workers that were killed.
    dying: BTreeMap<WorkerId, Time>,
    newest_worker: WorkerId,
    /// The reload that the latest event has abandoned.
    given_up: Option<Generation>,
    crashes: u32,
    stops: u32,
    /// When the first stop came.
    first_stop: Option<Time>,
    end: End,
}

/// How far the end of the server has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum End {
    No,
    /// An event has come that must end the server.
    Due,
    Draining,
    ListenersClosed,
    Finished(OutcomeKind),
}

/// An outcome that can be ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum OutcomeKind {
    Asked,
    OfItself,
}

#[derive(Clone, Debug, Hash)]
pub(super) struct Seen {
    pub(super) slot: Slot,
    pub(super) generation: Generation,
    pub(super) life: Life,
    pub(super) role: Role,
    since: Time,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Life {
    Starting,
    Serving,
    Draining,
    /// Killed while it held its slot.
    Killed,
    /// Killed while it drained, or at the end of the server.
    KilledLeaving,
    /// The kernel does not end it.
    Stuck,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Role {
    Slot,
    Canary,
}

pub(super) fn rule(kept: bool, breach: impl FnOnce() -> Breach) -> Result<(), Breach> {
    if kept { Ok(()) } else { Err(breach()) }
}

impl Watch {
    pub(super) fn new(policy: Policy) -> Self {
        Self {
            now: Time::ZERO,
            workers: policy.workers,
            slots: policy.workers.get(),
            seen: BTreeMap::new(),
            resting: BTreeMap::new(),
            adopters: BTreeMap::new(),
            failed_adopters: BTreeMap::new(),
            hung: BTreeSet::new(),
            recycle: BTreeSet::new(),
            leaving: BTreeSet::new(),
            drained_twice: BTreeSet::new(),
            aborted: BTreeMap::new(),
            dying: BTreeMap::new(),
            newest_worker: WorkerId(0),
            given_up: None,
            crashes: 0,
            stops: 0,
            first_stop: None,
            end: End::No,
            policy,
        }
    }

    pub(super) fn live(&self) -> impl Iterator<Item = (WorkerId, &Seen)> {
        self.seen.iter().map(|(&id, seen)| (id, seen))
    }

    pub(super) fn canary(&self) -> Option<WorkerId> {
        self.live()
            .find(|(_, seen)| seen.role == Role::Canary)
            .map(|(id, _)| id)
    }

    pub(super) fn is_ending(&self) -> bool {
        self.end >= End::Draining
    }

    fn only_stuck_are_left(&self) -> bool {
        self.live().all(|(_, seen)| seen.life == Life::Stuck)
    }

    pub(super) fn is_finished(&self) -> bool {
        matches!(self.end, End::Finished(_))
    }

    /// Whether every slot is served by its own worker and there are no other workers.
    pub(super) fn is_calm(&self) -> bool {
        let serving = self
            .live()
            .filter(|(_, seen)| seen.life == Life::Serving)
            .count();
        serving == usize::from(self.workers.get()) && self.seen.len() == serving
    }

    /// The next image has gone on, with this policy. The canary has the slot.
    pub(super) fn resumed(&mut self, policy: &Policy, now: Time) {
        self.waited(now);
        if self.workers == self.policy.workers {
            self.resized(policy.workers);
        }
        self.policy = policy.clone();
        if let Some(seen) = self.canary().and_then(|id| self.seen.get_mut(&id)) {
            seen.role = Role::Slot;
            let slot = seen.slot;
            self.resting.remove(&slot);
            self.killed_leave(|other| other == slot);
        }
    }

    /// Whether all workers are of one generation.
    pub(super) fn is_of_one_piece(&self) -> bool {
        let generations: BTreeSet<_> = self.seen.values().map(|seen| seen.generation).collect();
        generations.len() == 1
    }

    /// Time has passed, and no event has come.
    pub(super) fn waited(&mut self, now: Time) {
        (self.now, self.given_up) = (now, None);
        self.failed_adopters.retain(|_, (_, again)| *again > now);
        self.resting.retain(|_, until| *until > now);
    }

    pub(super) fn adopters(&self) -> impl Iterator<Item = (Slot, WorkerId)> {
        self.adopters.iter().map(|(&slot, &by)| (slot, by))
    }

    fn asked_to_adopt(&mut self, slot: Slot, by: WorkerId) -> Result<(), Breach> {
        self.adopters.insert(slot, by);
        rule(!self.is_unable(slot, by), || {
            format!("{by} is to adopt slot {slot}, and has just failed to")
        })
    }

    fn has_adopted(&self, slot: Slot, by: WorkerId) -> bool {
        self.adopters.get(&slot) == Some(&by) && self.life(by) == Some(Life::Serving)
    }

    fn is_unable(&self, slot: Slot, by: WorkerId) -> bool {
        let failed_adopters = self.failed_adopters.get(&slot);
        failed_adopters.is_some_and(|(workers, _)| workers.contains(&by))
    }

    /// Ends the pause of a worker that has asked to be replaced and does not serve any more.
    fn serves_no_more(&mut self, seen: &Seen) {
        if seen.life == Life::Serving && seen.role == Role::Slot {
            self.resting.remove(&seen.slot);
        }
    }

    fn life(&self, id: WorkerId) -> Option<Life> {
        self.seen.get(&id).map(|seen| seen.life)
    }

    pub(super) fn action(&mut self, action: Action) -> Result<(), Breach> {
        rule(!self.is_finished(), || format!("{action:?} after Finish"))?;
        match action {
            Action::Spawn {
                worker,
                slot,
                generation,
            } => {
                rule(slot.0 < self.workers.get(), || {
                    format!("spawned in retired slot {slot}")
                })?;
                self.may_spawn(slot, generation)?;
                self.resting.remove(&slot);
                self.started(worker, slot, generation, Role::Slot)
            }
            Action::StartCanary {
                worker,
                slot,
                generation,
            } => {
                rule(self.canary().is_none(), || "a second canary".into())?;
                self.started(worker, slot, generation, Role::Canary)
            }
            Action::Drain(id, idle) => self.asked_to_drain(id, idle),
            Action::Abort(id) => {
                rule(self.hung.contains(&id), || format!("worker {id} aborted"))?;
                self.killed(id)?;
                self.aborted.insert(id, self.now + self.policy.abort_grace);
                Ok(())
            }
            Action::Kill(id) => {
                self.dying.insert(id, self.now + ENDS_WITHIN);
                self.killed(id)
            }
            Action::Adopt { slot, by } => self.asked_to_adopt(slot, by),
            Action::Release { slot, by } => rule(self.adopters.remove(&slot) == Some(by), || {
                format!("slot {slot} released by {by}, who had not adopted it")
            }),
            Action::CloseListeners => {
                rule(self.end >= End::Due, || "listeners closed early".into())?;
                rule(self.end < End::ListenersClosed, || {
                    "listeners closed twice".into()
                })?;
                self.end = End::ListenersClosed;
                Ok(())
            }
            Action::CheckReload => rule(!self.is_ending(), || {
                "a reload is checked at the end".into()
            }),
            Action::ExecInPlace => {
                let serves = self
                    .canary()
                    .is_some_and(|id| self.life(id) == Some(Life::Serving));
                rule(serves && !self.is_ending(), || {
                    "exec without a ready canary".into()
                })
            }
            Action::Notify(change) => self.notified(change),
            Action::Finish(outcome) => self.finished(outcome),
        }
    }

    fn finished(&mut self, outcome: Outcome) -> Result<(), Breach> {
        rule(self.end == End::ListenersClosed, || {
            "finished without an end".into()
        })?;
        rule(self.only_stuck_are_left(), || {
            format!("finished before {:?}", self.seen)
        })?;
        self.end = End::Finished(match outcome {
            Outcome::Drained | Outcome::Stopped => OutcomeKind::Asked,
            _ => OutcomeKind::OfItself,
        });
        Ok(())
    }

    fn may_spawn(&self, slot: Slot, generation: Generation) -> Result<(), Breach> {
        let workers = || self.slot_workers(slot).map(|(_, seen)| seen.life);
        let drain = workers().filter(|life| *life == Life::Draining).count();
        let crowded = drain >= DRAINING_MAX && workers().any(|life| life == Life::Serving);
        rule(!crowded, || {
            format!("replaced in slot {slot}, where {drain} drain")
        })?;
        for (id, seen) in self.slot_workers(slot) {
            let beside = match seen.life {
                Life::Starting | Life::Killed => false,
                Life::Serving => seen.generation < generation || self.recycle.contains(&id),
                Life::Draining | Life::KilledLeaving | Life::Stuck => true,
            };
            rule(beside, || {
                format!("spawned in slot {slot} beside worker {id}")
            })?;
        }
        Ok(())
    }

    fn started(
        &mut self,
        id: WorkerId,
        slot: Slot,
        generation: Generation,
        role: Role,
    ) -> Result<(), Breach> {
        rule(!self.is_ending(), || {
            format!("worker {id} started at the end")
        })?;
        rule(id > self.newest_worker, || {
            format!("worker {id} is not new")
        })?;
        self.newest_worker = id;
        let seen = Seen {
            slot,
            generation,
            life: Life::Starting,
            role,
            since: self.now,
        };
        self.seen.insert(id, seen);
        Ok(())
    }

    fn asked_to_drain(&mut self, id: WorkerId, idle: Idle) -> Result<(), Breach> {
        rule((idle == Idle::Close) == self.is_ending(), || {
            format!("worker {id} drained with {idle:?}, which is wrong at this time")
        })?;
        let Some(seen) = self.seen.get(&id) else {
            return Err(format!("drained worker {id}, who is not there"));
        };
        let slot = seen.slot;
        let other = |life: Life| {
            self.slot_workers(slot)
                .any(|(other, seen)| other != id && seen.life == life)
        };
        let canary = seen.role == Role::Canary;
        // The last worker that serves stays until a worker of a wanted slot serves.
        let last = seen.life == Life::Serving && !self.is_served();
        let retired = slot.0 >= self.workers.get() && !last;
        let may = match seen.life {
            Life::Serving => other(Life::Serving) || self.leaving.contains(&id),
            Life::Starting => other(Life::Serving) || other(Life::Killed),
            Life::Draining => {
                return rule(self.drained_twice.insert(id), || {
                    format!("worker {id} was asked a third time to drain")
                });
            }
            Life::Killed | Life::KilledLeaving | Life::Stuck => false,
        };
        rule(may || retired || canary || self.is_ending(), || {
            format!("worker {id} drained in slot {slot}, which has no other ready")
        })?;
        self.serves_no_more(&seen.clone());
        let now = self.now;
        if let Some(seen) = self.seen.get_mut(&id) {
            (seen.life, seen.since) = (Life::Draining, now);
        }
        Ok(())
    }

    /// Whether a wanted slot has a worker that serves.
    fn is_served(&self) -> bool {
        self.live().any(|(_, seen)| {
            let serves = seen.life == Life::Serving && seen.role == Role::Slot;
            serves && seen.slot.0 < self.workers.get()
        })
    }

    fn killed(&mut self, id: WorkerId) -> Result<(), Breach> {
        let Some(seen) = self.seen.get(&id) else {
            return Err(format!("killed worker {id}, who is not there"));
        };
        let overdue = self
            .deadline(seen)
            .is_some_and(|deadline| deadline <= self.now);
        let hastened = self.stops >= 2;
        if let Some(due) = self.aborted.remove(&id) {
            return rule(due <= self.now || hastened, || {
                format!("worker {id} had no time to die")
            });
        }
        let (may, life) = match seen.life {
            Life::Starting => (overdue || hastened, Life::Killed),
            Life::Serving => (self.hung.contains(&id) || hastened, Life::Killed),
            Life::Draining => (overdue || hastened, Life::KilledLeaving),
            Life::Killed | Life::KilledLeaving | Life::Stuck => (false, Life::Killed),
        };
        rule(may, || {
            format!("worker {id} killed while {:?} without need", seen.life)
        })?;
        // A worker that does not hold its slot is not waited for.
        let holder = !self
            .slot_workers(seen.slot)
            .any(|(other, seen)| other != id && matches!(seen.life, Life::Serving | Life::Killed));
        // Nor is one that was too late for its reload, even if it is alone in its slot.
        let late = self.given_up.take() == Some(seen.generation);
        let retired = seen.slot.0 >= self.workers.get();
        let leaves = life == Life::Killed && (!holder || late || retired);
        let life = if leaves { Life::KilledLeaving } else { life };
        self.serves_no_more(&seen.clone());
        if let Some(seen) = self.seen.get_mut(&id) {
            seen.life = life;
        }
        Ok(())
    }

    fn notified(&mut self, change: Change) -> Result<(), Breach> {
        match change {
            Change::Draining => {
                let due = self.end == End::Due || self.crashes > 0;
                rule(due, || "the end has no reason".into())?;
                self.end = self.end.max(End::Draining);
            }
            Change::BackingOff { slot, pause } => {
                let most = self.policy.backoff.max;
                rule(pause <= most, || format!("slot {slot} rests for {pause:?}"))?;
                self.resting.insert(slot, self.now + pause);
            }
            Change::WorkerStuck(id, ..) => {
                let due = self.dying.remove(&id);
                rule(due.is_some_and(|due| due <= self.now), || {
                    format!("worker {id} does not count as stuck yet")
                })?;
                self.is_stuck(id);
            }
            Change::ReloadAbandoned { generation, .. } => self.given_up = Some(generation),
            _ => {}
        }
        Ok(())
    }

    /// Nothing waits for it any more, and it is no canary any more.
    fn is_stuck(&mut self, id: WorkerId) {
        if let Some(seen) = self.seen.get_mut(&id) {
            self.crashes += u32::from(seen.life == Life::Killed);
            (seen.life, seen.role) = (Life::Stuck, Role::Slot);
        }
    }

    fn slot_workers(&self, slot: Slot) -> impl Iterator<Item = (WorkerId, &Seen)> {
        self.live()
            .filter(move |(_, seen)| seen.slot == slot && seen.role == Role::Slot)
    }

    fn deadline(&self, seen: &Seen) -> Option<Time> {
        match seen.life {
            Life::Starting => Some(seen.since + self.policy.ready_timeout),
            Life::Draining => {
                let leave: Duration = self.policy.drain_timeout + self.policy.kill_grace;
                Some(seen.since + leave)
            }
            Life::Serving | Life::Killed | Life::KilledLeaving | Life::Stuck => None,
        }
    }
}
