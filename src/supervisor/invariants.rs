//! What must be true after every event, whatever the event was. Asserted in test and debug builds.
//!
//! `tests/watch.rs` is a second check, because each finds what the other cannot. This one sees the
//! state, so it finds an inconsistent state at the event that makes it, before an action is wrong.
//! It cannot find a state that is consistent but wrong, such as a worker that the supervisor has
//! forgotten. The other one sees only events and actions, and finds that.

use std::collections::BTreeSet;

use crate::supervisor::policy::{LEAVING_MAX, MAX_WORKERS};
use crate::supervisor::slot::{Holder, SlotEntry};
use crate::supervisor::worker::{Recycle, Worker};
use crate::supervisor::{Action, Event, Phase, Supervisor};

/// What the checks after an event need of the state before it.
pub(super) struct Before {
    phase: Phase,
    /// Wanted slots whose own worker serves.
    serving: usize,
    /// Workers that serve in any slot.
    servers: usize,
    cause: Cause,
}

/// Whether an event may take a serving worker away.
#[derive(PartialEq, Eq)]
enum Cause {
    /// It may.
    Loss,
    /// It may, but not the last one.
    Resize,
    Other,
}

impl Before {
    pub(super) fn event(supervisor: &Supervisor, event: Event) -> Self {
        let cause = match event {
            Event::Exited(..) | Event::SpawnFailed(_) | Event::Hung(_) => Cause::Loss,
            Event::Leaving(_) => Cause::Loss,
            Event::Resize(_) | Event::ResizeBy(_) => Cause::Resize,
            _ => Cause::Other,
        };
        Self::new(supervisor, cause)
    }

    pub(super) fn timeout(supervisor: &Supervisor) -> Self {
        Self::new(supervisor, Cause::Other)
    }

    fn new(supervisor: &Supervisor, cause: Cause) -> Self {
        Self {
            phase: supervisor.phase,
            serving: serving(supervisor),
            servers: servers(&supervisor.entries),
            cause,
        }
    }

    pub(super) fn check(&self, supervisor: &Supervisor) {
        check(supervisor);
        if supervisor.is_draining() || self.cause == Cause::Loss {
            return;
        }
        assert!(
            self.servers == 0 || servers(&supervisor.entries) > 0,
            "7: the last worker that served was asked to leave: {supervisor:#?}"
        );
        if matches!(self.phase, Phase::Reloading { .. }) && self.cause == Cause::Other {
            assert!(
                serving(supervisor) >= self.serving,
                "5: a reload cost a serving worker: {supervisor:#?}"
            );
        }
    }
}

/// The checks that do not need the state before the event.
pub(super) fn check(supervisor: &Supervisor) {
    check_workers(supervisor);
    check_deadlines(supervisor);
    check_phase(supervisor);
    check_adoption(supervisor);
    check_bounds(supervisor);
}

fn serving(supervisor: &Supervisor) -> usize {
    servers(&supervisor.entries[..usize::from(supervisor.workers.get())])
}

fn servers(entries: &[SlotEntry]) -> usize {
    let servers = entries.iter().filter_map(SlotEntry::server);
    servers.count()
}

/// 1: a slot has at most one current worker, and few workers that leave it.
fn check_workers(supervisor: &Supervisor) {
    for entry in &supervisor.entries {
        let fits = match &entry.holder {
            Holder::Vacant | Holder::Backoff { .. } => true,
            Holder::Held(worker) => !worker.is_draining() && !worker.is_stuck(),
            Holder::Replacing { old, new } => {
                new.is_starting()
                    && (old.is_serving() || old.is_aborted_or_killed())
                    && !old.is_stuck()
                    && (old.generation < new.generation || old.recycle == Recycle::Due)
            }
        };
        assert!(fits, "1: no such holder: {supervisor:#?}");
        let leaves = |worker: &Worker| worker.is_draining() || worker.is_aborted_or_killed();
        assert!(
            entry.leaving.iter().all(leaves),
            "1: one stays: {supervisor:#?}"
        );
        assert!(
            entry.leaving.len() <= LEAVING_MAX + 2,
            "1: too many leave: {supervisor:#?}"
        );
    }
    let ids: BTreeSet<_> = supervisor.workers().map(|worker| worker.id).collect();
    assert_eq!(
        ids.len(),
        supervisor.workers().count(),
        "1: one is in two places"
    );
}

/// 2: `next_deadline` is the least of all deadlines. The type of the state ensures that Starting
/// and Draining workers have a deadline.
fn check_deadlines(supervisor: &Supervisor) {
    let mut all: Vec<_> = supervisor.workers().filter_map(Worker::deadline).collect();
    all.extend(
        supervisor
            .entries
            .iter()
            .filter_map(|entry| match &entry.holder {
                Holder::Backoff { until } => Some(*until),
                Holder::Held(worker) => worker.pauses_until(),
                _ => None,
            }),
    );
    let entries = supervisor.entries.iter();
    all.extend(entries.filter_map(|entry| entry.failed_adopters.again()));
    all.sort();
    assert_eq!(
        supervisor.next_deadline(),
        all.first().copied(),
        "2: a deadline is missed"
    );
}

/// 3 and 6: each phase has what belongs to it and nothing else.
fn check_phase(supervisor: &Supervisor) {
    let (wanted, retired) = supervisor
        .entries
        .split_at(usize::from(supervisor.workers.get()));
    // 7: a worker serves in a retired slot only while no worker of a wanted slot serves.
    let alone = |entry: &SlotEntry| matches!(&entry.holder, Holder::Held(it) if it.is_serving());
    let stays = |entry: &SlotEntry| servers(wanted) == 0 && alone(entry);
    assert!(
        retired
            .iter()
            .all(|entry| entry.is_vacant() || stays(entry)),
        "7: a retired slot is held: {supervisor:#?}"
    );
    let canary_tried = supervisor
        .canary
        .as_ref()
        .is_some_and(|canary| canary.is_starting() || canary.is_serving());
    assert_eq!(
        canary_tried,
        supervisor.phase == Phase::Upgrading,
        "6: {supervisor:#?}"
    );
    if supervisor.is_draining() {
        assert!(
            supervisor.entries.iter().all(SlotEntry::is_vacant),
            "3: one stays: {supervisor:#?}"
        );
        let starts = |action: &Action| {
            matches!(
                action,
                Action::Spawn { .. } | Action::StartCanary { .. } | Action::ExecInPlace
            )
        };
        assert!(
            !supervisor.actions.iter().any(starts),
            "3: a start at the end: {supervisor:#?}"
        );
    } else {
        let filled = |entry: &SlotEntry| !entry.is_vacant() || entry.leaving.len() >= LEAVING_MAX;
        assert!(
            wanted.iter().all(filled),
            "a slot was forgotten: {supervisor:#?}"
        );
    }
    match supervisor.phase {
        Phase::Finished => {
            assert!(
                supervisor.workers().all(Worker::is_stuck),
                "3: one is left: {supervisor:#?}"
            );
            let finish = |action: &&Action| matches!(action, Action::Finish(_));
            assert!(
                supervisor.actions.iter().filter(finish).count() <= 1,
                "3: finished twice"
            );
        }
        Phase::Draining { .. } => {
            assert!(
                !supervisor.workers().all(Worker::is_stuck),
                "3: no end: {supervisor:#?}"
            );
        }
        _ => check_replaced(supervisor, wanted),
    }
}

/// 6: a reload replaces at most a batch of slots at a time. Without a reload at most one slot is
/// being replaced, and its worker has asked for it.
fn check_replaced(supervisor: &Supervisor, wanted: &[SlotEntry]) {
    let replacing = |entry: &&SlotEntry| matches!(entry.holder, Holder::Replacing { .. });
    let replaced = wanted.iter().filter(replacing).count();
    let most = match supervisor.phase {
        Phase::Reloading { target } => {
            assert_eq!(
                target, supervisor.newest,
                "6: an old target: {supervisor:#?}"
            );
            usize::from(supervisor.policy.reload_batch.get())
        }
        Phase::Serving => {
            let asked =
                |entry: &SlotEntry| entry.workers().any(|worker| worker.recycle == Recycle::Due);
            let for_it = wanted.iter().filter(replacing).all(asked);
            assert!(for_it, "6: replaced without need: {supervisor:#?}");
            1
        }
        _ => 0,
    };
    assert!(replaced <= most, "6: too many replaced: {supervisor:#?}");
}

/// 4: the slot's own worker attends to it, or another worker that serves and has not just failed to
/// adopt it. At the end of the server no worker has to.
fn check_adoption(supervisor: &Supervisor) {
    let serving: BTreeSet<_> = supervisor
        .entries
        .iter()
        .filter_map(SlotEntry::server)
        .map(|worker| worker.id)
        .collect();
    for entry in &supervisor.entries {
        let attended = match entry.adopter {
            Some(by) => entry.server().is_none() && serving.contains(&by),
            None => {
                let able = serving.iter().any(|&id| !entry.failed_adopters.has(id));
                entry.server().is_some() || !able || supervisor.is_draining()
            }
        };
        assert!(attended, "4: a slot is badly attended: {supervisor:#?}");
    }
}

/// 6: nothing grows without a limit. The master empties `actions`.
fn check_bounds(supervisor: &Supervisor) {
    let crashes = u32::try_from(supervisor.crashes.len()).expect("few crashes");
    assert!(
        crashes <= supervisor.policy.crash_limit.max.saturating_add(1),
        "6: crashes"
    );
    assert!(
        supervisor.workers <= MAX_WORKERS,
        "6: more slots than there may be"
    );
    assert!(
        supervisor.entries.len() <= usize::from(MAX_WORKERS.get()),
        "6: entries"
    );
    assert!(supervisor.pending.len() <= 2, "6: pending");
}
