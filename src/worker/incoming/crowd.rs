//! New connections where there are as many as may be, of all clients or of theirs.

use std::sync::Arc;
use std::task::{Context, Poll};

use super::{Queue, State};
use crate::worker::source::{Accepted, Origin, Source};

/// Tells that a new connection waits although there are as many as may be.
pub(crate) struct Crowd(pub(super) Arc<Queue>);

impl Crowd {
    /// Resolves when one has come to wait.
    pub(crate) async fn waits(&self) {
        self.0.room_asked.notified().await;
    }

    /// Whether any does.
    pub(crate) fn is_waiting(&self) -> bool {
        let Queue {
            max_connections, ..
        } = *self.0;
        self.0.active() >= max_connections && {
            let state = self.0.state();
            !state.draining && state.sources.iter().any(Source::is_waiting)
        }
    }
}

impl State {
    /// Whether a new connection is one too many of its client. One that another worker has handed
    /// over is not new.
    pub(super) fn refuses(&self, accepted: &Accepted) -> bool {
        let clients = self.clients.as_ref();
        accepted.origin == Origin::Client
            && clients.is_some_and(|clients| clients.is_full(accepted.peer))
    }

    /// Ready if a new connection waits to be accepted.
    pub(super) fn poll_waiting(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut sources = self.sources.iter();
        match sources.any(|source| source.poll_waiting(cx).is_ready()) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }
}
