//! Even loads. [`collect`] reads what the workers count and tells them what to give away. How many
//! connections go from which worker to which is decided by [`policy`], so that the numbers become
//! even, and by [`shedding`], so that none waits while another worker has time. [`siblings`] tells
//! each worker to which others it may give new connections.

mod collect;
mod policy;
mod shedding;
mod siblings;

use std::time::Duration;

use crate::config::Config;
use crate::master::balance::collect::Times;
use crate::master::balance::shedding::Shedding;
use crate::master::balance::siblings::Told;
use crate::master::tls::Secrets;

/// What the master knows of the balance.
#[derive(Debug)]
pub(super) struct Balancing {
    /// When to compare the workers' loads next, on the monotonic clock; `None` if never.
    next_look: Option<Duration>,
    /// At the last look.
    times: Times,
    shedding: Shedding,
    /// `None` if new connections stay with the worker that accepts them.
    told: Option<Told>,
}

impl Balancing {
    pub(super) fn new(config: &Config, secrets: Option<&Secrets>) -> Self {
        Self {
            next_look: collect::first_look(config, secrets),
            times: Times::new(),
            shedding: Shedding::default(),
            told: Told::new(config),
        }
    }
}
