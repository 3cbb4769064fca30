//! A server in a process of its own, so that its CPU time and its memory are its own. Most are this
//! executable started once more with its role.

use std::hint::black_box;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, exit};
use std::sync::OnceLock;
use std::time::Instant;

use prefork_server::{Listeners, Prefork, Worker, service_fn};
use serde::{Deserialize, Serialize};

use crate::handlers::{self, Place, Speed};
use crate::opponents::{self, Respond};
use crate::support::cpus;
use crate::support::named;
use crate::support::notices::{self, Notices};
use crate::support::process::{CEILING, Processes, Trouble, ours, this_as};
use crate::support::tree::Tree;

named! {
    /// A way to spread connections over CPUs.
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
    fn is_ours(self) -> bool {
        matches!(self, Self::Prefork | Self::PreforkShared)
    }

    /// Whether a connection stays with the worker that accepted it.
    pub(crate) fn keeps_connections_apart(self) -> bool {
        self != Self::MultiThread
    }
}

/// How a server responds.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) enum App {
    /// The same handlers in every model: `handlers.rs` has the paths.
    Handlers,
    /// The files of a directory: this package's binary, and tower-http's `ServeDir` elsewhere.
    Files(PathBuf),
}

/// What this executable is when it is started once more.
#[derive(Deserialize, Serialize)]
pub(crate) enum Role {
    Server {
        model: Model,
        app: App,
        workers: usize,
        speed: Speed,
    },
    /// Computes.
    Neighbour,
}

impl Role {
    fn server(model: Model, app: &App, workers: usize) -> Self {
        /// Measured once: servers that were started with other speeds would differ.
        static SPEED: OnceLock<Speed> = OnceLock::new();
        Self::Server {
            model,
            app: app.clone(),
            workers,
            speed: *SPEED.get_or_init(Speed::measure),
        }
    }

    /// Does not return.
    pub(crate) fn play(self) -> ! {
        match self {
            Self::Neighbour => compute(),
            Self::Server {
                model,
                app,
                workers,
                speed,
            } => match app {
                App::Handlers if model.is_ours() => prefork(model, workers, speed),
                App::Handlers => opponents::serve(model, workers, |number| {
                    Respond::Handlers(Place { number, speed })
                }),
                App::Files(path) => {
                    opponents::serve(model, workers, |_| Respond::files(path.clone()))
                }
            },
        }
    }
}

/// The master, and in it the workers.
fn prefork(model: Model, workers: usize, speed: Speed) -> ! {
    let listeners = match model {
        Model::PreforkShared => Listeners::Shared,
        _ => Listeners::PerSlot,
    };
    let server = Prefork::bind("127.0.0.1:0")
        .workers(workers)
        .listeners(listeners)
        .announce_fd(1);
    let served = server.serve(async move |worker: Worker| {
        let number = worker.slot().0.into();
        let place = Place { number, speed };
        Ok(service_fn(move |request| handlers::respond(request, place)))
    });
    if let Err(error) = &served {
        eprintln!("{error}");
    }
    exit(served.map_or_else(|error| error.exit_code().into(), |()| 0));
}

/// Tells the same as our binary does when it serves.
pub(crate) fn announce(address: Option<SocketAddr>) {
    let notice = serde_json::json!({ "notice": "serving", "addresses": [address] });
    writeln!(io::stdout(), "{notice}").expect("the bench reads the notice");
}

/// Until it is killed.
fn compute() -> ! {
    announce(None);
    let mut steps = 0u64;
    loop {
        steps = black_box(steps.wrapping_add(1));
    }
}

/// A running server. Dropped, it is killed and reaped.
pub(crate) struct Server {
    pub(crate) model: Model,
    processes: Processes,
    /// A server that writes more notices finds a reader.
    _notices: Notices,
    pub(crate) address: SocketAddr,
    pub(crate) workers: usize,
}

impl Server {
    /// With a worker for each of the CPUs, on which all of its processes are.
    pub(crate) fn start(model: Model, app: &App, cpus: &[usize]) -> Result<Self, Trouble> {
        let workers = cpus.len();
        let command = match app {
            App::Files(directory) if model.is_ours() => our_binary(model, workers, directory),
            _ => this_as(&Role::server(model, app, workers))?,
        };
        let dir = tempfile::tempdir()?;
        let (processes, said) = cpus::on(cpus, || Processes::start(dir, &command))?;
        let notices = Notices::of(said);
        let serving = notices.named("serving", Instant::now() + CEILING);
        let serving = serving.map_err(|trouble| {
            // The caller does not get the server, and so cannot ask it for its log.
            Trouble::Stuck(format!("{trouble}\n{}", processes.log()))
        })?;
        let expected = if model.is_ours() { 1 + workers } else { 1 };
        assert_eq!(
            processes.tree().pids().len(),
            expected,
            "processes of {}: the CPU time of all must be counted",
            model.name(),
        );
        Ok(Self {
            model,
            processes,
            _notices: notices,
            address: notices::address(&serving)?,
            workers,
        })
    }

    pub(crate) fn tree(&self) -> Tree {
        self.processes.tree()
    }
}

fn our_binary(model: Model, workers: usize, directory: &Path) -> Command {
    let listeners = match model {
        Model::PreforkShared => "shared",
        _ => "per-slot",
    };
    let mut command = ours();
    command
        .args(["--listen", "127.0.0.1:0", "--listeners", listeners])
        .args(["--workers", &workers.to_string(), "--announce-fd", "1"])
        .arg(directory);
    command
}

/// A process that computes on the CPU of a server's only worker. While it lives, the thread that
/// started it stays off that CPU.
pub(crate) struct Neighbour {
    _processes: Processes,
    all: Vec<usize>,
    pub(crate) cpu: usize,
}

impl Neighbour {
    /// On the last CPU that this thread may use.
    ///
    /// # Panics
    ///
    /// If there is only one.
    pub(crate) fn start() -> Result<Self, Trouble> {
        let all = cpus::usable();
        let [others @ .., cpu] = all.as_slice() else {
            unreachable!("this thread runs somewhere");
        };
        let (dir, command) = (tempfile::tempdir()?, this_as(&Role::Neighbour)?);
        let (processes, said) = cpus::on(&[*cpu], || Processes::start(dir, &command))?;
        Notices::of(said).named("serving", Instant::now() + CEILING)?;
        cpus::pin_to(others);
        Ok(Self {
            _processes: processes,
            cpu: *cpu,
            all,
        })
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        cpus::pin_to(&self.all);
    }
}
