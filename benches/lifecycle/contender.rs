//! A server that things happen to, and what can happen.

use std::net::SocketAddr;

use clap::ValueEnum;

use crate::chance::Chance;
use crate::fasthttp::{Fasthttp, Sharing};
use crate::load::Load;
use crate::nginx::Nginx;
use crate::prefork::{Mode, Prefork};
use crate::process::Trouble;

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Event {
    /// Every worker is replaced.
    Reload,
    /// A worker, chosen by chance, is killed.
    Kill,
    /// The program is replaced by a copy of itself.
    Upgrade,
    /// A worker more, or one fewer.
    Resize,
}

impl Event {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Reload => "reload",
            Self::Kill => "kill",
            Self::Upgrade => "upgrade",
            Self::Resize => "resize",
        }
    }

    /// How many workers a server starts with.
    pub(crate) fn workers(self) -> usize {
        match self {
            // Killed at random, some are in backoff while their siblings are killed.
            Self::Kill => 4,
            Self::Reload | Self::Upgrade | Self::Resize => 2,
        }
    }
}

/// Who serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Name {
    /// This package's binary, a listener for each slot.
    Prefork,
    /// This package's binary, one listener for all workers.
    PreforkShared,
    /// nginx with `reuseport`.
    Nginx,
    /// fasthttp/prefork, one listener for all children.
    Fasthttp,
    /// fasthttp/prefork with `Reuseport`.
    FasthttpReuseport,
}

impl Name {
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Prefork => "prefork",
            Self::PreforkShared => "prefork shared",
            Self::Nginx => "nginx",
            Self::Fasthttp => "fasthttp",
            Self::FasthttpReuseport => "fasthttp reuseport",
        }
    }

    /// Whether a loss is our own.
    pub(crate) fn is_ours(self) -> bool {
        matches!(self, Self::Prefork | Self::PreforkShared)
    }

    pub(crate) fn start(self, workers: usize) -> Result<Box<dyn Contender>, Trouble> {
        Ok(match self {
            Self::Prefork => Box::new(Prefork::start(Mode::PerSlot, workers)?),
            Self::PreforkShared => Box::new(Prefork::start(Mode::Shared, workers)?),
            Self::Nginx => Box::new(Nginx::start(workers)?),
            Self::Fasthttp => Box::new(Fasthttp::start(Sharing::OneListener, workers)?),
            Self::FasthttpReuseport => Box::new(Fasthttp::start(Sharing::ReusePort, workers)?),
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
