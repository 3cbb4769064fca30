//! Who runs, who drains, who comes next: every decision of the master, and none of its deeds.
//!
//! Four verbs. [`Supervisor::handle`] takes a command or a fact, [`Supervisor::handle_timeout`]
//! says that time has passed, [`Supervisor::next_action`] gives what is to be done, in order, and
//! must be called after either until it gives nothing; [`Supervisor::next_deadline`] tells when to
//! come back though nothing happened.
//!
//! Each event changes what is known (a slot is vacant now, a reload was asked for); then
//! [`settle`](Supervisor::settle) compares what is with what should be and asks for the difference.
//! So no event has to remember to respawn, to adopt or to go on with a reload.
//!
//! **Architecture invariant:** nothing here reads a clock, knows a descriptor or a pid, waits, logs
//! or locks. The whole state is plain data: it can be cloned, compared and taken to another image.

mod action;
mod adoption;
mod crash;
mod ending;
mod event;
#[cfg(any(test, debug_assertions))]
mod invariants;
mod policy;
mod recycle;
mod reload;
mod resize;
mod slot;
mod snapshot;
#[cfg(test)]
mod tests;
mod time;
mod upgrade;
mod worker;

use std::collections::VecDeque;
use std::num::NonZeroU16;

use crate::id::{Generation, Slot, WorkerId};

pub(crate) use self::action::{Abandoned, Action, Change, Outcome};
pub(crate) use self::event::{Event, Exit, Step, Stop};
pub(crate) use self::policy::{Backoff, CrashLimit, Policy};
pub(crate) use self::snapshot::Snapshot;
pub(crate) use self::time::Time;

use self::crash::{CrashWindow, Jitter};
use self::policy::{LEAVING_MAX, MAX_WORKERS};
use self::slot::SlotEntry;
use self::upgrade::PendingCommand;
use self::worker::{Worker, WorkerState};

/// The state of the server, as the master knows it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Supervisor {
    policy: Policy,
    /// The latest time we were told.
    now: Time,
    phase: Phase,
    workers: NonZeroU16,
    /// One for each slot there ever was. The retired ones are at the end, from `workers` on: they
    /// have listeners to be adopted and perhaps workers that still drain, or that serve while no
    /// slot that is wanted does.
    entries: Vec<SlotEntry>,
    /// The latest upgrade's canary, from `StartCanary` until it is gone.
    canary: Option<Worker>,
    /// What was asked for while it had to wait, in that order, each at most once.
    pending: Vec<PendingCommand>,
    /// The newest generation there was, be it that it came to nothing.
    newest: Generation,
    /// The newest generation of which a worker was ready: what a crashed worker is replaced with.
    /// Not the newest there was, which may never have started; not the crashed worker's own, which
    /// a reload may have been meant to get rid of.
    proven: Generation,
    last_worker: WorkerId,
    crashes: CrashWindow,
    jitter: Jitter,
    actions: VecDeque<Action>,
}

/// What the server as a whole is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    /// Not every slot has had a ready worker.
    Starting,
    /// All is as it should be, but for crashes.
    Serving,
    /// The slots are being given workers of the generation `target`.
    Reloading { target: Generation },
    /// A canary is being tried, or the master is about to become its image.
    Upgrading,
    /// Every worker has been told to leave. It ends with `outcome` when they are gone.
    Draining { outcome: Outcome, urgency: Urgency },
    /// `Finish` was the last action.
    Finished,
}

/// How often an ending server was told to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Urgency {
    /// Never: it ends of its own accord.
    Unasked,
    /// Once, to drain, at this time. The next `Stop` is `Stop::Now`, unless it is the same ask.
    Asked { at: Time },
    /// To stop now: every worker has been killed.
    Hastened,
}

impl Supervisor {
    /// The start of a server: a `Spawn` for each slot is waiting in `next_action`.
    pub(crate) fn new(policy: Policy, now: Time) -> Self {
        let workers = policy.workers.min(MAX_WORKERS);
        let mut supervisor = Self {
            now,
            phase: Phase::Starting,
            workers,
            entries: vec![SlotEntry::default(); usize::from(workers.get())],
            canary: None,
            pending: Vec::new(),
            newest: Generation::FIRST,
            proven: Generation::FIRST,
            last_worker: WorkerId(0),
            crashes: CrashWindow::default(),
            jitter: Jitter::new(policy.seed),
            actions: VecDeque::new(),
            policy,
        };
        supervisor.settle();
        supervisor
    }

    /// Takes a command or a fact. Events about workers that are gone or never were are ignored.
    pub(crate) fn handle(&mut self, event: Event, now: Time) {
        #[cfg(any(test, debug_assertions))]
        let before = invariants::Before::event(self, event);
        self.now = self.now.max(now);
        match event {
            Event::ReloadAsked => self.check_reload(),
            Event::Reload => self.reload_asked(),
            Event::ReloadRefused => self.reload_refused(),
            Event::Upgrade => self.upgrade_asked(),
            Event::Resize(workers) => self.resize(workers),
            Event::ResizeBy(step) => self.resize_by(step),
            Event::Stop(stop) => self.stop(stop),
            // The worker's deadline runs from its `Spawn`: that the process exists changes nothing.
            Event::Spawned(_) => {}
            Event::SpawnFailed(worker) => self.gone(worker, Exit::Crash, Abandoned::NotSpawned),
            Event::Ready(worker) => self.ready(worker),
            Event::Leaving(worker) => self.leaving(worker),
            Event::Exited(worker, Exit::Misconfigured) => {
                self.gone(worker, Exit::Misconfigured, Abandoned::Misconfigured);
            }
            Event::Exited(worker, exit) => self.gone(worker, exit, Abandoned::Died),
            Event::Hung(worker) => self.hung(worker),
            Event::Spent(worker) => self.spent(worker),
            Event::NotAdopted { slot, by } => self.not_adopted(slot, by),
            Event::HookRefused => self.end(Outcome::HookRefused, Urgency::Unasked),
            Event::CanaryIncompatible => self.give_up_canary(Abandoned::Incompatible),
            Event::UpgradeFailed => self.give_up_canary(Abandoned::ExecFailed),
        }
        self.settle();
        #[cfg(any(test, debug_assertions))]
        before.check(self);
    }

    /// Acts on every deadline that `now` has reached. Too early a call does nothing.
    pub(crate) fn handle_timeout(&mut self, now: Time) {
        #[cfg(any(test, debug_assertions))]
        let before = invariants::Before::timeout(self);
        self.now = self.now.max(now);
        for slot in self.slots() {
            self.slot_overdue(slot);
        }
        self.canary_overdue();
        self.settle();
        #[cfg(any(test, debug_assertions))]
        before.check(self);
    }

    /// What is to be done next. To be called after each `handle`, `handle_timeout` and `new` until
    /// it gives `None`.
    pub(crate) fn next_action(&mut self) -> Option<Action> {
        // What else has been decided is done by this image: the next one begins with a clean desk.
        if self.actions.front() == Some(&Action::ExecInPlace) {
            self.actions.rotate_left(1);
        }
        self.actions.pop_front()
    }

    /// When `handle_timeout` has to be called, if nothing happens before. It changes with each
    /// `handle` and `handle_timeout`.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        let canary = self.canary.as_ref().and_then(Worker::deadline);
        self.entries
            .iter()
            .filter_map(SlotEntry::next_deadline)
            .chain(canary)
            .min()
    }

    /// What the server is about.
    #[cfg(test)]
    pub(crate) fn phase(&self) -> Phase {
        self.phase
    }

    /// Whether the end has begun, whatever began it.
    fn is_draining(&self) -> bool {
        matches!(self.phase, Phase::Draining { .. } | Phase::Finished)
    }

    /// Asks for the difference between what is and what should be.
    fn settle(&mut self) {
        if !self.is_draining() {
            self.retire();
            self.attend();
            self.conclude_start();
        }
        if !self.is_draining() {
            self.conclude_reload();
            self.begin_pending();
            self.fill_vacant();
            self.replace_stale();
            self.replace_spent();
        }
        self.conclude_end();
    }

    /// The first start is over when every slot has had a ready worker, or cannot have one.
    fn conclude_start(&mut self) {
        if self.phase != Phase::Starting {
            return;
        }
        let wanted = &self.entries[..usize::from(self.workers.get())];
        if wanted.iter().all(SlotEntry::has_been_ready) {
            self.phase = Phase::Serving;
            self.notify(Change::Serving);
        } else if !self.any_was_ready() && wanted.iter().all(SlotEntry::has_failed_first) {
            self.end(Outcome::NeverReady, Urgency::Unasked);
        }
    }

    fn any_was_ready(&self) -> bool {
        self.entries.iter().any(SlotEntry::has_been_ready)
    }

    fn fill_vacant(&mut self) {
        for slot in self.wanted_slots() {
            let entry = self.entry(slot);
            if entry.is_vacant() && entry.leaving.len() < LEAVING_MAX {
                let worker = self.spawn(slot);
                self.entry_mut(slot).hold(worker);
            }
        }
    }

    /// The only place a worker comes from, but for the canary.
    fn spawn(&mut self, slot: Slot) -> Worker {
        let generation = match self.phase {
            Phase::Reloading { target } => target,
            _ => self.proven,
        };
        let worker = self.new_worker(generation);
        self.actions.push_back(Action::Spawn {
            worker: worker.id,
            slot,
            generation,
        });
        worker
    }

    fn new_worker(&mut self, generation: Generation) -> Worker {
        self.last_worker = WorkerId(self.last_worker.0 + 1);
        let deadline = self.now + self.policy.ready_timeout;
        Worker {
            id: self.last_worker,
            generation,
            state: WorkerState::Starting { deadline },
            spent: worker::Spent::No,
        }
    }

    fn notify(&mut self, change: Change) {
        self.actions.push_back(Action::Notify(change));
    }

    fn slots(&self) -> impl Iterator<Item = Slot> + use<> {
        let slots =
            u16::try_from(self.entries.len()).expect("there are at most MAX_WORKERS entries");
        (0..slots).map(Slot)
    }

    fn wanted_slots(&self) -> impl Iterator<Item = Slot> + use<> {
        (0..self.workers.get()).map(Slot)
    }

    fn entry(&self, slot: Slot) -> &SlotEntry {
        &self.entries[usize::from(slot.0)]
    }

    fn entry_mut(&mut self, slot: Slot) -> &mut SlotEntry {
        &mut self.entries[usize::from(slot.0)]
    }

    /// Every worker that is not known to be gone.
    fn workers(&self) -> impl Iterator<Item = &Worker> {
        self.entries
            .iter()
            .flat_map(SlotEntry::workers)
            .chain(&self.canary)
    }
}
