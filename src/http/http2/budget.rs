//! How many bytes of responses a worker keeps for clients of HTTP/2 that do not take them yet.
//!
//! hyper asks each response's body for its first piece before the client has granted a window, as a
//! claim on the connection's window that a silent body makes could stop other streams. A client
//! that grants no window keeps that piece for as long as it may take nothing. So a body is asked
//! for more only while its connection has room. Bodies that have to wait are asked in the order in
//! which they came, as pieces leave.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::{Rc, Weak};

use crate::http::http2::frames::Frames;
use crate::http::registry::list::Registry;

/// No body is asked for more while a connection keeps so many bytes. With the piece that is one too
/// many, of 64 KiB as bodies of files and proxies make them, it is less than 256 KiB.
pub(crate) const CONNECTION_MAX: usize = 160 * 1024;

/// While all connections of a worker keep so many, each has one piece at a time.
const WORKER_MAX: usize = 64 * 1024 * 1024;

/// As many bytes are taken for one piece of a body that is yet to be asked.
const PIECE: usize = 64 * 1024;

/// A response that may wait for room on its connection.
pub(crate) trait Waiting {
    /// There is room.
    fn wake(&self);
}

/// See the module's head. That of one connection.
pub(crate) struct ResponseBudget {
    registry: Rc<Registry>,
    pub(crate) frames: Rc<Frames>,
    bytes: Cell<usize>,
    waiting: RefCell<VecDeque<Weak<dyn Waiting>>>,
}

impl ResponseBudget {
    pub(crate) fn new(registry: &Rc<Registry>) -> Self {
        Self {
            registry: Rc::clone(registry),
            frames: Rc::new(Frames::new(registry)),
            bytes: Cell::new(0),
            waiting: RefCell::default(),
        }
    }

    /// Whether a body may be asked for more. A connection that keeps nothing always has room, so
    /// that others cannot stop it.
    pub(crate) fn has_room(&self) -> bool {
        let bytes = self.bytes.get();
        bytes == 0 || (bytes < CONNECTION_MAX && self.registry.kept() < WORKER_MAX)
    }

    pub(crate) fn begin(&self, bytes: usize) {
        self.bytes.set(self.bytes.get() + bytes);
        self.registry.keep(bytes);
    }

    pub(crate) fn end(&self, bytes: usize) {
        self.bytes.set(self.bytes.get() - bytes);
        self.registry.let_go(bytes);
    }

    pub(crate) fn wait(&self, response: Weak<dyn Waiting>) {
        self.waiting.borrow_mut().push_back(response);
    }

    /// Wakes as many of the responses that wait as there is room for.
    pub(crate) fn admit(&self) {
        let mut room = CONNECTION_MAX
            .saturating_sub(self.bytes.get())
            .div_ceil(PIECE);
        while self.has_room() && room > 0 {
            let Some(response) = self.waiting.borrow_mut().pop_front() else {
                return;
            };
            if let Some(response) = response.upgrade() {
                response.wake();
                room -= 1;
            }
        }
    }

    /// Whether responses wait for others of their connection.
    pub(crate) fn is_full(&self) -> bool {
        let mut waiting = self.waiting.borrow_mut();
        waiting.retain(|response| response.strong_count() > 0);
        !waiting.is_empty()
    }
}
