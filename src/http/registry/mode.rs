//! What a server does with its connections: it serves them, hands them over, or drains them.

use std::cell::Cell;

use crate::http::registry::sharing::Sharing;
use crate::http::registry::wheel::Tick;

/// What the server does with its connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Serving,
    /// Connections that may go to another server are handed over. The others are treated as in
    /// `Draining`.
    HandingOver {
        since: Tick,
    },
    /// All connections end.
    Draining {
        since: Tick,
    },
}

/// Limit of hand-overs at the same time. Each costs some hundred bytes, and its connection reads
/// nothing meanwhile. The other connections are served until their turn comes.
pub(crate) const HANDOVERS_MAX: usize = 64;

/// Progress of the hand-overs.
#[derive(Debug, Default)]
pub(crate) struct Handovers {
    /// When the mode first changed from `Serving`; later changes keep it.
    pub(crate) first_change: Cell<Option<Tick>>,
    pub(crate) in_progress: Cell<usize>,
    /// No connection from this key on was woken to go.
    pub(crate) next: Cell<usize>,
    /// The connections that are to be handed over although there is no drain.
    pub(crate) sharing: Sharing,
}
