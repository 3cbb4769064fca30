//! What listeners have by the settings, and a worker may have changed: that they listen, their
//! backlog and their options. One process looks at all the listeners that a function gets
//! ([`sys::apart`](crate::sys::apart)).

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use crate::address::Address;
use crate::config::DeferAccept;
use crate::id::Slot;
use crate::master::KEPT_MAX;
use crate::master::listeners::Listeners;
use crate::master::listeners::bound::{Bound, SlotListeners};
use crate::protocol::inbox::Inbox;
use crate::sys::apart::each_apart;
use crate::sys::clock;
use crate::sys::listener::{self, harm};

/// A listener, and where it belongs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place<'a> {
    bound: &'a Bound,
    slot: Slot,
    listener: &'a OwnedFd,
}

impl Listeners {
    /// All listeners, each one once.
    pub(super) fn places(&self) -> Vec<Place<'_>> {
        let mut places = Vec::new();
        for bound in &self.bound {
            for (slot, listener) in (0..).map(Slot).zip(bound.listeners.all()) {
                places.push(Place {
                    bound,
                    slot,
                    listener,
                });
            }
        }
        places
    }

    /// The listeners of a slot, shared ones too.
    fn places_of(&self, slot: Slot) -> Vec<Place<'_>> {
        let mut places = Vec::new();
        for bound in &self.bound {
            let listener = bound.listeners.of(slot);
            places.extend(listener.map(|listener| Place {
                bound,
                slot,
                listener,
            }));
        }
        places
    }

    /// Whether a worker has closed a listener of the slot for all processes, or uses the socket for
    /// something else.
    pub(super) fn is_any_closed(&self, slot: Slot) -> bool {
        let places = self.places_of(slot);
        let (mut tcp, mut unix) = (Vec::new(), Vec::new());
        for place in &places {
            match place.bound.address {
                Address::Tcp(address) => tcp.push((place.listener.as_fd(), address)),
                Address::Unix(_) => unix.push(place.listener.as_fd()),
            }
        }
        let listen = tcp.is_empty() || harm::listen_at(&tcp);
        !listen || listener::is_any_shut_down(unix)
    }

    /// Gives the slot's listeners their backlog and options, which a worker may have changed.
    pub(super) fn mend(&self, slot: Slot) {
        let places = self.places_of(slot);
        self.set_defer_accept(&places);
        self.mend_places(&places);
    }

    /// Gives all inboxes the options of new ones. Returns how many had others.
    pub(super) fn mend_inboxes(&self) -> io::Result<usize> {
        Inbox::mend(&self.inboxes)
    }

    /// Does nothing for a listener that is closed. A connection on a Unix listener has the options
    /// of the client's socket.
    pub(super) fn mend_places(&self, places: &[Place<'_>]) {
        let (mut tcp, mut addresses) = (Vec::new(), Vec::new());
        for &place in places.iter().filter(|place| place.bound.asked.is_some()) {
            match place.bound.address {
                Address::Tcp(address) => {
                    addresses.push((
                        place.listener.as_fd(),
                        address,
                        place.bound.listeners.reuse(),
                    ));
                    tcp.push(place);
                }
                Address::Unix(_) if listener::is_shut_down(place.listener) => {}
                Address::Unix(_) => {
                    let listens = listener::listen(place.listener, self.backlog);
                    place.report(listens.map(|()| Vec::new()));
                }
            }
        }
        for (place, result) in tcp.into_iter().zip(harm::mend(&addresses, self.backlog)) {
            place.report(result);
        }
    }

    /// Has the listeners that only these slots have defer, and those of no other slot. Shared ones
    /// stay as they are. Call it for [`DeferAccept::Auto`] only.
    pub(in crate::master) fn defer(&mut self, defers: impl Fn(Slot) -> bool) {
        let mut changed = Vec::new();
        for slot in (0..self.slots()).map(Slot) {
            let deferred = defers(slot);
            let is_change = match deferred {
                true => self.deferred.insert(slot),
                false => self.deferred.remove(&slot),
            };
            if is_change && !deferred {
                self.keeps_until = clock::monotonic().saturating_add(KEPT_MAX);
            }
            if is_change {
                tracing::debug!(%slot, deferred, "TCP_DEFER_ACCEPT");
                changed.push(slot);
            }
        }
        let places = changed.into_iter().flat_map(|slot| self.places_of(slot));
        self.set_defer_accept(&places.filter(Place::is_own).collect::<Vec<_>>());
    }

    /// For how long from `now` on the kernel may still keep connections of slots that do not defer
    /// any more.
    pub(in crate::master) fn keeps_for(&self, now: Duration) -> Duration {
        self.keeps_until.saturating_sub(now)
    }

    /// Sets `TCP_DEFER_ACCEPT`, also of a listener that was inherited. By default, listeners of the
    /// service manager's units stay as they are.
    pub(super) fn set_defer_accept(&self, places: &[Place<'_>]) {
        let all_defer = self.defer_accept == DeferAccept::On;
        let is_set = |place: &&Place<'_>| {
            let is_ours = place.bound.asked.is_some() || all_defer;
            is_ours && matches!(place.bound.address, Address::Tcp(_))
        };
        let places: Vec<_> = places.iter().filter(is_set).collect();
        let deferred = |place: &&Place<'_>| {
            all_defer || (place.is_own() && self.deferred.contains(&place.slot))
        };
        let deferred: Vec<_> = places.iter().map(deferred).collect();
        let listeners: Vec<_> = places.iter().map(|place| place.listener).collect();
        let results = each_apart(&listeners, |at| {
            listener::defer_accept(listeners[at], deferred[at]).map(|()| 0)
        });
        for (place, result) in places.into_iter().zip(results) {
            if let Err(error) = result {
                let address = &place.bound.address;
                tracing::warn!(%address, %error, "TCP_DEFER_ACCEPT stays as it was");
            }
        }
    }
}

impl Place<'_> {
    /// Whether only one slot has the listener.
    fn is_own(&self) -> bool {
        matches!(self.bound.listeners, SlotListeners::PerSlot(_))
    }

    /// Logs which options of the listener were different.
    fn report(self, changed: io::Result<Vec<&'static str>>) {
        let (address, slot) = (&self.bound.address, self.slot);
        match changed {
            Ok(changed) if changed.is_empty() => {}
            // A process holds the lock, so the listener counts as closed, and is replaced.
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {}
            Ok(changed) => tracing::warn!(
                %address, %slot, changed = changed.join(", "),
                "a worker has changed options of a listener; they are as before"
            ),
            Err(error) => tracing::error!(
                %address, %slot, %error,
                "a worker has changed a listener, and it stays so until the server ends"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU16;

    use super::*;
    use crate::config::{Config, Listeners as Sharing};
    use crate::master::init::Inherited;

    /// After an upgrade a server may have both.
    #[test]
    fn a_shared_listener_does_not_defer_beside_those_of_a_slot() {
        let mut config = Config {
            addresses: vec!["127.0.0.1:0".parse().expect("an address")],
            ..Config::default()
        };
        let mut opened = |sharing| {
            config.listeners = sharing;
            let opened = Listeners::open(&config, NonZeroU16::MIN, Inherited::default());
            opened.expect("a free port")
        };
        let mut listeners = opened(Sharing::Shared);
        listeners.bound.extend(opened(Sharing::PerSlot).bound);
        listeners.defer(|_| true);
        listeners.mend(Slot(0));
        let of_slot = listeners.of(Slot(0)).into_iter();
        let deferred: Vec<_> = of_slot.map(listener::is_deferred).collect();
        assert_eq!(deferred, [false, true]);
    }
}
