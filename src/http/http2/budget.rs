//! Limits for the bytes of HTTP/2 responses that a worker buffers until the clients take them.
//!
//! hyper polls each response's body for its first piece before the client has granted a window. It
//! does not reserve a part of the connection's window first, because a body that sends nothing
//! would then stop other streams. If a client grants no window, the piece stays buffered until the
//! write timeout. So a body is polled only while the buffered bytes are below the limits. Bodies
//! that wait are polled in the order in which they came, as pieces are sent.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::{Rc, Weak};

use crate::http::http2::frames::Frames;
use crate::http::registry::list::Registry;

/// While a connection buffers so many bytes, none of its bodies is polled. The last piece may
/// exceed the limit. With pieces of 64 KiB, as bodies of files and proxies have them, a connection
/// buffers less than 256 KiB.
const CONNECTION_MAX: usize = 160 * 1024;

/// While all connections of a worker buffer so many bytes, each has one piece at a time.
const WORKER_MAX: usize = 64 * 1024 * 1024;

/// The assumed size of one piece of a body that is not polled yet, in bytes.
const PIECE: usize = 64 * 1024;

/// A response that may wait until its connection is below the limit.
pub(crate) trait Waiting {
    /// Whether it waits. It may have been polled for another reason, and have sent a piece.
    fn waits(&self) -> bool;

    /// Called when the connection is below the limit, if it waits.
    fn wake(&self);
}

/// The bytes that one connection buffers, and the responses that wait.
pub(crate) struct ResponseBudget {
    registry: Rc<Registry>,
    pub(crate) frames: Rc<Frames>,
    bytes: Cell<usize>,
    waiting: RefCell<VecDeque<Weak<dyn Waiting>>>,
}

impl ResponseBudget {
    pub(crate) fn new(registry: &Rc<Registry>, frames: &Rc<Frames>) -> Self {
        Self {
            registry: Rc::clone(registry),
            frames: Rc::clone(frames),
            bytes: Cell::new(0),
            waiting: RefCell::default(),
        }
    }

    /// Whether a body may be polled. Always true for a connection that buffers nothing, so that
    /// other connections cannot stop it.
    pub(crate) fn is_below_limits(&self) -> bool {
        let bytes = self.bytes.get();
        bytes == 0 || (bytes < CONNECTION_MAX && !self.is_worker_full())
    }

    /// Whether all connections of the worker buffer as much as they may.
    pub(crate) fn is_worker_full(&self) -> bool {
        self.registry.buffered() >= WORKER_MAX
    }

    /// So many bytes are buffered.
    pub(crate) fn begin(&self, bytes: usize) {
        self.bytes.set(self.bytes.get() + bytes);
        self.registry.add_buffered(bytes);
    }

    /// So many bytes are buffered no more.
    pub(crate) fn end(&self, bytes: usize) {
        self.bytes.set(self.bytes.get() - bytes);
        self.registry.remove_buffered(bytes);
    }

    pub(crate) fn wait(&self, response: Weak<dyn Waiting>) {
        self.waiting.borrow_mut().push_back(response);
    }

    /// Wakes as many waiting responses as the limits allow.
    pub(crate) fn admit(&self) {
        let mut pieces_left = CONNECTION_MAX
            .saturating_sub(self.bytes.get())
            .div_ceil(PIECE);
        while self.is_below_limits() && pieces_left > 0 {
            let Some(response) = self.waiting.borrow_mut().pop_front() else {
                return;
            };
            if let Some(response) = response.upgrade().filter(|it| it.waits()) {
                response.wake();
                pieces_left -= 1;
            }
        }
    }

    /// Whether responses wait until other responses of their connection are sent.
    pub(crate) fn is_full(&self) -> bool {
        let mut waiting = self.waiting.borrow_mut();
        waiting.retain(|response| response.upgrade().is_some_and(|it| it.waits()));
        !waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::Http;
    use crate::stats::WorkerStats;

    struct Response {
        waits: bool,
        is_woken: Cell<bool>,
    }

    impl Waiting for Response {
        fn waits(&self) -> bool {
            self.waits
        }

        fn wake(&self) {
            self.is_woken.set(true);
        }
    }

    /// More of them than pieces fit.
    #[test]
    fn responses_that_no_longer_wait_take_no_turn() {
        let registry = Registry::new(Http::new(), WorkerStats::own());
        let budget = ResponseBudget::new(&registry, &Rc::new(Frames::new(&registry)));
        let responses = [false, false, false, true].map(|waits| {
            let is_woken = Cell::new(false);
            Rc::new(Response { waits, is_woken })
        });
        let wait = |response: &Rc<Response>| {
            let response: Weak<Response> = Rc::downgrade(response);
            budget.wait(response);
        };
        responses[..3].iter().for_each(wait);
        assert!(!budget.is_full());
        responses.iter().for_each(wait);
        assert!(budget.is_full());
        budget.admit();
        let woken = responses.map(|response| response.is_woken.get());
        assert_eq!(woken, [false, false, false, true]);
    }
}
