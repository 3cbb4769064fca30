//! Checks workers that may hang: reads what they count and asks the kernel about their queues, and
//! reports to the supervisor. `policy.rs` decides.

use std::time::Duration;

use crate::config::Config;
use crate::id::{Slot, WorkerId};
use crate::master::Master;
use crate::master::hang::policy::{HangPolicy, PendingWork, Round, Sample, Verdict};
use crate::master::workers::outbox::Message;
use crate::master::workers::process::{EndRequest, Process};
use crate::supervisor::Event;
use crate::sys::clock;

/// The policy by these settings; `None` if there is no hang timeout.
pub(in crate::master) fn from_config(config: &Config) -> Option<HangPolicy> {
    let now = clock::monotonic();
    config
        .hang_timeout
        .map(|timeout| HangPolicy::new(timeout, now))
}

impl Master {
    /// When to check the workers next, also if there are none: a check that is late means that the
    /// master was stopped. `None` if there is no hang timeout.
    pub(in crate::master) fn next_hang_check(&self) -> Option<Duration> {
        self.hang.as_ref().map(HangPolicy::next)
    }

    /// Checks each worker. Asks doubtful ones for a heartbeat, and reports those that hang.
    pub(in crate::master) fn check_hangs(&mut self, now: Duration) {
        let round = self.hang.as_mut().map(|hang| hang.round(now));
        if round == Some(Round::Resumed) {
            tracing::info!("the master was stopped for a while; each hang timeout begins again");
        }
        for (worker, verdict) in self.judge_workers(now) {
            match verdict {
                Verdict::Well => {}
                Verdict::Doubtful => self.send(worker, Message::Beat),
                Verdict::Hung => self.handle_event(Event::Hung(worker)),
            }
        }
    }

    fn judge_workers(&mut self, now: Duration) -> Vec<(WorkerId, Verdict)> {
        let Some(mut watch) = self.hang.take() else {
            return Vec::new();
        };
        let mut verdicts = Vec::new();
        for (&worker, process) in &self.workers.processes {
            // The supervisor has a deadline for a worker that was asked to end.
            if process.end_request != EndRequest::None {
                continue;
            }
            let sample = self.sample(worker, process, &watch, now);
            let verdict = watch.judge(worker, sample, now);
            if verdict == Verdict::Hung {
                let stale = now.saturating_sub(sample.heartbeat);
                let (slot, pid, work) = (process.slot, process.pid, sample.work);
                tracing::warn!(%slot, %pid, "a worker has hung for {stale:.1?}, and {work}");
            }
            verdicts.push((worker, verdict));
        }
        self.hang = Some(watch);
        verdicts
    }

    /// Asks the kernel only if the heartbeat is old and the worker has no connections.
    fn sample(
        &self,
        worker: WorkerId,
        process: &Process,
        watch: &HangPolicy,
        now: Duration,
    ) -> Sample {
        let vitals = process.stats.vitals(now);
        let heartbeat = vitals.heartbeat;
        let work = if vitals.connections > 0 {
            PendingWork::Open
        } else if watch.is_stale(heartbeat, now) && self.is_queued(worker, process.slot) {
            PendingWork::Queued
        } else {
            PendingWork::None
        };
        Sample { heartbeat, work }
    }

    /// Whether a connection waits that this worker may accept, for its own slot or an adopted one.
    /// A sibling may accept it too if the listener is shared.
    fn is_queued(&self, worker: WorkerId, own: Slot) -> bool {
        let mut slots = self.supervisor.adopted_by(worker).chain([own]);
        slots.any(|slot| self.listeners.is_waited_in(slot))
    }
}
