//! The idle connections to close next, when the server is at its limit of connections.

use std::cell::{Cell, RefCell};

use crate::http::registry::wheel::Tick;

/// The idle connections to close next.
#[derive(Debug, Default)]
pub(crate) struct IdleQueue {
    /// Since when each was idle, and its key. The connection that has been idle longest is the last
    /// one.
    pub(crate) found: RefCell<Vec<(Tick, usize)>>,
    /// The last tick at which no connection was idle.
    pub(crate) busy: Cell<Option<Tick>>,
}
