//! The limits on open connections: of the worker, and of each client.

use std::sync::Arc;
use std::task::{Context, Poll};

use super::{Queue, State};
use crate::worker::source::{Accepted, Source};

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
