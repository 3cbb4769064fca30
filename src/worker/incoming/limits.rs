//! The limits on open connections: of the worker, and of each client.

use std::sync::Arc;
use std::task::{Context, Poll};

use super::{Queue, State};
use crate::stats::Count;
use crate::worker::source::{Accepted, Source};

/// How many descriptors are reserved for the app's own files and connections when the cap on
/// connections is derived from the limit on descriptors: this part of the limit, but at least so
/// many. The binary uses half of them for the files that it sends.
const RESERVED_SHARE: usize = 8;
const RESERVED_MIN: usize = 128;

/// How many descriptors a worker needs itself: its listeners, its channel, its runtime.
const OWN: usize = 64;

/// Most connections of a worker with this limit on open files. With more than the limit has room
/// for the worker would close no idle connection for a new one, and new ones would wait.
pub(crate) fn connections_max(asked: Option<usize>, open_files: usize) -> usize {
    let reserved = (open_files / RESERVED_SHARE).max(RESERVED_MIN);
    let derived = open_files.saturating_sub(reserved).max(open_files / 2);
    match asked {
        Some(asked) if asked <= derived || asked <= open_files.saturating_sub(OWN) => asked,
        Some(asked) => {
            tracing::warn!(
                max_connections = asked,
                open_files,
                "the limit on open files allows {derived} connections"
            );
            derived
        }
        None => derived,
    }
}

/// Reports that a new connection waits because the worker is at its limit of open connections.
pub(crate) struct LimitWatch(pub(super) Arc<Queue>);

impl LimitWatch {
    /// Resolves when a connection waits and the worker is at its limit.
    pub(crate) async fn connection_waits(&self) {
        self.0.waits_at_limit.notified().await;
    }

    /// Whether a connection waits and the worker is at its limit.
    pub(crate) fn is_waiting(&self) -> bool {
        let Queue {
            max_connections, ..
        } = *self.0;
        self.0.active() >= max_connections && {
            let state = self.0.state();
            let in_queue = || state.sources.iter().any(Source::is_waiting);
            !state.draining && (state.placing.has_taken_back() || in_queue())
        }
    }
}

impl State {
    /// Whether a new connection exceeds the limit of its client. A connection that another worker
    /// has handed over is not new. The caller drops the connection, which closes it.
    pub(super) fn refuses(&self, accepted: &Accepted) -> bool {
        let clients = self.clients.as_ref().filter(|_| accepted.origin.is_new());
        let refuses = clients.is_some_and(|clients| clients.is_full(accepted.peer));
        if refuses {
            self.stats.add_shared(Count::ClientLimited, 1);
            tracing::debug!(peer = ?accepted.peer, "a client has too many connections");
        }
        refuses
    }

    /// Ready if a new connection waits to be accepted, or one that a sibling has not taken.
    pub(super) fn poll_waiting(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.placing.look(cx);
        let mut sources = self.sources.iter_mut();
        let mut in_queue = || sources.any(|source| source.poll_waiting(cx).is_ready());
        match self.placing.has_taken_back() || in_queue() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::connections_max;

    #[test]
    fn a_worker_does_not_have_more_connections_than_it_can_open() {
        for (asked, open_files, most) in [
            (None, 1024, 896),
            (None, 60, 30),
            (Some(20), 60, 20),
            (Some(960), 1024, 960),
            (Some(1000), 1024, 896),
            (Some(1000), 60, 30),
            (Some(1000), usize::MAX, 1000),
        ] {
            assert_eq!(connections_max(asked, open_files), most, "{asked:?}");
        }
    }
}
