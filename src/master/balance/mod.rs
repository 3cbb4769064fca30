//! Even loads, and rushes of new connections. [`collect`] reads what the workers count and how busy
//! they are, and acts on it. How many connections go from which worker to which is decided by
//! [`policy`], so that the numbers become even, and by [`shedding`], so that none waits while
//! another worker has time. [`siblings`] tells each worker to which others it may give new
//! connections. [`deferring`] decides when the kernel keeps new connections until their first byte.

mod collect;
mod deferring;
mod policy;
mod shedding;
mod siblings;

use std::time::Duration;

use crate::config::{Balance, Config, DeferAccept};
use crate::master::balance::collect::Samples;
use crate::master::balance::deferring::Deferring;
use crate::master::balance::shedding::Shedding;
use crate::master::balance::siblings::Told;
use crate::master::listeners::Listeners;
use crate::protocol::channel::SHARE_TERM;
use crate::sys::clock;

/// What the master knows of the balance.
#[derive(Debug)]
pub(super) struct Balancing {
    /// When to look at the workers' loads next, on the monotonic clock.
    next_look: Duration,
    /// Of the last look.
    samples: Samples,
    /// `None` if open connections stay where they are.
    shedding: Option<Shedding>,
    /// `None` if listeners stay as they are.
    deferring: Option<Deferring>,
    /// `None` if new connections stay with the worker that accepts them.
    told: Option<Told>,
}

impl Balancing {
    pub(super) fn new(config: &Config, listeners: &Listeners) -> Self {
        let moves = config.balance == Balance::Even;
        let has_own_listeners = listeners.slots() > 0;
        let defers = config.defer_accept == DeferAccept::Auto && has_own_listeners;
        Self {
            next_look: clock::monotonic() + SHARE_TERM,
            samples: Samples::new(),
            shedding: moves.then(Shedding::default),
            deferring: defers.then(Deferring::default),
            told: Told::new(config),
        }
    }

    /// When to look at the loads of so many workers next; `None` if that would change nothing.
    fn next_look(&self, workers: usize) -> Option<Duration> {
        let looks = self.may_share(workers) || self.may_defer(workers);
        looks.then_some(self.next_look)
    }

    /// Whether one of so many workers may give open connections to another.
    fn may_share(&self, workers: usize) -> bool {
        self.shedding.is_some() && workers > 1
    }

    /// Whether the kernel may be asked to keep connections of one of so many workers.
    fn may_defer(&self, workers: usize) -> bool {
        self.deferring.is_some() && workers > 0
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU16;

    use super::*;
    use crate::config::Listeners as Sharing;
    use crate::master::init::Inherited;

    fn looks_at(workers: usize, config: &Config) -> bool {
        let listeners = Listeners::open(config, NonZeroU16::MIN, Inherited::default());
        let balancing = Balancing::new(config, &listeners.expect("a free port"));
        balancing.next_look(workers).is_some()
    }

    #[test]
    fn loads_are_looked_at_only_if_that_may_change_something() {
        let mut config = Config {
            addresses: vec!["127.0.0.1:0".parse().expect("an address")],
            ..Config::default()
        };
        assert!(looks_at(1, &config), "a rush may come");
        assert!(!looks_at(0, &config));
        config.balance = Balance::Off;
        assert!(looks_at(2, &config));
        config.listeners = Sharing::Shared;
        assert!(!looks_at(2, &config), "no slot has a listener of its own");
        config.listeners = Sharing::PerSlot;
        config.defer_accept = DeferAccept::On;
        assert!(!looks_at(2, &config));
        config.balance = Balance::Even;
        assert!(looks_at(2, &config));
        assert!(!looks_at(1, &config), "there is no other worker");
    }
}
