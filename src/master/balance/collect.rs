//! Keeps the loads of the workers even: reads what they count and how busy they are, and tells
//! workers how many connections to give to which slot. `policy.rs` and `shedding.rs` decide.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::config::{Balance, Config};
use crate::id::WorkerId;
use crate::master::Master;
use crate::master::balance::policy::{self, Load};
use crate::master::tls::Secrets;
use crate::master::workers::outbox::Message;
use crate::master::workers::process::Process;
use crate::protocol::channel::SHARE_TERM;
use crate::protocol::inbox::Inbox;
use crate::sys::clock;
use crate::sys::thread_time::{self, ThreadTime};

/// How often loads are compared while no connection is served. Otherwise once in a [`SHARE_TERM`].
const IDLE_PERIOD: Duration = Duration::from_secs(1);

/// A worker that has connections and an older heartbeat gets none.
const STALE: Duration = Duration::from_secs(1);

/// The times of the workers' threads, and when they were read on the monotonic clock.
pub(super) type Times = BTreeMap<WorkerId, (Duration, ThreadTime)>;

/// When to compare loads first, on the monotonic clock; `None` if never. TLS connections cannot
/// move.
pub(super) fn first_look(config: &Config, secrets: Option<&Secrets>) -> Option<Duration> {
    match (config.balance, secrets) {
        (Balance::Even, None) => Some(clock::monotonic() + SHARE_TERM),
        (Balance::Even, Some(_)) | (Balance::Off, _) => None,
    }
}

impl Master {
    /// When to compare the loads next; `None` if there is only one worker, or never.
    pub(in crate::master) fn next_balance(&self) -> Option<Duration> {
        let several = self.workers.processes.len() > 1;
        self.balance.next_look.filter(|_| several)
    }

    /// Has workers with more to do give connections to workers with less.
    pub(in crate::master) fn balance(&mut self, now: Duration) {
        let mut loads = self.loads(now);
        let idle = loads.iter().all(|load| load.served == 0);
        self.balance.next_look = Some(now + if idle { IDLE_PERIOD } else { SHARE_TERM });
        let shedding = &mut self.balance.shedding;
        shedding.retain(|worker| self.workers.processes.contains_key(&worker));
        let mut shares = shedding.look(&loads);
        // The numbers of the others become even.
        let is_receiver = |slot| shares.iter().any(|share| share.to == slot);
        loads.retain(|load| !shedding.gets_none(load.worker) && !is_receiver(load.slot));
        shares.extend(policy::shares(loads));
        for share in shares {
            let inbox = self.listeners.inbox(share.to);
            if inbox.is_some_and(Inbox::is_waited_in) {
                // It has not yet taken what it was given before.
                continue;
            }
            tracing::debug!(?share, "loads differ");
            let connections = u16::try_from(share.connections).unwrap_or(u16::MAX);
            let message = Message::Share {
                to: share.to,
                connections,
            };
            self.send(share.from, message);
        }
    }

    fn loads(&mut self, now: Duration) -> Vec<Load> {
        let before = std::mem::take(&mut self.balance.times);
        let (mut times, mut loads) = (Times::new(), Vec::new());
        for (&worker, process) in &self.workers.processes {
            let time = thread_time::of_first_thread(process.pid).map(|time| (now, time));
            let busy = before.get(&worker).zip(time);
            let busy = busy.and_then(|(before, time)| busy_from(*before, time));
            times.extend(time.map(|time| (worker, time)));
            loads.extend(self.load(worker, process, now, busy));
        }
        self.balance.times = times;
        loads
    }

    /// `None` for a worker that starts, was asked to end, or whose heartbeat is old.
    fn load(
        &self,
        worker: WorkerId,
        process: &Process,
        now: Duration,
        busy: Option<u64>,
    ) -> Option<Load> {
        let stays = self.stays(worker, process);
        let standing = process.stats.standing(now).filter(|_| stays)?;
        (!standing.is_late(now, STALE)).then_some(Load {
            worker,
            slot: process.slot,
            served: standing.served,
            // Its thread may be blocked, which looks as if it had time.
            room: match standing.is_late(now, SHARE_TERM) {
                true => 0,
                false => standing.room(),
            },
            busy,
        })
    }
}

/// For how many thousandths of the time from the one to the other a thread ran or waited for a CPU.
fn busy_from(
    (begun, before): (Duration, ThreadTime),
    (now, after): (Duration, ThreadTime),
) -> Option<u64> {
    let spent = (after.ran + after.waited).checked_sub(before.ran + before.waited)?;
    let busy = spent.as_micros() * 1000 / now.checked_sub(begun)?.as_micros().max(1);
    Some(u64::try_from(busy).map_or(1000, |busy| busy.min(1000)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_balance_loads_are_never_compared() {
        let mut config = Config::default();
        assert!(first_look(&config, None).is_some(), "the default");
        config.balance = Balance::Off;
        assert_eq!(first_look(&config, None), None);
    }

    #[test]
    fn a_thread_is_busy_while_it_runs_and_while_it_waits_for_a_cpu() {
        let ms = Duration::from_millis;
        let at = |now, ran, waited| {
            let (ran, waited) = (ms(ran), ms(waited));
            (ms(now), ThreadTime { ran, waited })
        };
        let before = at(1000, 500, 100);
        assert_eq!(busy_from(before, at(1250, 550, 150)), Some(400));
        assert_eq!(busy_from(before, at(1250, 500, 100)), Some(0));
        assert_eq!(
            busy_from(before, at(1250, 760, 100)),
            Some(1000),
            "of 250 ms"
        );
        assert_eq!(busy_from(before, at(1000, 501, 100)), Some(1000), "no time");
        assert_eq!(busy_from(before, at(1250, 1, 0)), None, "of another thread");
        assert_eq!(busy_from(before, at(999, 500, 100)), None, "an older clock");
    }
}
