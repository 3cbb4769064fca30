//! Decides which workers give connections away because they are busy all the time while another
//! worker is not. It reads no clock and makes no system call; `collect.rs` does both.
//!
//! Even numbers of connections are not even work. One client may ask for what takes long, and
//! another process may need the worker's CPU. Then the connections of that worker wait, and those
//! of its siblings do not. A worker that sheds gives some of its connections away at each look,
//! until another one is nearly as busy, or until it has one connection left: what it waits for may
//! be this one. As long as it has much to do, it gets none, although it has fewer: none back, and
//! no new ones from its siblings.
//!
//! A worker is calm if it was busy for [`CALM`] or less. A worker that is not overloaded is calm
//! too if it was less busy than all others: then more connections are right for it.
//!
//! | | overloaded, another is free | overloaded | neither | calm |
//! |---|---|---|---|---|
//! | `Even` | `Overloaded` | `Even` | `Even` | `Even` |
//! | `Overloaded` | `Sheds`, gives | `Even` | `Even` | `Even` |
//! | `Sheds` | `Sheds`, gives | `Sheds` | `Sheds` | `Sheds`; after [`CALM_LOOKS`] in a row `Even` |

use std::collections::BTreeMap;

use crate::id::WorkerId;
use crate::master::balance::policy::{Load, SHARE_MAX, Share};

/// A worker that was busy for so many thousandths of the time is overloaded.
const OVERLOADED: u64 = 950;

/// A worker that was busy for no more thousandths of the time is calm.
const CALM: u64 = 600;

/// So long, in looks, a client may pause that keeps a worker overloaded.
const CALM_LOOKS: u8 = 8;

/// Overloaded workers give connections to one that was busy for fewer thousandths of the time, and
/// not more connections than make it as busy as this.
const FULL: u64 = 850;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Even,
    /// At one look. That may have been a single request.
    Overloaded,
    Sheds {
        /// How many looks have found it calm.
        calm: u8,
    },
}

/// What each worker was at the last look.
#[derive(Debug, Default)]
pub(crate) struct Shedding(BTreeMap<WorkerId, State>);

impl Shedding {
    /// What the overloaded workers are to give. No two of them give to the same, and none to one
    /// that is or was overloaded itself.
    pub(crate) fn look(&mut self, loads: &[Load]) -> Vec<Share> {
        let mut known: Vec<_> = loads.iter().filter(|load| load.busy.is_some()).collect();
        known.sort_by_key(|load| load.busy);
        let second = known.get(1).and_then(|load| load.busy);
        let free: Vec<_> = known.iter().filter(|load| self.is_free(load)).collect();
        let mut free = free.into_iter().peekable();
        let mut shares = Vec::new();
        for from in known.iter().rev() {
            let state = self.0.get(&from.worker).copied().unwrap_or_default();
            let busy = from.busy.unwrap_or_default();
            let is_overloaded = busy >= OVERLOADED;
            // Nobody but the first is less busy than the second.
            let is_least = Some(busy) < second;
            let is_calm = busy <= CALM || (is_least && !is_overloaded);
            let to = free.peek().filter(|_| is_overloaded && from.served > 1);
            let state = match (state, to) {
                (State::Even, Some(_)) => State::Overloaded,
                (State::Overloaded | State::Sheds { .. }, Some(to)) => {
                    shares.extend(share(from, to, state == State::Overloaded));
                    free.next();
                    State::Sheds { calm: 0 }
                }
                (State::Sheds { .. }, _) if !is_calm => State::Sheds { calm: 0 },
                (State::Sheds { calm }, _) if calm < CALM_LOOKS => State::Sheds { calm: calm + 1 },
                _ => State::Even,
            };
            self.0.insert(from.worker, state);
        }
        shares
    }

    /// Forgets workers that have ended. One that cannot be asked for a while keeps its state.
    pub(crate) fn retain(&mut self, lives: impl Fn(WorkerId) -> bool) {
        self.0.retain(|&worker, _| lives(worker));
    }

    /// Whether a worker gets no connections, although it may have fewer than others.
    pub(crate) fn gets_none(&self, worker: WorkerId) -> bool {
        let state = self.0.get(&worker);
        matches!(state, Some(State::Overloaded | State::Sheds { .. }))
    }

    /// Whether a worker gives connections away, or has done so and is not yet calm.
    pub(crate) fn sheds(&self, worker: WorkerId) -> bool {
        matches!(self.0.get(&worker), Some(State::Sheds { .. }))
    }

    fn is_free(&self, load: &Load) -> bool {
        let has_time = load.busy.is_some_and(|busy| busy < FULL);
        has_time && load.room > 0 && !self.gets_none(load.worker)
    }
}

/// How many connections make both equally busy if all are equal; half of that at first. If the
/// worker is still overloaded after that, few connections cause it, and the others are to go. No
/// more go than keep the receiver from being overloaded, if they are like those of the one or of
/// the other. One connection stays.
fn share(from: &Load, to: &Load, is_first: bool) -> Option<Share> {
    let (busy, other) = (from.busy?.max(1), to.busy?.max(1));
    let surplus = from.served * busy.saturating_sub(other) / busy;
    let surplus = if is_first { surplus / 2 } else { surplus };
    let time = FULL.saturating_sub(other);
    let fitting = (to.served * time / other).max(from.served * time / busy);
    let most = from.served.saturating_sub(1).min(to.room).min(SHARE_MAX);
    let connections = surplus.max(1).min(fitting).min(most);
    (connections > 0).then_some(Share {
        from: from.worker,
        to: to.slot,
        connections,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::Slot;

    /// Workers 0, 1, .. in the slots of the same number.
    fn loads<const N: usize>(workers: [(u64, u64); N]) -> Vec<Load> {
        let loads = (0u16..).zip(workers).map(|(at, (served, busy))| Load {
            worker: WorkerId(at.into()),
            slot: Slot(at),
            served,
            room: 1000,
            busy: Some(busy),
            arrivals: None,
        });
        loads.collect()
    }

    fn given(from: u64, to: u16, connections: u64) -> Share {
        Share {
            from: WorkerId(from),
            to: Slot(to),
            connections,
        }
    }

    /// Who gives, and to which slot.
    fn pairs(given: &[Share]) -> Vec<(u64, u16)> {
        let pairs = given.iter().map(|share| (share.from.0, share.to.0));
        pairs.collect()
    }

    /// What is given at each of the looks.
    fn looks<const L: usize>(looks: [&[Load]; L]) -> [Vec<Share>; L] {
        let mut shedding = Shedding::default();
        looks.map(|loads| shedding.look(loads))
    }

    #[test]
    fn a_worker_that_is_overloaded_at_two_looks_gives_to_one_that_is_free() {
        let loads = loads([(32, 1000), (32, 400)]);
        let [first, second, third] = looks([&loads, &loads, &loads]);
        assert_eq!(first, []);
        assert_eq!(second, [given(0, 1, 9)], "half of what makes them even");
        assert_eq!(third, [given(0, 1, 19)], "all of that");
    }

    #[test]
    fn a_single_look_is_forgotten() {
        let (over, calm) = (loads([(4, 1000), (4, 100)]), loads([(4, 300), (4, 100)]));
        let given = looks([&over, &calm, &over, &calm]);
        assert!(given.iter().all(Vec::is_empty), "{given:?}");
    }

    #[test]
    fn nothing_is_given_where_nobody_has_time() {
        for workers in [
            [(32, 1000), (32, FULL)],
            [(32, 1000), (32, 1000)],
            [(32, OVERLOADED - 1), (32, 0)],
            [(1, 1000), (63, 0)],
            [(2, 1000), (1, 750)],
        ] {
            let loads = loads(workers);
            let given = looks([&loads, &loads, &loads]);
            assert!(given.iter().all(Vec::is_empty), "{workers:?}: {given:?}");
        }
        let mut full = loads([(32, 1000), (32, 100)]);
        full[1].room = 0;
        assert_eq!(looks([&full, &full])[1], []);
        full[1].room = 1000;
        full[1].busy = None;
        assert_eq!(looks([&full, &full])[1], [], "nobody knows");
    }

    #[test]
    fn each_overloaded_worker_gives_to_another_one() {
        let loads = loads([(8, 980), (8, 100), (8, 1000), (8, 200), (8, 990)]);
        let [_, given] = looks([&loads, &loads]);
        assert_eq!(pairs(&given), [(2, 1), (4, 3)], "the busiest to the freest");
    }

    #[test]
    fn the_receiver_does_not_become_overloaded() {
        let loads = loads([(100, 1000), (10, 800)]);
        let [_, _, third] = looks([&loads, &loads, &loads]);
        assert_eq!(
            third,
            [given(0, 1, 5)],
            "a hundred have 1000, so five have 50"
        );
    }

    #[test]
    fn a_worker_that_sheds_gets_nothing_back_until_it_has_been_calm() {
        let mut shedding = Shedding::default();
        let over = loads([(4, 1000), (4, 100)]);
        shedding.look(&over);
        assert!(shedding.gets_none(WorkerId(0)), "once");
        assert!(!shedding.sheds(WorkerId(0)), "once");
        shedding.look(&over);
        assert!(shedding.sheds(WorkerId(0)) && shedding.gets_none(WorkerId(0)));
        let busy = loads([(1, CALM + 1), (7, 500)]);
        let calm = loads([(1, CALM), (7, 500)]);
        for _ in 0..CALM_LOOKS {
            shedding.look(&calm);
        }
        shedding.look(&busy);
        for _ in 0..CALM_LOOKS {
            shedding.look(&calm);
            assert!(shedding.gets_none(WorkerId(0)));
        }
        let without = shedding.look(&calm[1..]);
        assert_eq!(without, [], "a look without it changes nothing");
        assert!(shedding.gets_none(WorkerId(0)));
        shedding.look(&calm);
        assert!(!shedding.gets_none(WorkerId(0)));
        assert!(!shedding.gets_none(WorkerId(1)));
    }

    /// Otherwise a steady load of all would leave it out for ever.
    #[test]
    fn a_worker_that_is_less_busy_than_all_others_is_calm() {
        for (busy, others, gets_none) in [
            (700, [710, 900], false),
            (700, [700, 900], true),
            (700, [300, 900], true),
            (OVERLOADED, [1000, 1000], true),
        ] {
            let mut shedding = Shedding::default();
            let over = loads([(4, 1000), (4, 100), (4, 100)]);
            shedding.look(&over);
            shedding.look(&over);
            let [second, third] = others;
            let then = loads([(1, busy), (5, second), (6, third)]);
            for _ in 0..=CALM_LOOKS {
                shedding.look(&then);
            }
            assert_eq!(
                shedding.gets_none(WorkerId(0)),
                gets_none,
                "{busy} {others:?}"
            );
        }
    }

    #[test]
    fn a_worker_that_sheds_gets_nothing_from_another_overloaded_one() {
        let mut shedding = Shedding::default();
        let first = loads([(4, 1000), (4, 100)]);
        shedding.look(&first);
        shedding.look(&first);
        let then = loads([(2, 100), (6, 1000)]);
        let given = [0; 3].map(|_| shedding.look(&then));
        assert!(given.iter().all(Vec::is_empty), "{given:?}");
    }

    #[test]
    fn an_overloaded_worker_with_one_connection_takes_no_receiver_from_another() {
        let loads = loads([(1, 1000), (8, 990), (8, 100)]);
        let [_, given] = looks([&loads, &loads]);
        assert_eq!(pairs(&given), [(1, 2)]);
    }

    /// One connection keeps its worker busy, whatever else this worker has.
    #[test]
    fn all_connections_leave_a_worker_that_one_keeps_busy() {
        let mut shedding = Shedding::default();
        let mut served = [33, 32];
        for _ in 0..20 {
            let loads = loads([(served[0], 1000), (served[1], served[1] * 12)]);
            for share in shedding.look(&loads) {
                served[0] -= share.connections;
                served[1] += share.connections;
            }
        }
        assert_eq!(served, [1, 64]);
    }
}
