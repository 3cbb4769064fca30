//! The page of the scoreboard that a worker counts in.

use std::os::fd::OwnedFd;

use crate::config::Config;
use crate::protocol::scoreboard;
use crate::stats::{Gauge, State, WorkerStats};
#[cfg(feature = "metrics")]
use crate::worker::own_metrics;

/// Maps the page that the master has left to this worker.
#[cfg_attr(not(feature = "metrics"), expect(unused_variables))]
pub(super) fn join(page: OwnedFd, config: &Config) -> WorkerStats {
    let stats = scoreboard::join(&page).unwrap_or_else(|error| {
        tracing::warn!(%error, "the master will not see what this worker counts");
        WorkerStats::own()
    });
    stats.set(Gauge::Pid, std::process::id().into());
    stats.set_state(State::Starting);
    #[cfg(feature = "metrics")]
    own_metrics::install(config, &stats, || scoreboard::join_own(page));
    stats
}

/// Memory of a server without a master, which no other process reads.
#[cfg_attr(not(feature = "metrics"), expect(unused_variables))]
pub(super) fn alone(config: &Config) -> WorkerStats {
    let stats = WorkerStats::own();
    #[cfg(feature = "metrics")]
    own_metrics::install(config, &stats, || {
        scoreboard::Page::new().and_then(scoreboard::join_own)
    });
    stats
}
