//! What is used again.

use std::cell::RefCell;

/// Things of one kind that wait for their next use. What came last goes first: it is still in the
/// cache.
#[derive(Debug)]
pub(crate) struct FreeList<T> {
    kept: RefCell<Vec<T>>,
    max: usize,
}

impl<T> FreeList<T> {
    /// Keeps so many at the most.
    pub(crate) const fn new(max: usize) -> Self {
        Self {
            kept: RefCell::new(Vec::new()),
            max,
        }
    }

    #[inline]
    pub(crate) fn take(&self) -> Option<T> {
        self.kept.borrow_mut().pop()
    }

    /// Keeps it, or drops it if there are enough.
    #[inline]
    pub(crate) fn keep(&self, it: T) {
        let mut kept = self.kept.borrow_mut();
        if kept.len() < self.max {
            kept.push(it);
        }
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.kept.borrow().len()
    }
}
