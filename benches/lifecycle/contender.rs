//! A server that things happen to, and what can happen.

use std::net::SocketAddr;
use std::path::Path;

use clap::ValueEnum;
use nix::unistd::Pid;

use crate::foreign::Foreign;
use crate::prefork::Prefork;
use crate::process::{Processes, Trouble};
use crate::support::named;
use crate::support::pem::Pem;
use crate::support::tree::Tree;

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

    /// Whether it has a reload of its own.
    pub(crate) fn knows_reloads(self) -> bool {
        self.is_ours() || self == Self::Nginx
    }

    pub(crate) fn start(self, workers: usize) -> Result<Box<dyn Contender>, Trouble> {
        self.start_with(Contents::Echo, Speaks::Http1, workers)
    }

    pub(crate) fn start_with(
        self,
        contents: Contents,
        speaks: Speaks,
        workers: usize,
    ) -> Result<Box<dyn Contender>, Trouble> {
        Ok(match self {
            Self::Prefork | Self::PreforkShared => {
                Box::new(Prefork::start(self, contents, speaks, workers)?)
            }
            _ => Box::new(Foreign::start(self, contents, speaks, workers)?),
        })
    }
}

/// What a server responds with.
#[derive(Clone, Copy)]
pub(crate) enum Contents<'a> {
    /// The request's token.
    Echo,
    /// The files of this directory. fasthttp has none here.
    Files(&'a Path),
}

/// What a server speaks with its clients.
#[derive(Clone, Copy)]
#[allow(dead_code, reason = "the bench `connections` uses all of it")]
pub(crate) enum Speaks<'a> {
    Http1,
    /// By prior knowledge. fasthttp does not know it.
    Http2,
    /// Both, as a client likes, with this certificate. fasthttp has it not here.
    Tls(&'a Pem),
}

/// A running server. Each event returns when it is over, so that the next may begin.
pub(crate) trait Contender {
    fn processes(&self) -> &Processes;

    /// The server's own processes.
    #[allow(dead_code, reason = "the bench `connections` uses it")]
    fn tree(&self) -> Tree {
        self.processes().tree()
    }

    fn address(&self) -> SocketAddr;

    fn reload(&mut self) -> Result<(), Trouble>;

    /// Those that may be killed.
    fn workers(&mut self) -> Result<Vec<Pid>, Trouble>;

    /// Kills this worker, and does not wait for anything.
    fn kill(&mut self, worker: Pid) -> Result<(), Trouble>;

    /// Waits until the killed worker is replaced.
    fn replaced(&mut self, worker: Pid) -> Result<(), Trouble>;

    fn upgrade(&mut self) -> Result<(), Trouble>;

    /// A worker more, or one fewer.
    fn resize(&mut self, grows: bool) -> Result<(), Trouble>;

    /// Waits, after an event, for what of it need not be over before the next.
    fn settle(&mut self, _number: usize) -> Result<(), Trouble> {
        Ok(())
    }

    /// The end of its log.
    fn log(&self) -> String {
        self.processes().log()
    }
}
