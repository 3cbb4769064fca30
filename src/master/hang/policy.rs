//! Decides whether a worker hangs: its event loop has not turned for too long, and there was work
//! for it all that time. It reads no clock and makes no system call; `watch.rs` does both.
//!
//! Both conditions are necessary. A worker without work does not wake and stamps no heartbeat, and
//! the loop of a worker with much work still turns.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::id::WorkerId;

/// The workers are checked this many times in a timeout.
const ROUNDS_PER_TIMEOUT: u32 = 4;

/// What is known of workers that may hang, and when to check again. All times are of the monotonic
/// clock.
#[derive(Debug)]
pub(crate) struct HangPolicy {
    timeout: Duration,
    next: Duration,
    /// When the master went on after it was stopped, and perhaps the workers with it. No worker's
    /// timeout begins earlier.
    resumed: Duration,
    /// Workers whose queues have connections, and whose heartbeats have not changed since that was
    /// seen.
    waiting: BTreeMap<WorkerId, Waiting>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Waiting {
    heartbeat: Duration,
    since: Duration,
}

/// What a check has found of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sample {
    /// When its event loop last turned; zero if it never did.
    pub(crate) heartbeat: Duration,
    pub(crate) work: PendingWork,
}

/// The work that waits for a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PendingWork {
    None,
    /// Connections that are not accepted yet.
    Queued,
    /// Connections that it has open. It writes a heartbeat before the first, and others while there
    /// are any.
    Open,
}

impl fmt::Display for PendingWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "nothing waits",
            Self::Queued => "connections wait to be accepted",
            Self::Open => "connections are open",
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Well,
    /// It may be idle: the loop does not turn while the app does not accept. The master asks it for
    /// a heartbeat.
    Doubtful,
    Hung,
}

/// How late a check begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Round {
    /// So late that the master must have been stopped. No worker hangs yet.
    Resumed,
    Due,
}

impl HangPolicy {
    pub(crate) fn new(timeout: Duration, now: Duration) -> Self {
        Self {
            timeout,
            next: now + timeout / ROUNDS_PER_TIMEOUT,
            resumed: Duration::ZERO,
            waiting: BTreeMap::new(),
        }
    }

    /// When to check the workers next.
    pub(crate) fn next(&self) -> Duration {
        self.next
    }

    /// Begins a check, which is due.
    pub(crate) fn round(&mut self, now: Duration) -> Round {
        // A pause of the whole machine makes a healthy worker look hung if it lasts for the
        // timeout. The master sleeps for a quarter of that at most, so it notices each such pause.
        let late = now.saturating_sub(self.next) > self.timeout / 2;
        self.next = now + self.timeout / ROUNDS_PER_TIMEOUT;
        if late {
            self.resumed = now;
            return Round::Resumed;
        }
        Round::Due
    }

    /// Whether a heartbeat is so old that the master should ask the kernel about the queues.
    pub(crate) fn is_stale(&self, heartbeat: Duration, now: Duration) -> bool {
        now.saturating_sub(heartbeat) >= self.timeout / ROUNDS_PER_TIMEOUT
    }

    pub(crate) fn judge(&mut self, worker: WorkerId, sample: Sample, now: Duration) -> Verdict {
        let Sample { heartbeat, work } = sample;
        let since = match work {
            // It does not accept yet.
            _ if heartbeat.is_zero() => None,
            PendingWork::None => None,
            PendingWork::Open => Some(heartbeat),
            PendingWork::Queued => Some(self.queued_since(worker, heartbeat, now)),
        };
        let Some(since) = since else {
            self.forget(worker);
            return Verdict::Well;
        };
        let since = since.max(self.resumed);
        if now.saturating_sub(since) >= self.timeout {
            self.forget(worker);
            return Verdict::Hung;
        }
        // The next check is not later than this worker's timeout.
        self.next = self.next.min(since.saturating_add(self.timeout));
        match work {
            PendingWork::Queued => Verdict::Doubtful,
            PendingWork::None | PendingWork::Open => Verdict::Well,
        }
    }

    pub(crate) fn forget(&mut self, worker: WorkerId) {
        self.waiting.remove(&worker);
    }

    /// Since when work waits. The heartbeat of an idle worker may be hours old, so it does not
    /// count.
    fn queued_since(&mut self, worker: WorkerId, heartbeat: Duration, now: Duration) -> Duration {
        let anew = Waiting {
            heartbeat,
            since: now,
        };
        let waiting = self.waiting.entry(worker).or_insert(anew);
        if waiting.heartbeat != heartbeat {
            *waiting = anew;
        }
        waiting.since
    }
}

#[cfg(test)]
mod tests {
    use super::PendingWork::{Open, Queued};
    use super::Verdict::{Doubtful, Hung, Well};
    use super::*;

    const WORKER: WorkerId = WorkerId(1);

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// A timeout of 8 s, begun at 1000 s.
    fn watch() -> HangPolicy {
        HangPolicy::new(seconds(8), seconds(1000))
    }

    fn judge(watch: &mut HangPolicy, now: u64, heartbeat: u64, work: PendingWork) -> Verdict {
        let sample = Sample {
            heartbeat: seconds(heartbeat),
            work,
        };
        watch.judge(WORKER, sample, seconds(now))
    }

    #[test]
    fn with_the_longest_timeout_no_worker_hangs() {
        let mut watch = HangPolicy::new(Duration::MAX, seconds(1000));
        for work in [Open, Queued] {
            assert_ne!(judge(&mut watch, 5000, 1000, work), Hung);
        }
        assert!(watch.next() > seconds(1 << 40));
    }

    #[test]
    fn a_hang_needs_both_work_and_an_old_heartbeat() {
        let mut watch = watch();
        for now in 1000..2000 {
            assert_eq!(judge(&mut watch, now, 900, PendingWork::None), Well);
        }
        for now in 2000..3000 {
            assert_eq!(judge(&mut watch, now, now - 7, Open), Well);
            assert_ne!(judge(&mut watch, now, now - 1, Queued), Hung);
        }
        assert_eq!(judge(&mut watch, 3000, 2992, Open), Hung);
    }

    #[test]
    fn the_timeout_runs_from_when_work_was_first_seen_waiting() {
        let mut watch = watch();
        assert_eq!(judge(&mut watch, 1002, 10, Queued), Doubtful);
        assert_eq!(judge(&mut watch, 1009, 10, Queued), Doubtful);
        // It has accepted them all, though late.
        assert_eq!(judge(&mut watch, 1010, 10, PendingWork::None), Well);
        assert_eq!(judge(&mut watch, 1011, 10, Queued), Doubtful);
        assert_eq!(judge(&mut watch, 1018, 10, Queued), Doubtful);
        assert_eq!(judge(&mut watch, 1019, 10, Queued), Hung);
    }

    #[test]
    fn after_a_new_heartbeat_the_timeout_begins_again() {
        let mut watch = watch();
        assert_eq!(judge(&mut watch, 1002, 10, Queued), Doubtful);
        assert_eq!(judge(&mut watch, 1010, 1005, Queued), Doubtful);
        assert_eq!(judge(&mut watch, 1017, 1005, Queued), Doubtful);
        assert_eq!(judge(&mut watch, 1018, 1005, Queued), Hung);
    }

    #[test]
    fn a_worker_that_does_not_accept_yet_does_not_hang() {
        let mut watch = watch();
        for now in 1000..1100 {
            assert_eq!(judge(&mut watch, now, 0, Queued), Well);
        }
    }

    #[test]
    fn after_a_pause_of_the_master_each_timeout_begins_again() {
        let mut watch = watch();
        assert_eq!(watch.next(), seconds(1002));
        assert_eq!(watch.round(seconds(1002)), Round::Due);
        judge(&mut watch, 1002, 1002, Open);
        judge(&mut watch, 1002, 10, Queued);
        // From here on all processes were stopped for as long as the timeout.
        assert_eq!(watch.round(seconds(1010)), Round::Resumed);
        for now in [1010, 1012, 1017] {
            assert_eq!(judge(&mut watch, now, 1002, Open), Well);
            assert_eq!(judge(&mut watch, now, 10, Queued), Doubtful);
        }
        assert_eq!(watch.round(seconds(1012)), Round::Due);
        // A worker that has not moved since is hung.
        assert_eq!(judge(&mut watch, 1018, 10, Queued), Hung);
        assert_eq!(judge(&mut watch, 1018, 1002, Open), Hung);
    }

    #[test]
    fn a_worker_is_checked_again_when_its_timeout_is_over() {
        let mut watch = watch();
        assert_eq!(watch.round(seconds(1004)), Round::Due);
        assert_eq!(watch.next(), seconds(1006));
        judge(&mut watch, 1004, 997, Open);
        assert_eq!(watch.next(), seconds(1005));
        assert!(watch.is_stale(seconds(1002), seconds(1004)));
        assert!(!watch.is_stale(seconds(1003), seconds(1004)));
    }
}
