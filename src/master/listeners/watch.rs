//! Listeners and inboxes that a worker has shut down (shutdown(2)), which any process that has a
//! socket can do for all. The master opens listeners again, and replaces inboxes.

use std::time::Duration;

use nix::poll::PollFd;

use crate::hooks::Notice;
use crate::master::Master;
use crate::master::listeners::bound::{Reopened, Socket};
use crate::supervisor::Event;
use crate::sys::{clock, listener};

/// The pause after a socket was found shut down. A worker that does it again and again keeps clients
/// out, but does not keep the master from other work.
const PAUSE: Duration = Duration::from_secs(1);

/// When the master looks for listeners that were shut down.
#[derive(Debug, Default)]
pub(in crate::master) struct ListenerWatch {
    /// On the monotonic clock; `None`: as soon as poll(2) reports one that was shut down.
    paused_until: Option<Duration>,
    /// How often a listener could not be opened again.
    failures: u64,
}

impl ListenerWatch {
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

    /// Opens the listeners again that were shut down, and replaces the inboxes.
    pub(in crate::master) fn watch_listeners(&mut self) {
        let paused = self.listener_watch.paused_until.is_some();
        if paused || !listener::is_any_shut_down(self.listeners.sockets()) {
            return;
        }
        self.listener_watch.paused_until = Some(clock::monotonic() + PAUSE);
        self.reopen_listeners();
        self.replace_inboxes();
    }

    fn replace_inboxes(&mut self) {
        for (slot, result) in self.listeners.renew_inboxes() {
            match result {
                Ok(()) => {
                    tracing::warn!(%slot, "an inbox was shut down; new workers get another one");
                    self.handle_event(Event::Reload);
                }
                Err(error) => tracing::error!(%slot, %error, "an inbox cannot be replaced"),
            }
        }
    }

    fn reopen_listeners(&mut self) {
        let reopened = self.listeners.reopen();
        for Reopened {
            address,
            slot,
            result,
        } in reopened
        {
            match result {
                Ok(socket) => {
                    tracing::warn!(%address, ?slot, "a listener was shut down; it listens again");
                    self.observers
                        .notify(&Notice::ListenerReopened { address, slot });
                    if socket == Socket::New {
                        // The workers have the old socket.
                        self.handle_event(Event::Reload);
                    }
                }
                Err(error) => {
                    self.listener_watch.failures += 1;
                    let failures = self.listener_watch.failures;
                    // At 1, 2, 4, 8, ... failures.
                    if failures.is_power_of_two() {
                        tracing::error!(
                            %address, ?slot, %error, failures,
                            "a listener was shut down and cannot be opened again"
                        );
                    }
                }
            }
        }
    }
}
