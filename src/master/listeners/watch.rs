//! Listeners that a worker has shut down (shutdown(2)): every process that has a listener can close
//! it for all. The master opens them again.

use std::time::{Duration, Instant};

use nix::poll::PollFd;

use crate::hooks::Notice;
use crate::master::Master;
use crate::master::listeners::bound::{Reopened, Socket};
use crate::supervisor::Event;
use crate::sys::listener;

/// The pause after a listener was found shut down. A worker that does it without end keeps its
/// clients out, but the master is not kept from other work.
const PAUSE: Duration = Duration::from_secs(1);

/// When listeners are looked at.
#[derive(Debug, Default)]
pub(in crate::master) struct ListenerWatch {
    /// `None`: as soon as one is shut down, of which poll(2) tells.
    next: Option<Instant>,
    /// How often a listener could not be opened again.
    failures: u64,
}

impl ListenerWatch {
    /// How long the master may sleep before it has to look; `None` if poll(2) tells.
    pub(in crate::master) fn left(&self) -> Option<Duration> {
        let next = self.next?;
        Some(next.saturating_duration_since(Instant::now()))
    }
}

impl Master {
    /// What tells by poll(2) that a listener was shut down.
    pub(in crate::master) fn watched_listeners(&self) -> Vec<PollFd<'_>> {
        match self.listener_watch.next {
            None => listener::shut_down_events(self.listeners.all()),
            Some(_) => Vec::new(),
        }
    }

    /// Opens the listeners again that were shut down.
    pub(in crate::master) fn watch_listeners(&mut self) {
        if self
            .listener_watch
            .left()
            .is_some_and(|left| !left.is_zero())
        {
            return;
        }
        self.listener_watch.next = None;
        if !listener::is_any_shut_down(self.listeners.all()) {
            return;
        }
        let reopened = self.listeners.reopen();
        self.listener_watch.next = Some(Instant::now() + PAUSE);
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
                        // The workers have the old one.
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
