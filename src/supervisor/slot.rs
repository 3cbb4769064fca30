//! A slot and its workers: the table says what each event means in each state.

use std::time::Duration;

use crate::drain::Idle;
use crate::id::{Slot, WorkerId};
use crate::supervisor::crash::{Strikes, Verdict};
use crate::supervisor::policy::{DRAINING_MAX, HASTY, LEAVING_MAX};
use crate::supervisor::time::Time;
use crate::supervisor::worker::{Worker, WorkerState};
use crate::supervisor::{Abandoned, Action, Change, Exit, Outcome, Phase, Supervisor, Urgency};

/// A slot, and the workers in it.
///
/// | worker \ event | `Ready` | gone (`Exited`, `SpawnFailed`) | deadline passes |
/// |---|---|---|---|
/// | Starting | Serving, notify | crash, whatever the code | Killed |
/// | Serving | ignore | code 0: respawn, (4); else crash | (has none) |
/// | Aborted, still the holder | ignore | crash | Killed |
/// | Killed, still the holder | ignore | crash | leaves, Stuck, crash |
/// | Draining | ignore | forget | Killed |
/// | Aborted, leaving | ignore | forget | Killed |
/// | Killed, leaving | ignore | forget | Stuck |
/// | Stuck, always leaving | ignore | forget | (has none) |
/// | Starting, successor | Serving, the holder drains | the holder stays, (1, 3) | Killed, (1, 3) |
/// | Starting, alone, (2) | Serving, notify | the slot rests, (1) | Killed, the slot rests, (1) |
/// | slot in Backoff | (no worker) | (no worker) | Spawn |
///
/// (1) The reload is abandoned, and no crash is counted. (2) In a slot that was vacant when the
/// running reload came to it, so that the reload's generation is tried there at once. (3) If it
/// replaces a worker that asked: no crash is counted, and the holder may ask again. `Recycle`
/// counts only from a worker that serves. (4) At once; but if it has served for less than `HASTY`,
/// the slot gets a strike, which the crash limit does not count, and may rest.
///
/// | worker \ event | `Hung` | `Leaving` | drain asked | `Stop::Now` |
/// |---|---|---|---|---|
/// | Starting, in any role | ignore | ignore | Draining | Killed |
/// | Serving | Aborted, notify | Draining, respawn, (4) | Draining | Killed |
/// | Aborted, still the holder | ignore | ignore | leaves, stays Aborted | leaves, Killed |
/// | Killed, still the holder | ignore | ignore | leaves, stays Killed | leaves, stays Killed |
/// | Draining | ignore | ignore | no change | Killed |
/// | Aborted, leaving | ignore | ignore | no change | Killed |
/// | Killed or Stuck, leaving | ignore | ignore | no change | no change |
/// | slot in Backoff | (no worker) | (no worker) | Vacant, no Spawn | Vacant, no Spawn |
///
/// *Crash:* the supervisor notes the time. Beyond the limit the server ends; else the slot respawns
/// at once or after `Backoff`. The reserved exit code ends the server too, with its own outcome. A
/// worker that was killed while it held its slot (it hung, it was not ready in time) counts as one
/// crash, when its process is gone or it is stuck. Until then no other worker starts in its place.
/// `SpawnFailed` is no crash if all workers were ready once and another one serves: the slot rests,
/// and the shortage may be over then.
///
/// *Drain asked* comes from a reload (the successor is ready), from a resize (the slot is retired,
/// and a wanted slot has a worker that serves) or from the end of the server. In the first two
/// cases another worker attends to the slot and gets the idle connections. At the end of the server
/// all draining workers close them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct SlotEntry {
    pub(super) holder: Holder,
    /// Workers that were asked to leave, oldest first. Each is Draining, Aborted, Killed or Stuck.
    pub(super) leaving: Vec<Worker>,
    /// The worker of another slot that attends to this slot's listeners.
    pub(super) adopter: Option<WorkerId>,
    /// Workers of other slots that could not adopt this one.
    pub(super) failed_adopters: FailedAdopters,
    pub(super) strikes: Strikes,
    pub(super) first_start: FirstStart,
}

/// The worker that holds the slot. It is Starting, Serving, Aborted or Killed, never Draining.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Holder {
    /// No worker. If the slot is wanted, `settle` spawns one.
    #[default]
    Vacant,
    /// One worker.
    Held(Worker),
    /// In a reload, or because `old` has asked to be replaced. `old` holds the slot until `new`,
    /// which is Starting, is ready.
    Replacing { old: Worker, new: Worker },
    /// No worker until then.
    Backoff { until: Time },
}

/// Workers of other slots that could not adopt a slot. After some time they may be asked again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum FailedAdopters {
    #[default]
    None,
    Until {
        workers: Vec<WorkerId>,
        again: Time,
    },
}

/// What became of the slot's first worker. It matters for the first start only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum FirstStart {
    #[default]
    Pending,
    Failed,
    /// A worker of the slot has been ready.
    Ready,
}

/// What a worker is to its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SlotRole {
    Holder,
    Successor,
    Leaving,
}

impl Supervisor {
    pub(super) fn ready(&mut self, id: WorkerId) {
        if self.is_canary(id) {
            return self.canary_ready();
        }
        let since = self.now;
        let Some((slot, role)) = self.locate(id) else {
            return;
        };
        let entry = self.entry_mut(slot);
        let (mut worker, old) = match (role, std::mem::take(&mut entry.holder)) {
            (SlotRole::Holder, Holder::Held(worker)) if worker.is_starting() => (worker, None),
            (SlotRole::Successor, Holder::Replacing { old, new }) => (new, Some(old)),
            (_, holder) => {
                entry.holder = holder;
                return;
            }
        };
        worker.state = WorkerState::Serving { since };
        let generation = worker.generation;
        entry.holder = Holder::Held(worker);
        entry.first_start = FirstStart::Ready;
        self.proven = self.proven.max(generation);
        self.notify(Change::WorkerReady(id, slot, generation));
        if let Some(old) = old {
            self.note_service(slot, &old);
            let was_aborted_or_killed = old.is_aborted_or_killed();
            self.drain_out(slot, old);
            if was_aborted_or_killed {
                self.crashed(slot);
            }
        }
    }

    pub(super) fn gone(&mut self, id: WorkerId, exit: Exit, why: Abandoned) {
        if self.is_canary(id) {
            return self.canary_gone(why);
        }
        match self.locate(id) {
            Some((slot, SlotRole::Leaving)) => {
                self.entry_mut(slot)
                    .leaving
                    .retain(|worker| worker.id != id);
            }
            Some((slot, SlotRole::Successor)) => {
                let new = self.entry_mut(slot).take_successor();
                if self.is_reload_of(&new) {
                    self.abandon_reload_of(&new, why);
                } else {
                    self.replacement_failed(slot);
                }
            }
            Some((slot, SlotRole::Holder)) => self.holder_gone(slot, exit, why),
            None => {}
        }
    }

    fn holder_gone(&mut self, slot: Slot, exit: Exit, why: Abandoned) {
        let Some(worker) = self.entry_mut(slot).take_holder() else {
            return;
        };
        self.note_service(slot, &worker);
        if worker.is_starting() && self.is_reload_of(&worker) {
            self.rest(slot);
            self.abandon_reload_of(&worker, why);
        } else if exit == Exit::Misconfigured {
            self.end(Outcome::Misconfigured, Urgency::Unasked);
        } else if why == Abandoned::NotSpawned && self.goes_on_without(slot) {
            self.rest(slot);
        } else if !(worker.is_serving() && exit == Exit::Clean) {
            self.crashed(slot);
        } else {
            self.rest_if_hasty(slot, worker.served(self.now));
        }
    }

    /// The slot gets another worker now: a drain may take long, and this worker accepts no more.
    pub(super) fn leaving(&mut self, id: WorkerId) {
        let Some((slot, SlotRole::Holder)) = self.locate(id) else {
            return;
        };
        if self.entry(slot).server().is_none() {
            return;
        }
        if let Some(worker) = self.entry_mut(slot).take_holder() {
            self.note_service(slot, &worker);
            let served = worker.served(self.now);
            self.drain_out(slot, worker);
            self.rest_if_hasty(slot, served);
        }
    }

    pub(super) fn hung(&mut self, id: WorkerId) {
        let Some((slot, SlotRole::Holder)) = self.locate(id) else {
            return;
        };
        let deadline = self.now + self.policy.abort_grace;
        let Some(worker) = self.entry_mut(slot).holder_mut() else {
            return;
        };
        if !worker.is_serving() {
            return;
        }
        let hung = worker.clone();
        worker.state = WorkerState::Aborted { deadline };
        self.note_service(slot, &hung);
        self.notify(Change::WorkerHung(id, slot, hung.generation));
        self.actions.push_back(Action::Abort(id));
    }

    /// Counts a crash in `slot`. If the slot is vacant, it rests.
    pub(super) fn crashed(&mut self, slot: Slot) {
        let entry = self.entry_mut(slot);
        if entry.first_start == FirstStart::Pending {
            entry.first_start = FirstStart::Failed;
        }
        let limit = self.policy.crash_limit;
        match self.crashes.note(self.now, limit) {
            Verdict::Bearable => self.rest(slot),
            // A program that cannot start may reach the limit before every slot has failed.
            Verdict::TooMany { .. } if self.phase == Phase::Starting && !self.any_was_ready() => {
                self.end(Outcome::NeverReady, Urgency::Unasked);
            }
            Verdict::TooMany { crashes } => {
                let per = limit.per;
                self.end(Outcome::CrashLimit { crashes, per }, Urgency::Unasked);
            }
        }
    }

    /// Adds a strike. A vacant slot stays vacant for as long as its strikes demand.
    pub(super) fn rest(&mut self, slot: Slot) {
        if slot.0 >= self.workers.get() {
            // A retired slot gets no other worker.
            return;
        }
        let pause = self.strike(slot);
        if let Some(pause) = pause.filter(|_| self.entry(slot).is_vacant()) {
            let until = self.now + pause;
            self.entry_mut(slot).holder = Holder::Backoff { until };
            self.notify(Change::BackingOff { slot, pause });
        }
    }

    /// As `rest`, if a worker that leaves by itself has served for less than `HASTY`.
    fn rest_if_hasty(&mut self, slot: Slot, served: Option<Duration>) {
        if served.is_some_and(|served| served < HASTY) {
            self.rest(slot);
        }
    }

    /// Adds a strike, and returns how long the slot has to pause for it.
    pub(super) fn strike(&mut self, slot: Slot) -> Option<Duration> {
        let entry = &mut self.entries[usize::from(slot.0)];
        entry.strikes.add(&self.policy.backoff, &mut self.jitter)
    }

    fn note_service(&mut self, slot: Slot, worker: &Worker) {
        if let Some(served) = worker.served(self.now) {
            let backoff = self.policy.backoff;
            self.entry_mut(slot).strikes.served(served, &backoff);
        }
    }

    /// Drains the workers that hold the slot.
    pub(super) fn vacate(&mut self, slot: Slot) {
        match std::mem::take(&mut self.entry_mut(slot).holder) {
            Holder::Vacant | Holder::Backoff { .. } => {}
            Holder::Held(worker) => self.drain_out(slot, worker),
            Holder::Replacing { old, new } => {
                self.drain_out(slot, old);
                self.drain_out(slot, new);
            }
        }
    }

    /// Drains a worker that was taken out of its slot.
    pub(super) fn drain_out(&mut self, slot: Slot, mut worker: Worker) {
        if !worker.is_aborted_or_killed() {
            self.drain(slot, &mut worker);
        }
        self.entry_mut(slot).leaving.push(worker);
    }

    pub(super) fn drain(&mut self, slot: Slot, worker: &mut Worker) {
        let deadline = self.now + self.policy.drain_timeout + self.policy.kill_grace;
        worker.state = WorkerState::Draining { deadline };
        let idle = match self.is_draining() {
            true => Idle::Close,
            false => Idle::HandOver,
        };
        self.actions.push_back(Action::Drain(worker.id, idle));
        self.notify(Change::WorkerDraining(worker.id, slot, worker.generation));
    }

    fn locate(&self, id: WorkerId) -> Option<(Slot, SlotRole)> {
        self.slots()
            .find_map(|slot| Some((slot, self.entry(slot).role_of(id)?)))
    }
}

impl SlotEntry {
    /// The worker that holds the slot, if it serves.
    pub(super) fn server(&self) -> Option<&Worker> {
        match &self.holder {
            Holder::Held(worker) | Holder::Replacing { old: worker, .. } => {
                Some(worker).filter(|worker| worker.is_serving())
            }
            Holder::Vacant | Holder::Backoff { .. } => None,
        }
    }

    pub(super) fn workers(&self) -> impl Iterator<Item = &Worker> {
        let (first, second) = match &self.holder {
            Holder::Vacant | Holder::Backoff { .. } => (None, None),
            Holder::Held(worker) => (Some(worker), None),
            Holder::Replacing { old, new } => (Some(old), Some(new)),
        };
        first.into_iter().chain(second).chain(&self.leaving)
    }

    pub(super) fn next_deadline(&self) -> Option<Time> {
        let rest = match &self.holder {
            Holder::Backoff { until } => Some(*until),
            Holder::Held(worker) => worker.pauses_until(),
            _ => None,
        };
        self.workers()
            .filter_map(Worker::deadline)
            .chain(rest)
            .chain(self.failed_adopters.again())
            .min()
    }

    /// Whether few enough workers leave the slot for its holder to be replaced.
    pub(super) fn may_replace(&self) -> bool {
        let draining = self.leaving.iter().filter(|worker| worker.is_draining());
        draining.count() < DRAINING_MAX && self.may_get_one_more()
    }

    /// Whether few enough workers leave the slot for another one to start in it.
    pub(super) fn may_get_one_more(&self) -> bool {
        self.leaving.len() < LEAVING_MAX
    }

    pub(super) fn is_vacant(&self) -> bool {
        self.holder == Holder::Vacant
    }

    pub(super) fn has_been_ready(&self) -> bool {
        self.first_start == FirstStart::Ready
    }

    pub(super) fn has_failed_first(&self) -> bool {
        self.first_start == FirstStart::Failed
    }

    pub(super) fn hold(&mut self, worker: Worker) {
        self.holder = Holder::Held(worker);
    }

    /// As `hold`, for a worker that was ready before it was given the slot.
    pub(super) fn hold_ready(&mut self, worker: Worker) {
        self.hold(worker);
        self.first_start = FirstStart::Ready;
    }

    pub(super) fn holder_mut(&mut self) -> Option<&mut Worker> {
        match &mut self.holder {
            Holder::Held(worker) | Holder::Replacing { old: worker, .. } => Some(worker),
            Holder::Vacant | Holder::Backoff { .. } => None,
        }
    }

    /// Takes the holder out. If there is a successor, it holds the slot from then on.
    pub(super) fn take_holder(&mut self) -> Option<Worker> {
        match std::mem::take(&mut self.holder) {
            Holder::Held(worker) => Some(worker),
            Holder::Replacing { old, new } => {
                self.holder = Holder::Held(new);
                Some(old)
            }
            holder => {
                self.holder = holder;
                None
            }
        }
    }

    /// Takes the successor out of a slot that is known to be in `Replacing`.
    pub(super) fn take_successor(&mut self) -> Worker {
        let Holder::Replacing { old, new } = std::mem::take(&mut self.holder) else {
            unreachable!("only a slot in Replacing has a successor");
        };
        self.holder = Holder::Held(old);
        new
    }

    /// Moves the workers that hold the slot to those that leave it.
    pub(super) fn move_to_leaving(&mut self) {
        match std::mem::take(&mut self.holder) {
            Holder::Vacant | Holder::Backoff { .. } => {}
            Holder::Held(worker) => self.leaving.push(worker),
            Holder::Replacing { old, new } => self.leaving.extend([old, new]),
        }
    }

    pub(super) fn retain_workers(&mut self, keep: impl Fn(&Worker) -> bool) {
        self.leaving.retain(&keep);
        self.holder = match std::mem::take(&mut self.holder) {
            Holder::Held(worker) if !keep(&worker) => Holder::Vacant,
            Holder::Replacing { old, new } if !keep(&new) => Holder::Held(old),
            holder => holder,
        };
    }

    fn role_of(&self, id: WorkerId) -> Option<SlotRole> {
        match &self.holder {
            Holder::Held(worker) if worker.id == id => return Some(SlotRole::Holder),
            Holder::Replacing { old, .. } if old.id == id => return Some(SlotRole::Holder),
            Holder::Replacing { new, .. } if new.id == id => return Some(SlotRole::Successor),
            _ => {}
        }
        self.leaving
            .iter()
            .any(|worker| worker.id == id)
            .then_some(SlotRole::Leaving)
    }
}
