//! Clients whose kernel takes few bytes, or none for a while.

use std::mem;
use std::task::Waker;

use super::*;

/// How many more bytes the kernels of all clients take. At first as many as there are.
#[derive(Default)]
pub(super) struct Room(Mutex<Limit>);

#[derive(Default)]
struct Limit {
    /// `None`: there is no limit.
    left: Option<usize>,
    waits: Vec<Waker>,
}

impl Room {
    /// From now on they take so many bytes in all.
    pub(super) fn limit(&self, bytes: usize) {
        self.lock().left = Some(bytes);
    }

    /// From now on they take all again.
    pub(super) fn open(&self) {
        let limit = mem::take(&mut *self.lock());
        limit.waits.into_iter().for_each(Waker::wake);
    }

    fn lock(&self) -> MutexGuard<'_, Limit> {
        self.0.lock().expect("one thread")
    }

    pub(super) fn is_limited(&self) -> bool {
        self.lock().left.is_some()
    }

    /// Takes a part of so many bytes. Pending if there is no room.
    pub(super) fn poll_take(&self, cx: &Context<'_>, bytes: usize) -> Poll<usize> {
        let Limit { left, waits } = &mut *self.lock();
        let Some(left) = left else {
            return Poll::Ready(bytes);
        };
        if *left == 0 {
            waits.push(cx.waker().clone());
            return Poll::Pending;
        }
        let taken = bytes.min(*left);
        *left -= taken;
        Poll::Ready(taken)
    }
}
