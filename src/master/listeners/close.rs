//! The listeners and inboxes at the end of the server.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;

use super::Listeners;
use super::bound::Bound;
use crate::address::Address;
use crate::id::Slot;
use crate::protocol::inbox::Inbox;
use crate::sys::discard::discard;
use crate::sys::listener;

impl Listeners {
    /// Closes all listeners, and removes the files of Unix ones. The inboxes stay. A connection is
    /// lost with the listener in which it waits for its first byte, so those that come now do not
    /// wait.
    ///
    /// In the slots `killed` there are killed workers. If the kernel does not end one, it has its
    /// listeners for longer than the server runs. [`Listeners::close_rest`] closes those.
    pub(crate) fn close(&mut self, killed: &BTreeSet<Slot>) {
        self.defer(|_| false);
        for bound in self.bound.drain(..) {
            self.held.extend(bound.into_held(killed));
        }
    }

    /// Closes the inboxes, and what those of the killed workers still have that are left: clients
    /// would wait in it, and another server could not have the address. No other worker is left.
    pub(crate) fn close_rest(&mut self, killed: &BTreeSet<Slot>) {
        close(std::mem::take(&mut self.inboxes));
        let held = std::mem::take(&mut self.held);
        if killed.is_empty() {
            return;
        }
        for listener in held {
            if let Err(error) = listener::close(&listener) {
                tracing::warn!(%error, "a listener that a killed worker may have stays open");
            }
        }
    }
}

impl Bound {
    /// Its TCP listeners in these slots. Those of the service manager's units stay open.
    fn into_held(self, slots: &BTreeSet<Slot>) -> Vec<OwnedFd> {
        if self.asked.is_none() || matches!(self.address, Address::Unix(_)) {
            return Vec::new();
        }
        self.listeners.into_those_of(slots)
    }
}

/// A worker of another user may have put a descriptor into an inbox whose close(2) blocks.
pub(super) fn close(inboxes: Vec<Inbox>) {
    if inboxes.iter().any(Inbox::is_waited_in) {
        discard(inboxes);
    }
}
