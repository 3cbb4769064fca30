//! Decides for which workers the kernel keeps a new connection until its first byte has come
//! (`TCP_DEFER_ACCEPT`). It reads no clock and makes no system call; `collect.rs` does both.
//!
//! A worker that accepts such a connection can read at once. Otherwise it accepts the connection,
//! finds nothing to read, and asks the kernel to be woken up by the request. That is right while it
//! has time: the connection has woken it up, and it is awake when the request comes. If it has no
//! time, it is a third of its work. How busy a thread was does not show that well: the client may
//! be as busy, and the kernel's own work is not always in that time. How often it slept does. A
//! worker that has time sleeps once for each connection or more, one that has none hardly ever.
//!
//! A look finds a *rush* if the worker accepted at least [`MANY`], and ran anew for fewer than
//! [`RUSH`] of ten. It finds a *calm* if the worker accepted fewer than [`FEW`], or ran anew for
//! [`CALM`] of ten or more. A worker of which this is not known keeps its state.
//!
//! | | rush | neither | calm |
//! |---|---|---|---|
//! | `Prompt` | `Rush` | `Prompt` | `Prompt` |
//! | `Rush` | `Defers` | `Prompt` | `Prompt` |
//! | `Defers` | `Defers` | `Defers` | `Calm` |
//! | `Calm` | `Defers` | `Defers` | `Prompt` |

use std::collections::BTreeMap;

use crate::id::WorkerId;
use crate::master::balance::policy::{Arrivals, Load};

/// In a rush a worker accepts so many connections per second or more. If there are fewer, what it
/// would save is less than a hundredth of its time.
const MANY: u64 = 500;

/// In a calm a worker accepts fewer connections per second.
const FEW: u64 = 250;

/// In a rush a worker runs anew for fewer than this of ten connections. With one client it was for
/// ten, with two and three for nine, with four for seven, with eight for six, with 64 for two.
const RUSH: u64 = 8;

/// In a calm a worker runs anew for so many of ten connections or more. When it defers it was for
/// ten with one client, with two for five, with four for three.
const CALM: u64 = 9;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Prompt,
    /// A rush at one look. That may have been a single burst.
    Rush,
    Defers,
    /// It defers, and the last look has found a calm.
    Calm,
}

/// What each worker was at the last look.
#[derive(Debug, Default)]
pub(crate) struct Deferring(BTreeMap<WorkerId, State>);

impl Deferring {
    pub(crate) fn look(&mut self, loads: &[Load]) {
        for load in loads {
            let Some(Arrivals { connections, runs }) = load.arrivals else {
                continue;
            };
            let of_ten = runs.saturating_mul(10) / connections.max(1);
            let is_rush = connections >= MANY && of_ten < RUSH;
            let is_calm = !is_of_use(load) || of_ten >= CALM;
            let state = self.0.entry(load.worker).or_default();
            *state = match *state {
                State::Prompt if is_rush => State::Rush,
                State::Rush if is_rush => State::Defers,
                State::Prompt | State::Rush => State::Prompt,
                State::Defers if is_calm => State::Calm,
                State::Calm if is_calm => State::Prompt,
                State::Defers | State::Calm => State::Defers,
            };
        }
    }

    /// Forgets workers that have ended.
    pub(crate) fn retain(&mut self, lives: impl Fn(WorkerId) -> bool) {
        self.0.retain(|&worker, _| lives(worker));
    }

    /// Whether the kernel is to keep connections of this worker.
    pub(crate) fn defers(&self, worker: WorkerId) -> bool {
        matches!(self.0.get(&worker), Some(State::Defers | State::Calm))
    }
}

/// Whether a worker accepts so many connections that to defer them is of use, if it has no time.
pub(crate) fn is_of_use(load: &Load) -> bool {
    load.arrivals.is_some_and(|it| it.connections >= FEW)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::Slot;

    const WORKER: WorkerId = WorkerId(7);

    /// Connections and runs.
    type Look = (u64, u64);

    const IS_RUSH: Look = (MANY, MANY * RUSH / 10 - 1);
    const IS_NEITHER: Look = (MANY, MANY * RUSH / 10);
    const IS_CALM: Look = (MANY, MANY);

    fn load((connections, runs): Look) -> Load {
        Load {
            worker: WORKER,
            slot: Slot(0),
            served: 8,
            room: 1000,
            busy: None,
            arrivals: Some(Arrivals { connections, runs }),
        }
    }

    fn after(looks: &[Look]) -> State {
        let mut deferring = Deferring::default();
        for look in looks {
            deferring.look(&[load(*look)]);
        }
        deferring.0[&WORKER]
    }

    #[test]
    fn the_table_is_what_the_looks_do() {
        for (before, rush, neither, calm) in [
            (&[][..], State::Rush, State::Prompt, State::Prompt),
            (&[IS_RUSH], State::Defers, State::Prompt, State::Prompt),
            (&[IS_RUSH; 2], State::Defers, State::Defers, State::Calm),
            (
                &[IS_RUSH, IS_RUSH, IS_CALM],
                State::Defers,
                State::Defers,
                State::Prompt,
            ),
        ] {
            for (look, expected) in [(IS_RUSH, rush), (IS_NEITHER, neither), (IS_CALM, calm)] {
                let looks = [before, &[look]].concat();
                assert_eq!(after(&looks), expected, "{looks:?}");
            }
        }
    }

    #[test]
    fn a_rush_is_many_connections_and_few_runs() {
        for (look, is_rush) in [
            ((MANY, 0), true),
            ((MANY - 1, 0), false),
            ((10_000, 7_999), true),
            ((10_000, 8_000), false),
            ((0, 0), false),
        ] {
            assert_eq!(after(&[look; 2]) == State::Defers, is_rush, "{look:?}");
        }
    }

    #[test]
    fn a_calm_is_few_connections_or_many_runs() {
        for (look, is_calm) in [
            ((FEW, 0), false),
            ((FEW - 1, 0), true),
            ((10_000, 8_999), false),
            ((10_000, 9_000), true),
            ((0, u64::MAX), true),
        ] {
            let state = after(&[IS_RUSH, IS_RUSH, look, look]);
            assert_eq!(state == State::Prompt, is_calm, "{look:?}");
        }
    }

    #[test]
    fn a_worker_of_which_nothing_is_known_keeps_its_state() {
        let mut deferring = Deferring::default();
        let unknown = Load {
            arrivals: None,
            ..load(IS_CALM)
        };
        deferring.look(&[load(IS_RUSH)]);
        deferring.look(&[]);
        deferring.look(&[unknown]);
        assert!(!deferring.defers(WORKER));
        deferring.look(&[load(IS_RUSH)]);
        assert!(deferring.defers(WORKER));
        deferring.retain(|worker| worker == WORKER);
        assert!(deferring.defers(WORKER));
        deferring.retain(|worker| worker != WORKER);
        assert!(!deferring.defers(WORKER), "it has ended");
    }
}
