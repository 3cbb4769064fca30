//! Limits what is read while the client takes nothing of what is written.
//!
//! h2 keeps a stream that it resets until the RST_STREAM is written. Each malformed request and
//! each DATA on a stream that is over can make it reset one more. A client that does not read would
//! fill the memory of the worker in this way. h2's own limit counts the resets of the whole
//! connection.

use std::cell::Cell;

/// So many frames are read after the last write. A client whose uploads fill the window of the
/// connection sends some hundred. One read may exceed it.
const UNANSWERED_MAX: u32 = 1024;

/// The frames that were read since bytes were written last.
#[derive(Default)]
pub(crate) struct Unanswered(Cell<u32>);

impl Unanswered {
    /// One more frame was read.
    pub(crate) fn add(&self) {
        self.0.set(self.0.get().saturating_add(1));
    }

    /// Whether no more may be read while a write waits for the client.
    pub(crate) fn are_many(&self) -> bool {
        self.0.get() >= UNANSWERED_MAX
    }

    /// Bytes were written. Returns whether there were many unanswered frames before.
    pub(crate) fn end(&self) -> bool {
        let were_many = self.are_many();
        self.0.set(0);
        were_many
    }
}
