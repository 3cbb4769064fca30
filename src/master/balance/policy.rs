//! Decides which worker gives connections to which slot, so that no worker has much more to do than
//! another. It reads no clock and makes no system call; `collect.rs` does both.
//!
//! The kernel chooses the worker of a new connection by a hash. With few connections that is
//! uneven: of two workers one gets all of four connections in one case of eight, and the other CPU
//! does nothing. Only connections that are served count; a thousand idle ones are no work.

use crate::id::{Slot, WorkerId};

/// The most connections that go from one worker to a slot in a round: the counts are a little old,
/// and a few rounds have the same effect.
pub(crate) const SHARE_MAX: u64 = 64;

/// A difference of up to the mean divided by this is left as it is. Clients come and go, and moving
/// a connection costs as much as a request.
const TOLERANCE: u64 = 4;

/// The load of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Load {
    pub(crate) worker: WorkerId,
    pub(crate) slot: Slot,
    /// Connections that are served.
    pub(crate) served: u64,
    /// How many more connections it may hold.
    pub(crate) room: u64,
    /// For how many thousandths of the time since the last look its event loop has had something
    /// to do, if this is known: its thread ran, or waited for a CPU.
    pub(crate) busy: Option<u64>,
    /// If this is known.
    pub(crate) arrivals: Option<Arrivals>,
}

/// The new connections of a worker since the last look. Both numbers are per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arrivals {
    /// How many it has accepted from listeners.
    pub(crate) connections: u64,
    /// How often its thread began to run, for them or for anything else.
    pub(crate) runs: u64,
}

/// A worker is to give so many connections to a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) from: WorkerId,
    pub(crate) to: Slot,
    pub(crate) connections: u64,
}

/// What each worker is to give so that the loads become even. Nothing, if they nearly are.
pub(crate) fn shares(mut loads: Vec<Load>) -> Vec<Share> {
    loads.sort_by_key(|load| load.served);
    let (Some(least), Some(most)) = (loads.first(), loads.last()) else {
        return Vec::new();
    };
    let total: u64 = loads.iter().map(|load| load.served).sum();
    let count = loads.len() as u64;
    let mean = total / count;
    let difference = most.served - least.served;
    if difference < 2 || difference * TOLERANCE <= mean {
        return Vec::new();
    }
    // The remainder of the division stays with the workers that have most.
    let goals = (0..count).map(|at| mean + u64::from(at >= count - total % count));
    let (mut lacking, mut having) = (Vec::new(), Vec::new());
    for (load, goal) in loads.iter().zip(goals) {
        let lack = goal.saturating_sub(load.served).min(load.room);
        lacking.push((load.slot, lack));
        having.push((load.worker, load.served.saturating_sub(goal)));
    }
    let mut shares = Vec::new();
    let mut givers = having.into_iter().rev().filter(|(_, surplus)| *surplus > 0);
    let mut giver = givers.next();
    for (to, mut lack) in lacking {
        while lack > 0
            && let Some((from, surplus)) = &mut giver
        {
            let connections = lack.min(*surplus);
            shares.push(Share {
                from: *from,
                to,
                connections: connections.min(SHARE_MAX),
            });
            lack -= connections;
            *surplus -= connections;
            if *surplus == 0 {
                giver = givers.next();
            }
        }
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loads<const N: usize>(served: [u64; N]) -> Vec<Load> {
        let loads = (0u16..).zip(served).map(|(at, served)| Load {
            worker: WorkerId(100 + u64::from(at)),
            slot: Slot(at),
            served,
            room: 1000,
            busy: None,
            arrivals: None,
        });
        loads.collect()
    }

    /// The loads after a round.
    fn after(loads: &[Load]) -> Vec<u64> {
        let mut served: Vec<_> = loads.iter().map(|load| load.served).collect();
        for share in shares(loads.to_vec()) {
            let from = loads.iter().position(|load| load.worker == share.from);
            served[from.expect("a worker")] -= share.connections;
            served[usize::from(share.to.0)] += share.connections;
        }
        served
    }

    #[test]
    fn few_connections_are_spread_exactly() {
        assert_eq!(after(&loads([4, 0])), [2, 2]);
        assert_eq!(after(&loads([1, 3])), [2, 2]);
        assert_eq!(after(&loads([2, 0])), [1, 1]);
        assert_eq!(after(&loads([0, 0, 5])), [1, 2, 2]);
        assert_eq!(after(&loads([8, 0, 0, 0, 0, 0, 0, 0])), [1; 8]);
    }

    #[test]
    fn loads_that_cannot_be_more_even_stay() {
        for served in [[0, 0], [1, 0], [2, 1], [3, 2]] {
            assert_eq!(shares(loads(served)), [], "{served:?}");
        }
        assert_eq!(shares(loads([7])), []);
        assert_eq!(shares(Vec::new()), []);
    }

    #[test]
    fn a_small_difference_between_many_stays() {
        assert_eq!(shares(loads([36, 28])), []);
        assert_eq!(after(&loads([37, 27])), [32, 32]);
        assert_eq!(shares(loads([550, 500, 450])), []);
    }

    #[test]
    fn a_round_moves_no_more_than_it_may() {
        assert_eq!(after(&loads([1000, 0])), [1000 - SHARE_MAX, SHARE_MAX]);
        let mut narrow = loads([10, 0]);
        narrow[1].room = 2;
        assert_eq!(after(&narrow), [8, 2]);
        narrow[1].room = 0;
        assert_eq!(shares(narrow), []);
    }

    /// Nothing is made worse, and a round after a round changes nothing, however they are spread.
    #[test]
    fn few_connections_become_even_in_one_round() {
        for number in 0..5u64.pow(4) {
            let served = [1, 5, 25, 125].map(|place| number / place % 5);
            let before = loads(served);
            let served_after = after(&before);
            let total = |served: &[u64]| served.iter().sum::<u64>();
            assert_eq!(total(&served_after), total(&served), "{served:?}");
            let (least, most) = (served_after.iter().min(), served_after.iter().max());
            let difference = most.zip(least).map(|(most, least)| most - least);
            assert!(difference < Some(2), "{served:?} became {served_after:?}");
            let again = served_after.try_into().expect("four");
            assert_eq!(shares(loads::<4>(again)), []);
        }
    }
}
