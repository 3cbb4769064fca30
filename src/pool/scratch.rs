//! A buffer that every user on a thread shares, one after the other.

use std::cell::Cell;
use std::ops::{Deref, DerefMut};
use std::thread::LocalKey;

/// The buffer of a thread, for the time of one call. It goes back when it is dropped. It has the
/// bytes of its last use.
pub(crate) struct Scratch {
    bytes: Vec<u8>,
    home: &'static LocalKey<Cell<Vec<u8>>>,
}

impl Scratch {
    /// Takes the buffer. All uses of one home want the same length, so that the buffer is cleared
    /// only once.
    pub(crate) fn take(home: &'static LocalKey<Cell<Vec<u8>>>, len: usize) -> Self {
        let mut bytes = home.take();
        bytes.resize(len, 0);
        Self { bytes, home }
    }
}

impl Deref for Scratch {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl DerefMut for Scratch {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        self.home.set(std::mem::take(&mut self.bytes));
    }
}
