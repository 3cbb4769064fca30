//! What this executable is when it is started once more.

use std::env;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, exit};
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use prefork_server::{Backoff, CrashLimit, Listeners, Prefork, Worker, role, service_fn};
use serde::{Deserialize, Serialize};

use super::handlers::{self, Place, Speed};
use super::neighbour;
use super::opponents::{self, Files, Handlers, Plain};
use super::process::Process;
use super::{App, Model, Workers};
use crate::support::cpus;

/// Tells this executable its [`Role`], as JSON.
const ROLE: &str = "PREFORK_BENCH_ROLE";

/// The CPUs that servers are pinned to, like `0` or `0,2`. Not pinned without it.
const SERVER_CPUS: &str = "PREFORK_BENCH_SERVER_CPUS";

#[derive(Deserialize, Serialize)]
pub(super) enum Role {
    Server {
        model: Model,
        app: App,
        workers: Workers,
        speed: Speed,
    },
    /// Computes on this CPU.
    Neighbour(usize),
}

impl Role {
    pub(super) fn server(model: Model, app: &App, workers: Workers) -> Self {
        /// Measured once: servers that were started with other speeds would differ.
        static SPEED: OnceLock<Speed> = OnceLock::new();
        Self::Server {
            model,
            app: app.clone(),
            workers,
            speed: *SPEED.get_or_init(Speed::measure),
        }
    }

    pub(super) fn start(&self) -> Process {
        let role = serde_json::to_string(self).expect("it is plain data");
        Process::spawn(ROLE, &role)
    }
}

/// Becomes a server, and does not return, if the environment says so.
pub(crate) fn become_server_if_asked() {
    let Ok(text) = env::var(ROLE) else { return };
    if role() == prefork_server::Role::Master {
        set_pdeathsig(Signal::SIGTERM).expect("prctl(2) takes SIGTERM");
    }
    match serde_json::from_str(&text).expect("`start` sets it") {
        Role::Neighbour(cpu) => neighbour::compute_on(cpu),
        Role::Server {
            model,
            app,
            workers,
            speed,
        } => become_server(model, app, pinned(workers), speed),
    }
}

/// How many workers these are. The process is pinned to their CPUs if they are said.
fn pinned(workers: Workers) -> NonZeroUsize {
    let number = |cpu: &str| {
        let number = cpu.parse();
        number.unwrap_or_else(|_| panic!("{SERVER_CPUS}: no CPU is \"{cpu}\""))
    };
    if let Workers::OneOn(cpu) = workers {
        cpus::pin_to(&[cpu]);
    } else if let Ok(cpus) = env::var(SERVER_CPUS) {
        cpus::pin_to(&cpus.split(',').map(number).collect::<Vec<_>>());
    }
    match workers {
        Workers::PerCpu => thread::available_parallelism().expect("the affinity can be read"),
        Workers::Exactly(workers) => workers,
        Workers::OneOn(_) => NonZeroUsize::MIN,
    }
}

fn become_server(model: Model, app: App, workers: NonZeroUsize, speed: Speed) -> ! {
    let handlers = |number| Handlers(Place { number, speed });
    let is_ours = matches!(model, Model::Prefork | Model::PreforkShared);
    match app {
        App::Handlers if is_ours => serve(prefork(model, workers), speed),
        App::Handlers => opponents::serve(model, workers, Plain, handlers),
        App::Private(identity) if is_ours => {
            serve(prefork(model, workers).tls(identity.tls()), speed)
        }
        App::Private(identity) => opponents::serve(model, workers, identity.acceptor(), handlers),
        App::Files(directory) if is_ours => become_binary(model, workers, &directory),
        App::Files(directory) => {
            opponents::serve(model, workers, Plain, |_| Files::new(&directory))
        }
    }
}

/// Says the same as the binary does when it serves.
pub(super) fn announce(address: SocketAddr, workers: NonZeroUsize) {
    let notice = serde_json::json!({
        "notice": "serving",
        "addresses": [address.to_string()],
        "workers": workers,
        "pid": std::process::id(),
    });
    writeln!(io::stdout(), "{notice}").expect("the bench reads the notice");
}

fn prefork(model: Model, workers: NonZeroUsize) -> Prefork {
    Prefork::bind("127.0.0.1:0")
        .workers(workers.get())
        .listeners(match model {
            Model::PreforkShared => Listeners::Shared,
            _ => Listeners::PerSlot,
        })
        .announce_fd(1)
        // `processes` kills workers for as long as criterion wants it to, and each at once.
        .crash_limit(CrashLimit::new(u32::MAX, Duration::from_secs(60)))
        .backoff(Backoff::new().reset_after(Duration::ZERO))
}

/// The master, and in it the workers.
fn serve(prefork: Prefork, speed: Speed) -> ! {
    let served = prefork.serve(async move |worker: Worker| {
        let number = worker.slot().0.into();
        let place = Place { number, speed };
        Ok(service_fn(move |request| handlers::answer(request, place)))
    });
    if let Err(error) = &served {
        eprintln!("{error}");
    }
    exit(served.map_or_else(|error| error.exit_code().into(), |()| 0));
}

/// The binary, which replaces this process. The death signal survives it: PR_SET_PDEATHSIG(2const).
fn become_binary(model: Model, workers: NonZeroUsize, directory: &Path) -> ! {
    let listeners = match model {
        Model::PreforkShared => "shared",
        _ => "per-slot",
    };
    let error = Command::new(env!("CARGO_BIN_EXE_prefork-server"))
        .args(["--listen", "127.0.0.1:0", "--listeners", listeners])
        .args(["--workers", &workers.to_string()])
        .args(["--announce-fd", "1"])
        .arg(directory)
        .env_remove(ROLE)
        .exec();
    panic!("prefork-server: {error}");
}
