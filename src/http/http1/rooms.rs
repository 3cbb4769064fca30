//! Room for what is read. A connection has some while it has something to understand, and no
//! longer: what serves thousands that are busy now and then is a few rooms, which stay in the
//! cache.

use std::cell::RefCell;

use bytes::BytesMut;

/// As many are kept for later. Each may have grown to what is read at once.
const KEPT_MAX: usize = 32;

/// A new one has room for more than most heads have.
const CAPACITY_MIN: usize = 1024;

/// See the module's head.
#[derive(Default)]
pub(super) struct Inputs(RefCell<Vec<BytesMut>>);

impl Inputs {
    /// An empty one.
    pub(super) fn take(&self) -> BytesMut {
        let kept = self.0.borrow_mut().pop();
        kept.unwrap_or_else(|| BytesMut::with_capacity(CAPACITY_MIN))
    }

    /// Takes one back that is empty.
    pub(super) fn keep(&self, input: BytesMut) {
        let mut kept = self.0.borrow_mut();
        if kept.len() < KEPT_MAX {
            kept.push(input);
        }
    }
}
