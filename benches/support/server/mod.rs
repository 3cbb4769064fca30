//! A server in a process of its own, so that its CPU time and its memory are its own.
//!
//! Every server is this executable started once more with its role in the environment. It prints
//! the notice `serving` when it does, ends on TERM, and ends as well when the bench is gone: the
//! kernel sends that TERM, so not even a killed bench leaves a server behind.

mod handlers;
mod neighbour;
mod opponents;
mod process;
mod role;
mod tls;

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use nix::sys::signal::{Signal, kill};
use serde::{Deserialize, Serialize};

use self::process::Process;
use self::role::Role;
use crate::support::cpu::Processes;
use crate::support::identity::Identity;
use crate::support::named;

pub(crate) use self::handlers::{BODY, COMPUTED};
pub(crate) use self::neighbour::Neighbour;
pub(crate) use self::role::become_server_if_asked;

/// The allocator of this package's binary, so that it does not make a difference between servers.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

named! {
    /// A way to spread connections over CPUs. Each runs as many workers as there are CPUs.
    #[derive(Deserialize, Serialize)]
    enum Model {
        /// This crate: a process per CPU, each with a runtime and a listener.
        Prefork = "prefork",
        /// The same with one listener that all workers accept from.
        PreforkShared = "prefork_shared",
        /// One process, one multi-threaded runtime, one listener.
        MultiThread = "multi_thread",
        /// One process, a thread per CPU, each with a runtime and a listener.
        CurrentThreads = "current_threads",
    }
}

impl Model {
    /// Whether a connection stays with the worker that accepted it.
    pub(crate) fn keeps_connections_apart(self) -> bool {
        self != Self::MultiThread
    }

    fn processes(self, workers: usize) -> usize {
        match self {
            Self::Prefork | Self::PreforkShared => 1 + workers,
            Self::MultiThread | Self::CurrentThreads => 1,
        }
    }
}

/// What a server answers.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) enum App {
    /// The same handlers in every model: `handlers.rs` has the paths.
    Handlers,
    /// The same within TLS.
    Private(Identity),
    /// The files of a directory: this package's binary, and tower-http's `ServeDir` elsewhere.
    Files(PathBuf),
}

/// How many workers a server runs.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(crate) enum Workers {
    /// One for each CPU that it may use.
    PerCpu,
    Exactly(NonZeroUsize),
    /// One, with its master, on this CPU.
    OneOn(usize),
}

/// A running server. Dropped, it is stopped and reaped.
pub(crate) struct Server {
    pub(crate) model: Model,
    process: Process,
    pub(crate) address: SocketAddr,
    pub(crate) workers: usize,
}

impl Server {
    pub(crate) fn start(model: Model, app: &App, workers: Workers) -> Self {
        let mut process = Role::server(model, app, workers).start();
        let notice = process.wait_until("serving", |notice| notice == "serving");
        let address = notice["addresses"][0]
            .as_str()
            .and_then(|it| it.parse().ok());
        let server = Self {
            model,
            process,
            address: address.unwrap_or_else(|| panic!("no address in {notice}")),
            workers: notice["workers"].as_u64().map_or(0, |it| it as usize),
        };
        assert_eq!(
            server.processes().count(),
            model.processes(server.workers),
            "processes of {}: the CPU time of all must be counted",
            model.name(),
        );
        server
    }

    pub(crate) fn processes(&self) -> Processes {
        Processes::under(self.process.pid())
    }

    /// To its first process.
    pub(crate) fn signal(&self, signal: Signal) {
        kill(self.process.pid(), signal).expect("the server runs");
    }

    /// With SIGKILL.
    pub(crate) fn kill_a_worker(&self) {
        let mut worker = None;
        self.processes().each(|pid| {
            if pid != self.process.pid() {
                worker = Some(pid);
            }
        });
        let worker = worker.expect("this model has processes as workers");
        kill(worker, Signal::SIGKILL).expect("the worker runs");
    }

    /// The next notice of this name.
    pub(crate) fn wait_for(&mut self, wanted: &str) {
        self.wait_until(wanted, |notice| notice == wanted);
    }

    /// The names of all notices to come, until one is the last that is wanted.
    pub(crate) fn wait_until(&mut self, what: &str, wanted: impl FnMut(&str) -> bool) {
        self.process.wait_until(what, wanted);
    }
}
