//! Listeners and inboxes that no process reaches. The master opens listeners again, and replaces
//! inboxes. A worker has shut one down (shutdown(2)), which a process that has a socket does for
//! all; the master sees that at once. A worker has then used the socket for something else, or has
//! changed its options; the master looks for that when the worker has ended. Or the file of a Unix
//! listener was removed; the master looks for that at a reload and an upgrade.

use std::ops::RangeInclusive;
use std::time::Duration;

use nix::poll::PollFd;

use crate::hooks::Notice;
use crate::id::Slot;
use crate::master::Master;
use crate::master::listeners::NewAddresses;
use crate::master::listeners::bound::{Reopened, Socket};
use crate::master::workers::outbox::Message;
use crate::supervisor::Event;
use crate::sys::{clock, listener};

/// The pause after a socket was found shut down. A worker that does it again and again keeps
/// clients out, but does not keep the master from other work.
const PAUSE: Duration = Duration::from_secs(1);

/// All slots.
const ALL: RangeInclusive<Slot> = Slot(0)..=Slot(u16::MAX);

/// When the master looks for listeners that were shut down.
#[derive(Debug, Default)]
pub(in crate::master) struct ListenerWatch {
    /// On the monotonic clock; `None`: as soon as poll(2) reports one that was shut down.
    paused_until: Option<Duration>,
    /// How often a listener could not be opened again, or an inbox not be replaced.
    failures: u64,
}

impl ListenerWatch {
    /// Counts a failure. Returns the number of failures if it is to be logged: at 1, 2, 4, 8, ...
    fn note_failure(&mut self) -> Option<u64> {
        self.failures += 1;
        self.failures.is_power_of_two().then_some(self.failures)
    }

    pub(in crate::master) fn paused_until(&self) -> Option<Duration> {
        self.paused_until
    }
}

impl Master {
    /// What poll(2) is to watch, so that it reports a listener that was shut down.
    pub(in crate::master) fn watched_listeners(&self) -> Vec<PollFd<'_>> {
        match self.listener_watch.paused_until {
            None => listener::shut_down_events(self.listeners.sockets()),
            Some(_) => Vec::new(),
        }
    }

    /// As [`watch_listeners`](Self::watch_listeners), when the pause is over.
    pub(in crate::master) fn watch_listeners_again(&mut self) {
        self.listener_watch.paused_until = None;
        self.watch_listeners();
    }

    /// Opens the listeners again, and replaces the inboxes, if one was shut down.
    pub(in crate::master) fn watch_listeners(&mut self) {
        let paused = self.listener_watch.paused_until.is_some();
        if paused || !listener::is_any_shut_down(self.listeners.sockets()) {
            return;
        }
        self.listener_watch.paused_until = Some(clock::monotonic() + PAUSE);
        let mut sockets = self.reopen_listeners();
        sockets.extend(self.replace_inboxes());
        self.give_new(&sockets);
    }

    /// When a worker of the slot has ended: gives its listeners to those that follow as it has got
    /// them.
    pub(in crate::master) fn mend_listeners(&mut self, slot: Slot) {
        if self.listeners.is_any_closed(slot) {
            let sockets = self.reopen_listeners();
            self.give_new(&sockets);
        }
        self.listeners.mend(slot);
        self.mend_inboxes();
    }

    /// Of all slots: a worker has the inboxes of others too.
    fn mend_inboxes(&self) {
        match self.listeners.mend_inboxes() {
            Ok(0) => {}
            Ok(inboxes) => {
                let what = "a worker has changed options of inboxes; they are as before";
                tracing::warn!(inboxes, "{what}");
            }
            Err(error) => tracing::error!(%error, "inboxes may be as a worker has changed them"),
        }
    }

    fn give_new(&mut self, sockets: &[Socket]) {
        if sockets.contains(&Socket::New) {
            self.observers.init.store(&self.listeners);
            self.give_to_workers(ALL);
            // These workers also have the old socket still, and new ones will not.
            self.handle_event(Event::Reload);
        }
    }

    /// Gives the workers that run the sockets of those of these slots that they attend to, because
    /// some are new. Until other workers replace them it may take long.
    pub(in crate::master) fn give_to_workers(&mut self, those: RangeInclusive<Slot>) {
        let mut given = Vec::new();
        for (&worker, process) in &self.workers.processes {
            if process.is_wanted() {
                // Its own slot first: what it has of that one stays when it releases the others.
                let slots = [process.slot].into_iter();
                let slots = slots.chain(self.supervisor.adopted_by(worker));
                let slots = slots.filter(|slot| those.contains(slot));
                given.extend(slots.map(|slot| (worker, slot)));
            }
        }
        for (worker, slot) in given {
            self.send(worker, Message::Adopt(slot));
        }
    }

    /// In a reload or an upgrade: makes socket files again that were removed.
    pub(in crate::master) fn renew_listeners(&mut self) -> NewAddresses {
        // An operator who reloads hears of each failure.
        self.listener_watch.failures = 0;
        self.mend_inboxes();
        if !self.reopen_listeners().contains(&Socket::New) {
            return NewAddresses::None;
        }
        self.give_to_workers(ALL);
        NewAddresses::Some
    }

    fn replace_inboxes(&mut self) -> Option<Socket> {
        let mut socket = None;
        for (slot, result) in self.listeners.renew_inboxes() {
            match result {
                Ok(()) => {
                    tracing::warn!(%slot, "an inbox was shut down; new workers get another one");
                    socket = Some(Socket::New);
                }
                Err(error) => {
                    if let Some(failures) = self.listener_watch.note_failure() {
                        tracing::error!(%slot, %error, failures, "an inbox cannot be replaced");
                    }
                }
            }
        }
        socket
    }

    /// Opens listeners again, and returns the sockets that listen now.
    fn reopen_listeners(&mut self) -> Vec<Socket> {
        let mut sockets = Vec::new();
        for Reopened {
            address,
            slot,
            result,
        } in self.listeners.reopen()
        {
            let named = slot.map(tracing::field::display);
            match result {
                Ok(socket) => {
                    tracing::warn!(
                        %address, slot = named,
                        "a worker has closed a listener, or its socket file was removed; it \
                         listens again"
                    );
                    self.observers
                        .notify(&Notice::ListenerReopened { address, slot });
                    sockets.push(socket);
                }
                Err(error) => {
                    if let Some(failures) = self.listener_watch.note_failure() {
                        tracing::error!(
                            %address, slot = named, %error, failures,
                            "no client reaches a listener, and it cannot be opened again"
                        );
                    }
                }
            }
        }
        sockets
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_failures_that_repeat_few_are_logged() {
        let mut watch = ListenerWatch::default();
        let logged: Vec<_> = (0..9).filter_map(|_| watch.note_failure()).collect();
        assert_eq!(logged, [1, 2, 4, 8]);
    }
}
