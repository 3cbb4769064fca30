//! Even loads. [`collect`] reads what the workers count and tells them what to give away, and
//! [`policy`] decides how many connections go from which worker to which. [`siblings`] tells each
//! worker to which others it may give new connections.

mod collect;
mod policy;
mod siblings;

use std::time::Duration;

use crate::config::Config;
use crate::master::balance::siblings::Told;
use crate::master::tls::Secrets;

/// What the master knows of the balance.
#[derive(Debug)]
pub(super) struct Balancing {
    /// When to compare the workers' loads next, on the monotonic clock; `None` if never.
    next_look: Option<Duration>,
    /// `None` if new connections stay with the worker that accepts them.
    told: Option<Told>,
}

impl Balancing {
    pub(super) fn new(config: &Config, secrets: Option<&Secrets>) -> Self {
        Self {
            next_look: collect::first_look(config, secrets),
            told: Told::new(config),
        }
    }
}
