//! The idle connections that are closed next, where there are as many as may be.

use std::cell::{Cell, RefCell};

use crate::http::registry::wheel::Tick;

/// The connections that are the next to end.
#[derive(Debug, Default)]
pub(crate) struct IdleQueue {
    /// Since when each was idle, and its key; the longest idle one is the last.
    pub(crate) found: RefCell<Vec<(Tick, usize)>>,
    /// When all were busy.
    pub(crate) busy: Cell<Option<Tick>>,
}
