//! The rests of requests whose response is complete, of one connection. What comes of them is
//! discarded for a second. Then their streams are reset.

use std::cell::RefCell;
use std::mem;
use std::task::Context;

use crate::http::exchange::unread::KeptBody;
use crate::http::registry::list::Registry;
use crate::http::registry::wheel::Tick;

/// So many bodies are kept. The streams of older ones are reset, so that a client that ignores its
/// responses does not keep all its streams.
const KEPT_MAX: usize = 8;

/// The oldest is the first.
#[derive(Default)]
pub(crate) struct KeptBodies(RefCell<Vec<Kept>>);

struct Kept {
    body: KeptBody,
    /// `None` until it is polled.
    since: Option<Tick>,
}

impl KeptBodies {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }

    /// Keeps the rest of a request whose response is complete. If a task of the app still has the
    /// body, the task keeps it.
    pub(crate) fn keep(&self, body: KeptBody) {
        if body.is_in_use() {
            return;
        }
        let mut kept = self.0.borrow_mut();
        if kept.len() == KEPT_MAX {
            kept.remove(0);
        }
        kept.push(Kept { body, since: None });
    }

    /// Discards what has come. Drops the bodies that have ended or were kept for a second, and
    /// returns whether there were any.
    pub(crate) fn discard(&self, registry: &Registry, cx: &mut Context<'_>) -> bool {
        let mut kept = self.0.borrow_mut();
        let before = kept.len();
        kept.retain_mut(|Kept { body, since }| {
            let since = *since.get_or_insert_with(|| registry.now());
            body.poll_discard(cx).is_pending() && !registry.is_second_over(since)
        });
        kept.len() < before
    }

    /// Drops all: the connection is to move or to end. Returns whether there were any.
    pub(crate) fn clear(&self) -> bool {
        !mem::take(&mut *self.0.borrow_mut()).is_empty()
    }
}
