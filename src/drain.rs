//! What a draining worker does with its connections. The master decides it.

use crate::codec::record;

/// What a draining worker does with a connection as soon as it is idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Idle {
    /// The slot continues: the worker hands the connection over, by the inbox of the slot, to the
    /// next worker that serves the slot.
    HandOver,
    /// No worker follows: the worker waits for one more request for a moment, and then closes the
    /// connection.
    Close,
}

record!(enum Idle { 0 = HandOver, 1 = Close });
