//! How a worker drains: what the master decides and the worker does.

use crate::codec::record;

/// What becomes of the connections of a worker that drains, once nothing is going on in them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Idle {
    /// The slot lives on: they are handed over, by its inbox, to whoever attends to it next.
    HandOver,
    /// Nobody comes after: they linger and are closed.
    Close,
}

record!(enum Idle { 0 = HandOver, 1 = Close });
