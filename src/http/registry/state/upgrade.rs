//! The state of a stream after an upgrade: the handler, or a task that it started, owns the stream.

use std::task::Waker;

use super::parts::{End, StreamLife};
use super::{ConnState, Stage, Wakers, store, wakers};

/// After an upgrade.
impl ConnState {
    /// Ends the stream: from now on each read and write fails.
    pub(crate) fn cut(&self) {
        self.end.set(End::Cut);
        let parked = match &mut *self.wakers() {
            Some(wakers) => [wakers.upgraded_read.take(), wakers.upgraded_write.take()],
            None => [None, None],
        };
        parked.into_iter().flatten().for_each(Waker::wake);
    }

    pub(crate) fn is_cut(&self) -> bool {
        self.end.is(End::Cut)
    }

    /// Stores the waker of the task that reads the upgraded stream. [`ConnState::cut`] wakes it.
    pub(crate) fn park_read(&self, waker: &Waker) {
        self.park(waker, |wakers| &mut wakers.upgraded_read);
    }

    /// As [`ConnState::park_read`], for the task that writes.
    pub(crate) fn park_write(&self, waker: &Waker) {
        self.park(waker, |wakers| &mut wakers.upgraded_write);
    }

    fn park(&self, waker: &Waker, place: impl FnOnce(&mut Wakers) -> &mut Option<Waker>) {
        if self.stage() != Stage::Upgraded {
            return;
        }
        store(place(wakers(&mut self.wakers())), waker);
        if self.is_cut() {
            // On another thread, since this one tried to read or write.
            waker.wake_by_ref();
        }
    }

    /// A stream was made for the connection.
    pub(crate) fn begin_stream(&self) {
        self.stream.set(StreamLife::Live);
    }

    /// The stream was dropped.
    pub(crate) fn end_stream(&self) {
        self.stream.set(StreamLife::Dropped);
        let waker = self
            .wakers()
            .as_mut()
            .and_then(|wakers| wakers.stream_gone.take());
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Whether the stream was dropped. If not, its drop will wake `waker`.
    pub(crate) fn is_stream_gone(&self, waker: &Waker) -> bool {
        // Under the lock: the stream may be dropped on another thread.
        let mut guard = self.wakers();
        store(&mut wakers(&mut guard).stream_gone, waker);
        self.stream.is(StreamLife::Dropped)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_task_that_waits_is_woken_by_a_cut_before_and_after() {
        let state = ConnState::new(Arc::default());
        state.hold_nothing();
        state.enter(Stage::Upgraded);
        let woken = Arc::<Count>::default();
        let waker = Waker::from(Arc::clone(&woken));
        for expected in [0, 4] {
            state.park_read(&waker);
            state.park_write(&waker);
            assert_eq!(woken.0.load(Ordering::Relaxed), expected);
            state.cut();
        }
    }
}
