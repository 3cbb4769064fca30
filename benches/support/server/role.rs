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
use prefork_server::{Backoff, CrashLimit, Listeners, Prefork, Role, Worker, role, service_fn};

use super::handlers::{self, Place, Speed};
use super::neighbour;
use super::opponents::{self, Files, Handlers, Plain};
use super::process::Process;
use super::{App, Model, Workers};
use crate::support::cpus;
use crate::support::identity::Identity;

/// Tells this executable which server to be.
const ROLE: &str = "PREFORK_BENCH_ROLE";

/// How many workers, if not one for each CPU.
const WORKERS: &str = "PREFORK_BENCH_WORKERS";

/// A directory to serve, instead of the handlers.
const FILES: &str = "PREFORK_BENCH_FILES";

/// The [`Speed`] of this machine.
const SPEED: &str = "PREFORK_BENCH_SPEED";

/// The CPUs that servers are pinned to, like `0` or `0,2`. Not pinned without it.
const SERVER_CPUS: &str = "PREFORK_BENCH_SERVER_CPUS";

/// Finds out how much work a microsecond is, once; servers started before would differ.
pub(crate) fn calibrate() -> Speed {
    static MEASURED: OnceLock<Speed> = OnceLock::new();
    *MEASURED.get_or_init(Speed::measure)
}

pub(super) fn spawn(model: Model, app: &App, workers: Workers) -> Process {
    let speed = calibrate().steps_per_millisecond.to_string();
    let mut variables = vec![(ROLE, model.name()), (SPEED, &speed)];
    match app {
        App::Handlers => {}
        App::Private(identity) => variables.extend(identity.variables()),
        App::Files(directory) => {
            let directory = directory.path().to_str().expect("the bench has named it");
            variables.push((FILES, directory));
        }
    }
    let number;
    match workers {
        Workers::PerCpu => {}
        Workers::Exactly(workers) => {
            number = workers.to_string();
            variables.push((WORKERS, &number));
        }
        Workers::OneOn(cpu) => {
            number = cpu.to_string();
            variables.extend([(SERVER_CPUS, number.as_str()), (WORKERS, "1")]);
        }
    }
    Process::spawn(&variables)
}

/// Becomes a server, and does not return, if the environment says so.
pub(crate) fn become_server_if_asked() {
    neighbour::compute_if_asked();
    let Ok(name) = env::var(ROLE) else { return };
    let model = Model::ALL.into_iter().find(|model| model.name() == name);
    let model = model.expect("only `spawn` sets the role");
    if role() == Role::Master {
        set_pdeathsig(Signal::SIGTERM).expect("prctl(2) takes SIGTERM");
        if let Ok(cpus) = env::var(SERVER_CPUS) {
            pin_to(&cpus);
        }
    }
    let workers = env::var(WORKERS).ok().and_then(|it| it.parse().ok());
    let workers = workers
        .unwrap_or_else(|| thread::available_parallelism().expect("the affinity can be read"));
    if let Some(directory) = env::var_os(FILES) {
        serve_files(model, workers, Path::new(&directory));
    }
    match Identity::of_environment() {
        Some(identity) => serve_privately(model, workers, &identity),
        None => serve_handlers(model, workers),
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

fn serve_handlers(model: Model, workers: NonZeroUsize) -> ! {
    let handlers = |number| Handlers(place(number));
    match model {
        Model::Prefork | Model::PreforkShared => serve(prefork(model, workers)),
        Model::MultiThread => opponents::multi_thread(workers, Plain, handlers),
        Model::CurrentThreads => opponents::current_threads(workers, Plain, handlers),
    }
}

fn serve_privately(model: Model, workers: NonZeroUsize, identity: &Identity) -> ! {
    let handlers = |number| Handlers(place(number));
    match model {
        Model::Prefork | Model::PreforkShared => serve(prefork(model, workers).tls(identity.tls())),
        Model::MultiThread => opponents::multi_thread(workers, identity.acceptor(), handlers),
        Model::CurrentThreads => opponents::current_threads(workers, identity.acceptor(), handlers),
    }
}

fn serve_files(model: Model, workers: NonZeroUsize, directory: &Path) -> ! {
    let files = |_| Files::new(directory);
    match model {
        Model::Prefork | Model::PreforkShared => become_binary(model, workers, directory),
        Model::MultiThread => opponents::multi_thread(workers, Plain, files),
        Model::CurrentThreads => opponents::current_threads(workers, Plain, files),
    }
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
fn serve(prefork: Prefork) -> ! {
    let served = prefork.serve(async |worker: Worker| {
        let place = place(worker.slot().0.into());
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

fn place(number: usize) -> Place {
    let steps = env::var(SPEED).ok().and_then(|it| it.parse().ok());
    Place {
        number,
        speed: Speed {
            steps_per_millisecond: steps.expect("`spawn` sets it"),
        },
    }
}

/// CPUs like `0` or `0,2`.
pub(super) fn pin_to(cpus: &str) {
    let numbers = cpus.split(',').map(|cpu| {
        let number = cpu.parse();
        number.unwrap_or_else(|_| panic!("{SERVER_CPUS}: no CPU is \"{cpu}\""))
    });
    cpus::pin_to(&numbers.collect::<Vec<_>>());
}
