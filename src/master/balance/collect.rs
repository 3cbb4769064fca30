//! Looks at the loads of the workers: reads what they count and how busy they are. It tells workers
//! how many connections to give to which slot, as `policy.rs` and `shedding.rs` decide, and has the
//! kernel keep new connections, as `deferring.rs` decides.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::id::WorkerId;
use crate::master::Master;
use crate::master::balance::deferring;
use crate::master::balance::policy::{self, Arrivals, Load};
use crate::master::workers::outbox::Message;
use crate::master::workers::process::Process;
use crate::protocol::channel::SHARE_TERM;
use crate::protocol::inbox::Inbox;
use crate::sys::thread_time::{self, ThreadTime};

/// How often the master looks while there is nothing to share and no rush. Otherwise once in a
/// [`SHARE_TERM`].
const IDLE_PERIOD: Duration = Duration::from_secs(1);

/// A worker that has connections and an older heartbeat gets none.
const STALE: Duration = Duration::from_secs(1);

pub(super) type Samples = BTreeMap<WorkerId, Sample>;

/// What was read of a worker at a look.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    /// On the monotonic clock.
    at: Duration,
    /// Of its thread.
    time: ThreadTime,
    /// The connections that it has accepted from listeners.
    accepted: u64,
}

impl Master {
    /// When to look at the loads next; `None` if that would change nothing.
    pub(in crate::master) fn next_balance(&self) -> Option<Duration> {
        self.balance.next_look(self.workers.processes.len())
    }

    /// Looks at the loads, and acts on them.
    pub(in crate::master) fn balance(&mut self, now: Duration) {
        let loads = self.loads(now);
        let workers = self.workers.processes.len();
        let shares = self.balance.may_share(workers) && loads.iter().any(|load| load.served > 0);
        let defers = self.balance.may_defer(workers) && loads.iter().any(deferring::is_of_use);
        let period = if shares || defers {
            SHARE_TERM
        } else {
            IDLE_PERIOD
        };
        self.balance.next_look = now + period;
        self.defer(&loads);
        self.share(loads);
    }

    /// Has the listeners of the workers defer that have a rush of new connections. At the end of
    /// the server none does: a connection that waits in its listener then would be lost.
    fn defer(&mut self, loads: &[Load]) {
        let Some(deferring) = &mut self.balance.deferring else {
            return;
        };
        deferring.retain(|worker| self.workers.processes.contains_key(&worker));
        deferring.look(loads);
        let ends = self.pre_stop.is_running() || self.supervisor.is_draining();
        self.listeners.defer(|slot| {
            let worker = self.supervisor.serves(slot).filter(|_| !ends);
            worker.is_some_and(|worker| deferring.defers(worker))
        });
    }

    /// Has workers with more to do give connections to workers with less.
    fn share(&mut self, mut loads: Vec<Load>) {
        let Some(shedding) = &mut self.balance.shedding else {
            return;
        };
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
        let before = std::mem::take(&mut self.balance.samples);
        let (mut samples, mut loads) = (Samples::new(), Vec::new());
        for (&worker, process) in &self.workers.processes {
            let time = thread_time::of_first_thread(process.pid);
            let sample = time.map(|time| Sample {
                at: now,
                time,
                accepted: process.stats.accepted(),
            });
            let since = before.get(&worker).copied().zip(sample);
            samples.extend(sample.map(|sample| (worker, sample)));
            loads.extend(self.load(worker, process, now, since));
        }
        self.balance.samples = samples;
        loads
    }

    /// `None` for a worker that starts, was asked to end, or whose heartbeat is old.
    fn load(
        &self,
        worker: WorkerId,
        process: &Process,
        now: Duration,
        since: Option<(Sample, Sample)>,
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
            busy: since.and_then(|(before, after)| after.busy_since(before)),
            arrivals: since.map(|(before, after)| after.arrivals_since(before)),
        })
    }
}

impl Sample {
    /// For how many thousandths of the time since then the thread ran or waited for a CPU.
    fn busy_since(self, before: Self) -> Option<u64> {
        let spent = |time: ThreadTime| time.ran + time.waited;
        let spent = spent(self.time).checked_sub(spent(before.time))?;
        let busy = spent.as_micros() * 1000 / self.at.checked_sub(before.at)?.as_micros().max(1);
        Some(u64::try_from(busy).map_or(1000, |busy| busy.min(1000)))
    }

    /// The worker may have written any number of connections.
    fn arrivals_since(self, before: Self) -> Arrivals {
        let micros = self.at.saturating_sub(before.at).as_micros().max(1);
        let per_second = |before: u64, after: u64| {
            let more = u128::from(after.saturating_sub(before));
            u64::try_from(more * 1_000_000 / micros).unwrap_or(u64::MAX)
        };
        Arrivals {
            connections: per_second(before.accepted, self.accepted),
            runs: per_second(before.time.runs, self.time.runs),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(at: u64, ran: u64, waited: u64, accepted: u64) -> Sample {
        let ms = Duration::from_millis;
        let (ran, waited) = (ms(ran), ms(waited));
        Sample {
            at: ms(at),
            time: ThreadTime {
                ran,
                waited,
                runs: accepted * 2,
            },
            accepted,
        }
    }

    #[test]
    fn a_thread_is_busy_while_it_runs_and_while_it_waits_for_a_cpu() {
        let before = sample(1000, 500, 100, 0);
        for (at, ran, waited, busy) in [
            (1250, 550, 150, Some(400)),
            (1250, 500, 100, Some(0)),
            // 260 ms of 250.
            (1250, 760, 100, Some(1000)),
            // At the same time.
            (1000, 501, 100, Some(1000)),
            // Of another thread.
            (1250, 1, 0, None),
            // By an older clock.
            (999, 500, 100, None),
        ] {
            let after = sample(at, ran, waited, 0);
            assert_eq!(after.busy_since(before), busy, "{after:?}");
        }
    }

    #[test]
    fn connections_are_counted_per_second() {
        let before = sample(1000, 0, 0, 100);
        for (at, accepted, connections) in [
            (1250, 350, 1000),
            (2000, 350, 250),
            (1250, 100, 0),
            // A hostile worker writes what it likes.
            (1250, 99, 0),
            (1000, 101, 1_000_000),
            (1001, u64::MAX / 2, u64::MAX),
        ] {
            let after = sample(at, 0, 0, accepted);
            let arrivals = Arrivals {
                connections,
                runs: connections.saturating_mul(2),
            };
            assert_eq!(after.arrivals_since(before), arrivals, "{after:?}");
        }
    }
}
