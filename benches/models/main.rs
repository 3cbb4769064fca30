//! Which process model responds with the least CPU time, the most throughput and the shortest tail?
//!
//! The same handlers, the same load and the same allocator in four models:
//!
//! - `prefork`: this crate: a process per CPU, each with a runtime and a listener.
//! - `prefork_shared`: the same with one listener, from which every worker accepts.
//! - `multi_thread`: one process, tokio's multi-threaded runtime, one listener.
//! - `current_threads`: one process, a thread per CPU, each with a runtime and a listener.
//!
//! All run as many workers as there are CPUs, but for `neighbour`. They are this one executable,
//! started once more, with the same allocator and TCP_NODELAY on the listener. `prefork` is the
//! library, `Prefork::bind(..).serve(..)`, because the binary has no such handlers. Only the
//! questions about files are put to the binary, against tower-http's `ServeDir` in the other two
//! models. Those two are hyper with its defaults but for `pipeline_flush`, a switch worth a factor
//! of four when requests are pipelined, which would be taken for the model. They accept on the
//! runtime's own threads: the usual program accepts in `#[tokio::main]`, outside of them, and burnt
//! 1.22 times the CPU per churned connection (median of 5 pairs of runs, 1.07 to 1.32; 2 workers,
//! kernel 6.18, a busy machine). This crate has its own tuning of hyper, and serves plain requests
//! without hyper's connection. So `prefork` against `current_threads` tells what that and the
//! separate address spaces come to, and `current_threads` against `multi_thread` tells the models
//! apart.
//!
//! The kernel schedules all four alike. `chrt -b 0` starts any of them as `SCHED_BATCH`, which is
//! worth a quarter of the requests beside a load driver on the same CPUs, and costs a server nearly
//! everything beside a process that computes (`what-was-tried.md`).
//!
//! A handler that computes does a fixed amount of work, which is measured once before any server
//! starts. One that looked at the clock would do less the more often it was interrupted.
//!
//! The servers of a question take turns, five rounds on new connections. A turn is a second of
//! closed loop, a second of open loop, and a question to each connection: which worker has you?
//! Where a server adapts to the load in some seconds, four seconds of it come before one of the
//! loops, and nothing is measured in them (`Question::settles_before`).
//! `columns.rs` says what each column of the tables is. `questions.rs` has the questions.
//!
//! Not measured anywhere here: a network, TLS (what a handshake costs does not depend on the model:
//! `peers` asks other servers), HTTP/2, request bodies, handlers that block.

mod case;
#[path = "../results/columns.rs"]
mod columns;
mod greedy;
mod handlers;
mod opponents;
mod questions;
mod server;
#[path = "../support/mod.rs"]
mod support;

use std::num::NonZeroUsize;
use std::slice;
use std::time::Duration;

use clap::Parser;

use self::case::Case;
use self::questions::Question;
use self::server::{Model, Neighbour, Role};
use self::support::load::{self};
use self::support::options::{Common, Extent};
use self::support::process::{self, Trouble};
use self::support::progress::Progress;
use self::support::report::{self, Results, Sheet};
use self::support::turns::{check, in_turn};
use self::support::{cpus, machine};

/// The allocator of this package's binary, so that it does not make a difference between servers.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The open loop's share of what the slowest server can do. All servers of a question are asked
/// equally often, and none is near its end: latency at the end is the queue's, not the server's.
const OPEN_SHARE: f64 = 0.5;

/// Which process model responds with the least CPU time, the most throughput, the shortest tail?
#[derive(Debug, Parser)]
#[command(name = "models")]
struct Options {
    /// Only the cases with this in `question/model`
    filter: Option<String>,

    /// How many rounds, if not five
    #[arg(long, env = "PREFORK_BENCH_ROUNDS")]
    rounds: Option<NonZeroUsize>,

    /// The CPUs that servers are pinned to, like 0 or 0,2; a worker for each
    #[arg(long, env = "PREFORK_BENCH_SERVER_CPUS", value_delimiter = ',')]
    server_cpus: Vec<usize>,

    #[command(flatten)]
    common: Common,
}

impl Options {
    fn models(&self, question: &Question) -> Vec<Model> {
        let wanted = |model: &Model| {
            let name = format!("{}/{}", question.name, model.name());
            self.filter.as_ref().is_none_or(|part| name.contains(part))
        };
        Model::ALL.iter().copied().filter(wanted).collect()
    }

    /// How many rounds there are, and how long a loop of a turn takes.
    fn rounds(&self) -> (usize, Duration) {
        let (rounds, millis) = match self.common.extent() {
            Extent::Smoke => (1, 20),
            Extent::Quick => (1, 100),
            Extent::Full => (5, 1000),
        };
        let rounds = self.rounds.map_or(rounds, NonZeroUsize::get);
        (rounds, Duration::from_millis(millis))
    }
}

fn main() {
    if let Some(role) = process::role::<Role>() {
        role.play();
    }
    let mut options = Options::parse();
    let mut facts = machine::facts();
    match options.server_cpus.as_slice() {
        [] => options.server_cpus = cpus::usable(),
        pinned => facts.push(("servers on CPUs".to_owned(), format!("{pinned:?}"))),
    }
    let extent = options.common.extent();
    let files = tempfile::tempdir().expect("a temporary directory can be made");
    let questions = questions::all(extent, files.path());
    let cases = questions
        .iter()
        .map(|question| options.models(question).len());
    // The first round finds the open loop's rate.
    let steps = cases.sum::<usize>() * (options.rounds().0 + 1);
    let mut progress = Progress::new("models", steps);
    // Figures of a quick run do not replace others.
    let path = report::path(if extent == Extent::Full { "" } else { "-quick" });
    let mut results = Results::new(facts);
    // What earlier runs have left.
    results.sheets = Results::read(&path).map_or_else(|_| Vec::new(), |earlier| earlier.sheets);
    for question in &questions {
        let models = options.models(question);
        if models.is_empty() {
            continue;
        }
        let sheet = ask(question, &models, &options, &mut progress);
        let sheet = sheet.unwrap_or_else(|trouble| panic!("{}: {trouble}", question.name));
        if extent == Extent::Smoke {
            check(&question.name, &sheet.rows).expect("every server gets through");
            continue;
        }
        println!("{}", columns::table(&sheet).for_a_terminal());
        results.put(sheet);
        let written = results.write(&path);
        written.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
    if extent != Extent::Smoke {
        println!("kept in {}", path.display());
    }
}

fn ask(
    question: &Question,
    models: &[Model],
    options: &Options,
    progress: &mut Progress,
) -> Result<Sheet, Trouble> {
    let (rounds, time) = options.rounds();
    let neighbour = question.beside_neighbour.then(Neighbour::start);
    let neighbour = neighbour.transpose()?;
    let cpus = match &neighbour {
        Some(neighbour) => slice::from_ref(&neighbour.cpu),
        None => &options.server_cpus,
    };
    let mut slowest = f64::INFINITY;
    let mut cases = Vec::new();
    for &model in models {
        progress.step(&question.name, model.name());
        let mut case = Case::start(question, model, cpus)?;
        slowest = slowest.min(case.trial(time / 2));
        cases.push((model.name(), case));
    }
    // A server that responds to nothing at all has failures to tell, and the others go on.
    let rate = (slowest * OPEN_SHARE).max(1.0);
    let rows = in_turn(&mut cases, rounds, |name, case| {
        progress.step(&question.name, name);
        case.turn(time, rate)
    });
    let about = format!(
        "{} connections, {rounds} rounds, open loop at {rate:.0} requests/s",
        question.plan.connections,
    );
    Ok(Sheet::new(&question.name, about, rows))
}
