//! What all turns need.

use crate::options::Scale;
use crate::peer::{Allocator, Peer, Pem, Running};
use crate::process::Trouble;
use crate::programs::Programs;
use crate::support::cpus;
use crate::support::identity::Identity;

/// Where the servers and the load run: on different CPUs if there are two.
#[derive(Clone)]
pub(crate) struct Cpus {
    all: Vec<usize>,
    pub(crate) server: usize,
    pub(crate) load: usize,
}

impl Cpus {
    /// From now on this thread stays on the load's CPU.
    pub(crate) fn of_this_process() -> Self {
        let all = cpus::usable();
        let server = all[0];
        let load = all.get(1).copied().unwrap_or(server);
        cpus::pin_to(&[load]);
        Self { all, server, load }
    }

    /// Runs `start` on the server's CPU, and so what it starts.
    pub(crate) fn on_server<T>(&self, start: impl FnOnce() -> T) -> T {
        self.on(&[self.server], start)
    }

    /// Runs `build` where it may use every CPU.
    pub(crate) fn on_all<T>(&self, build: impl FnOnce() -> T) -> T {
        self.on(&self.all, build)
    }

    fn on<T>(&self, cpus: &[usize], run: impl FnOnce() -> T) -> T {
        cpus::pin_to(cpus);
        let output = run();
        cpus::pin_to(&[self.load]);
        output
    }
}

pub(crate) struct Session {
    pub(crate) programs: Programs,
    pub(crate) cpus: Cpus,
    pub(crate) scale: Scale,
    /// Whose certificate servers within TLS have.
    pub(crate) identity: Identity,
}

impl Session {
    /// Starts a server on its CPU.
    pub(crate) fn start(&self, peer: Peer, heap: Allocator) -> Result<Running, Trouble> {
        self.cpus
            .on_server(|| peer.start(&self.programs, heap, None))
    }

    /// The same within TLS, and with mimalloc.
    pub(crate) fn start_private(&self, peer: Peer, pem: &Pem) -> Result<Running, Trouble> {
        let start = || peer.start(&self.programs, Allocator::Mimalloc, Some(pem));
        self.cpus.on_server(start)
    }
}
