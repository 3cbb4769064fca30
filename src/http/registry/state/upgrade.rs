//! The state of a stream after an upgrade: the handler, or a task that it started, owns the stream.

use std::task::Waker;

use super::parts::{End, StreamLife};
use super::{ConnState, Stage, store, wakers};

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
        if self.stage() == Stage::Upgraded {
            store(&mut wakers(&mut self.wakers()).upgraded_read, waker);
        }
    }

    /// As [`ConnState::park_read`], for the task that writes.
    pub(crate) fn park_write(&self, waker: &Waker) {
        if self.stage() == Stage::Upgraded {
            store(&mut wakers(&mut self.wakers()).upgraded_write, waker);
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
