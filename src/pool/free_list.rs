//! Things that wait to be used again.

use std::cell::RefCell;

/// A bounded list of things of one kind. The last one that was added is taken first, because it is
/// still in the cache of the CPU.
#[derive(Debug)]
pub(crate) struct FreeList<T> {
    kept: RefCell<Vec<T>>,
    max: usize,
}

impl<T> FreeList<T> {
    /// An empty list that keeps at most `max` things.
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

    /// Keeps the thing, or drops it if the list is full.
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
