//! A server that things happen to, and what can happen.

use std::net::SocketAddr;

use clap::ValueEnum;

use crate::foreign::{Foreign, Kind};
use crate::load::Load;
use crate::prefork::{Mode, Prefork};
use crate::process::Trouble;
use crate::support::chance::Chance;
use crate::support::named;

named! {
    /// What happens.
    #[derive(ValueEnum)]
    enum Event {
        /// Every worker is replaced.
        Reload = "reload",
        /// A worker, chosen by chance, is killed.
        Kill = "kill",
        /// The program is replaced by a copy of itself.
        Upgrade = "upgrade",
        /// A worker more, or one fewer.
        Resize = "resize",
    }
}

impl Event {
    /// How many workers a server starts with.
    pub(crate) fn workers(self) -> usize {
        match self {
            // Killed at random, some are in backoff while their siblings are killed.
            Self::Kill => 4,
            Self::Reload | Self::Upgrade | Self::Resize => 2,
        }
    }
}

named! {
    /// A server.
    #[derive(ValueEnum)]
    enum Name {
        /// This package's binary, a listener for each slot.
        Prefork = "prefork",
        /// This package's binary, one listener for all workers.
        PreforkShared = "prefork shared",
        /// nginx with `reuseport`.
        Nginx = "nginx",
        /// fasthttp/prefork, one listener for all children.
        Fasthttp = "fasthttp",
        /// fasthttp/prefork with `Reuseport`.
        FasthttpReuseport = "fasthttp reuseport",
    }
}

impl Name {
    /// Whether a loss is our own.
    pub(crate) fn is_ours(self) -> bool {
        matches!(self, Self::Prefork | Self::PreforkShared)
    }

    pub(crate) fn start(self, workers: usize) -> Result<Box<dyn Contender>, Trouble> {
        Ok(match self {
            Self::Prefork => Box::new(Prefork::start(Mode::PerSlot, workers)?),
            Self::PreforkShared => Box::new(Prefork::start(Mode::Shared, workers)?),
            Self::Nginx => Box::new(Foreign::start(Kind::Nginx, workers)?),
            Self::Fasthttp => Box::new(Foreign::start(Kind::FasthttpShared, workers)?),
            Self::FasthttpReuseport => Box::new(Foreign::start(Kind::FasthttpReuseport, workers)?),
        })
    }
}

/// A running server. Each event returns when it is over, so that the next may begin.
pub(crate) trait Contender {
    fn address(&self) -> SocketAddr;

    fn reload(&mut self) -> Result<(), Trouble>;

    /// Kills a worker. What it has accepted is excused; see [`Load::excuse`].
    fn kill(&mut self, load: &Load, chance: &mut Chance) -> Result<(), Trouble>;

    fn upgrade(&mut self) -> Result<(), Trouble>;

    fn resize(&mut self, chance: &mut Chance) -> Result<(), Trouble>;

    /// Waits, after an event, for what of it need not be over before the next.
    fn settle(&mut self, _number: usize) -> Result<(), Trouble> {
        Ok(())
    }

    /// The end of its log.
    fn log(&self) -> String;
}
