//! How often the log says that connections cannot be accepted, or are lost.

use std::io;
use std::time::Duration;

use tokio::time::Instant;

use crate::worker::incoming::PAUSE;

/// The shortest time between two lines. What fails once often fails again after each pause.
const INTERVAL: Duration = Duration::from_secs(5);

/// Failures to accept, or to wait for what was accepted.
#[derive(Debug, Default)]
pub(in crate::worker) struct AcceptFailures {
    /// Since the last line of the log.
    count: u64,
    logged: Option<Instant>,
}

impl AcceptFailures {
    pub(super) fn warn(&mut self, error: &io::Error, what: &str) {
        if let Some(failures) = self.note(Instant::now()) {
            tracing::warn!(%error, failures, "{what} rests for {PAUSE:?}");
        }
    }

    /// The runtime could not register a socket, and closed it.
    pub(in crate::worker) fn warn_of_lost(&mut self, error: &io::Error) {
        if let Some(failures) = self.note(Instant::now()) {
            tracing::warn!(
                %error, failures,
                "connections are lost, because the kernel does not watch them (epoll_ctl(2); their \
                 number has a limit, fs.epoll.max_user_watches)"
            );
        }
    }

    /// Counts a failure. Returns the number since the last line if there is to be another line.
    pub(in crate::worker) fn note(&mut self, now: Instant) -> Option<u64> {
        self.count += 1;
        let is_due = self.logged.is_none_or(|logged| now >= logged + INTERVAL);
        is_due.then(|| {
            self.logged = Some(now);
            std::mem::take(&mut self.count)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_that_repeat_are_logged_once_in_an_interval_with_their_number() {
        let mut failures = AcceptFailures::default();
        let start = Instant::now();
        let pauses = (0..101).map(|pause| start + PAUSE * pause);
        let logged: Vec<_> = pauses.filter_map(|now| failures.note(now)).collect();
        assert_eq!(logged, [1, 50, 50]);
    }
}
