//! When a worker hangs: its event loop has not gone round for too long, and there was work for it
//! all the while. No clock here and no system call; `watch.rs` has both.
//!
//! Neither half is enough. A worker without work has no reason to wake up and stamp its heartbeat,
//! and one that merely has much to do goes round.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::id::WorkerId;

/// Looks are taken this many times in a timeout.
const ROUNDS_PER_TIMEOUT: u32 = 4;

/// Who may hang, and when to look again. All times are of the monotonic clock.
#[derive(Debug)]
pub(crate) struct HangPolicy {
    timeout: Duration,
    next: Duration,
    /// Since when work is known to wait in the queue of a worker that has not moved since.
    waiting: BTreeMap<WorkerId, Waiting>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Waiting {
    heartbeat: Duration,
    since: Duration,
}

/// What was seen of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sample {
    /// When its event loop last went round; zero if it never did.
    pub(crate) heartbeat: Duration,
    pub(crate) work: PendingWork,
}

/// What a worker has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PendingWork {
    None,
    /// Connections that nobody has accepted yet.
    Queued,
    /// Requests that were begun. They were before it stood still, if it does.
    Begun,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Well,
    /// An event loop with nothing to do does not go round, be there connections that the app does
    /// not want yet. It is to be asked for a sign of life.
    Doubtful,
    Hung,
}

/// Whether to look at the workers now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Round {
    /// We are so late that we must have been stopped ourselves, and the workers perhaps with us:
    /// they get until the next round to move.
    Skipped,
    Due,
}

impl HangPolicy {
    pub(crate) fn new(timeout: Duration, now: Duration) -> Self {
        Self {
            timeout,
            next: now + timeout / ROUNDS_PER_TIMEOUT,
            waiting: BTreeMap::new(),
        }
    }

    /// When to look at the workers next.
    pub(crate) fn next(&self) -> Duration {
        self.next
    }

    /// Begins a look at the workers, which is due.
    pub(crate) fn round(&mut self, now: Duration) -> Round {
        // A pause that makes a worker look hung that is well lasts for the timeout, and we sleep
        // for a quarter of it at the most: so we notice each of them.
        let late = now.saturating_sub(self.next) > self.timeout / 2;
        self.next = now + self.timeout / ROUNDS_PER_TIMEOUT;
        if late {
            self.waiting.clear();
            return Round::Skipped;
        }
        Round::Due
    }

    /// Whether a heartbeat is so old that it is worth asking the kernel about the worker's queue.
    pub(crate) fn is_stale(&self, heartbeat: Duration, now: Duration) -> bool {
        now.saturating_sub(heartbeat) >= self.timeout / ROUNDS_PER_TIMEOUT
    }

    pub(crate) fn judge(&mut self, worker: WorkerId, sample: Sample, now: Duration) -> Verdict {
        let Sample { heartbeat, work } = sample;
        let since = match work {
            // It has not begun to accept.
            _ if heartbeat.is_zero() => None,
            PendingWork::None => None,
            PendingWork::Begun => Some(heartbeat),
            PendingWork::Queued => Some(self.queued_since(worker, heartbeat, now)),
        };
        let Some(since) = since else {
            self.forget(worker);
            return Verdict::Well;
        };
        if now.saturating_sub(since) >= self.timeout {
            self.forget(worker);
            return Verdict::Hung;
        }
        // Not a moment later than it is due.
        self.next = self.next.min(since.saturating_add(self.timeout));
        match work {
            PendingWork::Queued => Verdict::Doubtful,
            PendingWork::None | PendingWork::Begun => Verdict::Well,
        }
    }

    pub(crate) fn forget(&mut self, worker: WorkerId) {
        self.waiting.remove(&worker);
    }

    /// An idle worker's heartbeat may be hours old: what counts is since when work is there.
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
    fn a_timeout_without_end_is_fine() {
        let mut watch = HangPolicy::new(Duration::MAX, seconds(1000));
        for work in [PendingWork::Begun, PendingWork::Queued] {
            assert_ne!(judge(&mut watch, 5000, 1000, work), Verdict::Hung);
        }
        assert!(watch.next() > seconds(1 << 40));
    }

    #[test]
    fn neither_half_is_enough() {
        let mut watch = watch();
        for now in 1000..2000 {
            assert_eq!(
                judge(&mut watch, now, 900, PendingWork::None),
                Verdict::Well
            );
        }
        for now in 2000..3000 {
            assert_eq!(
                judge(&mut watch, now, now - 7, PendingWork::Begun),
                Verdict::Well
            );
            assert_ne!(
                judge(&mut watch, now, now - 1, PendingWork::Queued),
                Verdict::Hung
            );
        }
        assert_eq!(
            judge(&mut watch, 3000, 2992, PendingWork::Begun),
            Verdict::Hung
        );
    }

    #[test]
    fn an_old_heartbeat_does_not_date_what_has_just_been_queued() {
        let mut watch = watch();
        assert_eq!(
            judge(&mut watch, 1002, 10, PendingWork::Queued),
            Verdict::Doubtful
        );
        assert_eq!(
            judge(&mut watch, 1009, 10, PendingWork::Queued),
            Verdict::Doubtful
        );
        // It has accepted them all, if late.
        assert_eq!(
            judge(&mut watch, 1010, 10, PendingWork::None),
            Verdict::Well
        );
        assert_eq!(
            judge(&mut watch, 1011, 10, PendingWork::Queued),
            Verdict::Doubtful
        );
        assert_eq!(
            judge(&mut watch, 1018, 10, PendingWork::Queued),
            Verdict::Doubtful
        );
        assert_eq!(
            judge(&mut watch, 1019, 10, PendingWork::Queued),
            Verdict::Hung
        );
    }

    #[test]
    fn one_that_has_moved_is_given_its_time_again() {
        let mut watch = watch();
        assert_eq!(
            judge(&mut watch, 1002, 10, PendingWork::Queued),
            Verdict::Doubtful
        );
        assert_eq!(
            judge(&mut watch, 1010, 1005, PendingWork::Queued),
            Verdict::Doubtful
        );
        assert_eq!(
            judge(&mut watch, 1017, 1005, PendingWork::Queued),
            Verdict::Doubtful
        );
        assert_eq!(
            judge(&mut watch, 1018, 1005, PendingWork::Queued),
            Verdict::Hung
        );
    }

    #[test]
    fn one_that_has_not_begun_to_accept_does_not_hang() {
        let mut watch = watch();
        for now in 1000..1100 {
            assert_eq!(
                judge(&mut watch, now, 0, PendingWork::Queued),
                Verdict::Well
            );
        }
    }

    #[test]
    fn after_a_pause_of_our_own_a_round_is_skipped() {
        let mut watch = watch();
        assert_eq!(watch.next(), seconds(1002));
        assert_eq!(watch.round(seconds(1002)), Round::Due);
        judge(&mut watch, 1002, 1002, PendingWork::Begun);
        judge(&mut watch, 1002, 10, PendingWork::Queued);
        // Everybody stood still from here on for as long as makes a worker hung.
        assert_eq!(watch.round(seconds(1010)), Round::Skipped);
        assert_eq!(watch.round(seconds(1012)), Round::Due);
        assert_eq!(
            judge(&mut watch, 1012, 10, PendingWork::Queued),
            Verdict::Doubtful
        );
        // One that has not moved since is hung all the same.
        assert_eq!(
            judge(&mut watch, 1012, 1002, PendingWork::Begun),
            Verdict::Hung
        );
    }

    #[test]
    fn a_suspect_is_looked_at_when_its_time_is_over() {
        let mut watch = watch();
        assert_eq!(watch.round(seconds(1004)), Round::Due);
        assert_eq!(watch.next(), seconds(1006));
        judge(&mut watch, 1004, 997, PendingWork::Begun);
        assert_eq!(watch.next(), seconds(1005));
        assert!(watch.is_stale(seconds(1002), seconds(1004)));
        assert!(!watch.is_stale(seconds(1003), seconds(1004)));
    }
}
