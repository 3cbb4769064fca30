//! The supervisor decides which workers run, which drain and which start. The master carries its
//! decisions out.
//!
//! It has four methods:
//!
//! - [`Supervisor::handle`] takes a command or a fact.
//! - [`Supervisor::handle_timeout`] acts on the deadlines that have passed.
//! - [`Supervisor::next_action`] returns the next thing to do. The caller calls it after each of
//!   the two above, until it returns `None`.
//! - [`Supervisor::next_deadline`] says when to call `handle_timeout` if nothing happens before.
//!
//! Each event changes the state: a slot is vacant now, a reload was asked for. Then
//! [`settle`](Supervisor::settle) compares the state with the wanted state and asks for the
//! difference. So no event has to respawn, to adopt or to continue a reload by itself.
//!
//! **Invariant:** nothing here reads a clock, knows a descriptor or a pid, waits, logs or locks.
//! The whole state is plain data. It can be cloned, compared and carried to another image.

mod action;
mod admin;
mod adoption;
mod crash;
mod ending;
mod event;
#[cfg(any(test, debug_assertions))]
mod invariants;
mod overdue;
mod overview;
mod policy;
mod pre_stop;
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
use std::time::Duration;

use crate::id::{Generation, Slot, WorkerId};
use crate::policy::{Outcome, Stop};

pub(crate) use self::action::{Abandoned, Action, Change};
pub(crate) use self::admin::{AdminAction, AdminEvent, AdminId, AdminKeeper};
pub(crate) use self::event::{Asker, Event, Exit, Step};
pub(crate) use self::overview::SlotOverview;
pub(crate) use self::policy::{ENDS_WITHIN, Policy};
pub(crate) use self::pre_stop::{Passage, Pause, PreStop};
pub(crate) use self::snapshot::Snapshot;
pub(crate) use self::time::Time;
pub(crate) use self::upgrade::CANARY_SLOT;

use self::crash::{CrashWindow, Jitter};
use self::policy::MAX_WORKERS;
use self::slot::SlotEntry;
use self::upgrade::PendingCommand;
use self::worker::{Worker, WorkerState};

/// The state of the server, as the master knows it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Supervisor {
    policy: Policy,
    /// The latest time that an event or a timeout came with.
    now: Time,
    phase: Phase,
    workers: NonZeroU16,
    /// One for each slot there ever was. The entries from `workers` on are of retired slots. Their
    /// listeners are adopted. They may have workers that still drain, or that serve because no
    /// wanted slot has a worker that does.
    entries: Vec<SlotEntry>,
    /// The latest upgrade's canary, from `StartCanary` until it is gone.
    canary: Option<Worker>,
    /// Commands that wait, in the order in which they came, each at most once.
    pending: Vec<PendingCommand>,
    /// The newest generation there was, even if its reload was abandoned.
    newest: Generation,
    /// The newest generation of which a worker was ready. A crashed worker is replaced with one of
    /// it. The newest generation may never have started, and the crashed worker's own may be what a
    /// reload was to replace.
    proven: Generation,
    last_worker: WorkerId,
    crashes: CrashWindow,
    jitter: Jitter,
    actions: VecDeque<Action>,
}

/// What the server as a whole is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    /// Not every slot has had a ready worker.
    Starting,
    /// Every slot has had a ready worker, and no reload or upgrade runs.
    Serving,
    /// The workers are replaced, slot by slot, with workers of the generation `target`.
    Reloading { target: Generation },
    /// A canary starts, or the master is about to become its image.
    Upgrading,
    /// Every worker drains or was killed. The server ends with `outcome` when they are gone.
    Draining { outcome: Outcome, urgency: Urgency },
    /// `Finish` was the last action.
    Finished,
}

/// How often a server that ends was asked to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Urgency {
    /// Never: it ends because of an error.
    Unasked,
    /// Once, to drain, at this time. The next `Stop` counts as `Stop::Now`, unless it comes so soon
    /// that it repeats the first one.
    Asked { at: Time },
    /// To stop now. Every worker was killed.
    Hastened,
}

impl Supervisor {
    /// A server that starts: `next_action` returns a `Spawn` for each slot.
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

    /// Takes a command or a fact. It ignores events about workers that it does not know.
    pub(crate) fn handle(&mut self, event: Event, now: Time) {
        #[cfg(any(test, debug_assertions))]
        let before = invariants::Before::event(self, event);
        self.now = self.now.max(now);
        match event {
            Event::ReloadAsked => self.reload_asked(),
            Event::Reload => self.reload(),
            Event::ReloadRefused => self.reload_refused(),
            Event::Upgrade => self.upgrade_asked(),
            Event::Resize(workers) => self.resize(workers),
            Event::ResizeBy(step) => self.resize_by(step),
            Event::Stop(stop) => self.stop(stop),
            Event::Interrupt => self.drain_server(Duration::ZERO),
            // The worker's deadline runs from its `Spawn`.
            Event::Spawned(_) => {}
            Event::SpawnFailed(worker) => self.gone(worker, Exit::Crash, Abandoned::NotSpawned),
            Event::Ready(worker) => self.ready(worker),
            Event::Leaving(worker) => self.leaving(worker),
            Event::Exited(worker, Exit::Misconfigured) => {
                self.gone(worker, Exit::Misconfigured, Abandoned::Misconfigured);
            }
            Event::Exited(worker, exit) => self.gone(worker, exit, Abandoned::Died),
            Event::Hung(worker) => self.hung(worker),
            Event::Recycle(worker, asker) => self.recycle_asked(worker, asker),
            Event::NotAdopted { slot, by } => self.not_adopted(slot, by),
            Event::HookRefused => self.end(Outcome::HookRefused, Urgency::Unasked),
            Event::CanaryIncompatible => self.give_up_canary(Abandoned::Incompatible),
            Event::UpgradeFailed => self.give_up_canary(Abandoned::ExecFailed),
            Event::UpgradeTried => self.give_up_canary(Abandoned::DryRun),
        }
        self.settle();
        #[cfg(any(test, debug_assertions))]
        before.check(self);
    }

    /// Acts on every deadline that `now` has reached. A call before the next deadline does nothing.
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

    /// The next thing to do. Call it after `new`, `handle` and `handle_timeout` until it returns
    /// `None`.
    pub(crate) fn next_action(&mut self) -> Option<Action> {
        // This image carries out all other actions first, so that the next one has none to do.
        if self.actions.front() == Some(&Action::ExecInPlace) {
            self.actions.rotate_left(1);
        }
        self.actions.pop_front()
    }

    /// When to call `handle_timeout` if nothing happens before. It changes with each `handle` and
    /// `handle_timeout`.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        let canary = self.canary.as_ref().and_then(Worker::deadline);
        self.entries
            .iter()
            .filter_map(SlotEntry::next_deadline)
            .chain(canary)
            .min()
    }

    #[cfg(test)]
    pub(crate) fn phase(&self) -> Phase {
        self.phase
    }

    /// Whether the server ends, for whatever reason.
    pub(crate) fn is_draining(&self) -> bool {
        matches!(self.phase, Phase::Draining { .. } | Phase::Finished)
    }

    /// Asks for the difference between the state and the wanted state.
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
            self.start_recycling();
        }
        self.conclude_end();
    }

    /// Ends the first start when every slot has had a ready worker, or ends the server when the
    /// first worker of every slot has failed.
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
            if entry.is_vacant() && entry.may_get_one_more() {
                let worker = self.spawn(slot);
                self.entry_mut(slot).hold(worker);
            }
        }
    }

    /// Spawns every worker but the canary, which has an action of its own.
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
            recycle: worker::Recycle::No,
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
