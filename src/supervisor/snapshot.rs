//! What the next image takes over of the supervisor, and how it goes on from there.

use std::num::NonZeroU16;

use crate::codec::record;
use crate::id::{Generation, WorkerId};
use crate::supervisor::crash::{CrashWindow, Jitter};
#[cfg(any(test, debug_assertions))]
use crate::supervisor::invariants;
use crate::supervisor::policy::MAX_WORKERS;
use crate::supervisor::slot::{FailedAdopters, FirstStart, Holder, SlotEntry};
use crate::supervisor::upgrade::{CANARY_SLOT, PendingCommand};
use crate::supervisor::worker::{Recycle, Worker, WorkerState};
use crate::supervisor::{Change, Phase, Policy, Supervisor, Time};

/// A supervisor at the moment of `ExecInPlace`. The next image has its own policy, and the phase is
/// always `Upgrading`, so neither is part of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Snapshot {
    now: Time,
    /// How many slots the policy asked for. If `workers` differs, an operator has resized the
    /// server, and the policy of the next image does not change that.
    configured: NonZeroU16,
    workers: NonZeroU16,
    entries: Vec<SlotEntry>,
    canary: Worker,
    pending: Vec<PendingCommand>,
    newest: Generation,
    proven: Generation,
    last_worker: WorkerId,
    crashes: CrashWindow,
}

impl Snapshot {
    /// The latest time that an event or a timeout came with.
    pub(crate) fn now(&self) -> Time {
        self.now
    }

    /// How many slots there were.
    pub(crate) fn workers(&self) -> NonZeroU16 {
        self.workers
    }

    /// How many slots there are to be if the policy of the next image asks for so many.
    pub(crate) fn workers_after(&self, configured: NonZeroU16) -> NonZeroU16 {
        match self.workers == self.configured {
            true => configured,
            false => self.workers,
        }
    }

    /// Whether each slot has an entry, and there are not too many of them.
    fn has_its_entries(&self) -> bool {
        let entries = usize::from(self.workers.get())..=usize::from(MAX_WORKERS.get());
        entries.contains(&self.entries.len())
    }
}

impl Supervisor {
    /// What the next image needs to go on. Call it only for `ExecInPlace`.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let canary = self.canary.clone();
        Snapshot {
            now: self.now,
            configured: self.policy.workers.min(MAX_WORKERS),
            workers: self.workers,
            entries: self.entries.clone(),
            canary: canary.expect("`ExecInPlace` is taken back when the canary is gone"),
            pending: self.pending.clone(),
            newest: self.newest,
            proven: self.proven,
            last_worker: self.last_worker,
            crashes: self.crashes.clone(),
        }
    }

    /// Goes on where the supervisor of the image before stopped, with the same workers, and reloads
    /// every slot to this image. The canary runs this image already, so it gets its slot at once.
    pub(crate) fn resume(snapshot: Snapshot, policy: Policy, now: Time) -> Self {
        let wanted = snapshot.workers_after(policy.workers);
        let Snapshot {
            workers,
            mut crashes,
            canary,
            ..
        } = snapshot;
        crashes.truncate(policy.crash_limit);
        let mut supervisor = Self {
            now: now.max(snapshot.now),
            phase: Phase::Serving,
            workers,
            entries: snapshot.entries,
            canary: None,
            pending: snapshot.pending,
            newest: snapshot.newest,
            proven: snapshot.proven.max(canary.generation),
            last_worker: snapshot.last_worker,
            crashes,
            jitter: Jitter::new(policy.seed),
            actions: [].into(),
            policy,
        };
        supervisor.notify(Change::UpgradeFinished);
        supervisor.resize(wanted);
        supervisor.vacate(CANARY_SLOT);
        supervisor.entry_mut(CANARY_SLOT).hold_ready(canary);
        supervisor.reload_to_newest();
        supervisor.settle();
        #[cfg(any(test, debug_assertions))]
        invariants::check(&supervisor);
        supervisor
    }
}

record!(Snapshot {
    now,
    configured,
    workers,
    entries,
    canary,
    pending,
    newest,
    proven,
    last_worker,
    crashes,
} if Snapshot::has_its_entries);

record!(SlotEntry {
    holder,
    leaving,
    adopter,
    failed_adopters,
    strikes,
    first_start
});
record!(Worker {
    id,
    generation,
    state,
    recycle
});

record!(enum Holder {
    0 = Vacant,
    1 = Held(worker),
    2 = Replacing { old, new },
    3 = Backoff { until },
});

record!(enum WorkerState {
    0 = Starting { deadline },
    1 = Serving { since },
    2 = Draining { deadline },
    3 = Killed { deadline },
    4 = Aborted { deadline },
    5 = Stuck,
});

record!(enum FailedAdopters { 0 = None, 1 = Until { workers, again } });
record!(enum Recycle { 0 = No, 1 = Due, 2 = Pausing { until } });

record!(enum FirstStart { 0 = Pending, 1 = Failed, 2 = Ready });

record!(enum PendingCommand { 0 = Reload, 1 = Upgrade });
