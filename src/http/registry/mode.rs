//! What is to become of a worker's connections: served, handed over or drained.

use std::cell::Cell;

use crate::http::registry::wheel::Tick;

/// What is to become of the connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Serving,
    /// Those that may leave go to their heirs, and the others as in `Draining`.
    HandingOver {
        since: Tick,
    },
    /// They end.
    Draining {
        since: Tick,
    },
}

/// As many connections are on their way to an heir at a time, at the most. Each costs some hundred
/// bytes more then, and nobody hears it; the others are served until it is their turn.
pub(crate) const HANDOVERS_MAX: usize = 64;

/// Since when connections end, and who is on the way to an heir.
#[derive(Debug, Default)]
pub(crate) struct Handovers {
    /// When the mode first changed from `Serving`; later changes keep it.
    pub(crate) first_change: Cell<Option<Tick>>,
    pub(crate) in_progress: Cell<usize>,
    /// The key from which on nobody has been called.
    pub(crate) next: Cell<usize>,
    /// So many may go to an heir although there is no drain.
    pub(crate) shared: Cell<usize>,
}
