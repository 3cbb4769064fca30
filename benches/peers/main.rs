//! How does prefork-server compare with other people's servers, and with the least that any server
//! on epoll must do?
//!
//! - `prefork`: this package's binary, `--respond`.
//! - `floor`: our own loop of one `recv(2)` and one `send(2)` of fixed bytes over epoll. It parses
//!   nothing.
//! - `hyper`, `hyper-multi`: hyper with its defaults, on tokio's single- and multi-threaded
//!   runtime.
//! - `axum`, `actix`: axum on the multi-threaded runtime, actix-web.
//! - `nginx`: `return 200`, from the PATH.
//! - `fasthttp`: Go's fasthttp in one process. `fasthttp-shared`, `fasthttp-reuseport`:
//!   fasthttp/prefork with one listener, and with one for each process.
//! - `forker`: Ja7ad/forker around net/http. `net-http`: Go's own.
//!
//! They are built from `templates` into the target directory, in released versions that the
//! templates name, and need cargo, `go` and their registries the first time. What cannot be built
//! or found has a row that says why. All answer the same request with the same 13 bytes of
//! `text/plain`, each with the other headers it sends by default. Ours and the floor are always
//! among the servers. `PREFORK_BENCH_SERVER=/path/to/another/prefork-server` measures another build
//! than the one beside it, `PREFORK_BENCH_OPTIONS='...'` gives it options besides.
//!
//! Each server has one worker or thread on the first CPU that the bench may use; the load has the
//! second. They take turns, every turn on a newly started server. The Rust servers have mimalloc,
//! as our binary has; in `idle` they have the system's allocator, which holds less. The cases:
//!
//! - `cost`, 9 rounds: CPU per request: 64 kept-alive connections; 16 requests at once on each; a
//!   connection for each request.
//! - `handshakes`, 9 rounds: CPU per connection within TLS 1.3, full handshakes and resumed ones;
//!   of `prefork`, `nginx`, `fasthttp` and `net-http`.
//! - `idle`, 3 rounds: memory per connection of 8,000 after a request each; CPU per request of 64
//!   beside them, and without them.
//! - `latency`, 3 rounds: 5,000 to 80,000 requests per second in an open loop: p50, p90, p99, p99.9
//!   and the longest.
//! - `slow-clients`, 3 rounds: p95 at 5,000 requests per second while 1,000 slow clients come in
//!   about a second and stay. They are slow with their header section, with their body, or at
//!   reading.
//! - `in-memory`, 9 rounds: CPU per request without a kernel, 1 and 10,000 requests per connection,
//!   as fasthttp's own benchmark has it.
//!
//! All rounds are in `target/peers/results.json`; `target/peers/RESULTS.md` is the page with tables
//! and pictures, which `--write` puts beside this bench too.
//!
//! Not measured: more than one worker (`models` asks about that), a network, encryption in bulk,
//! HTTP/2, handlers that do anything, bodies of more than 13 bytes. Every request is the same in
//! all cases, as in most benchmarks. We remember what a client repeats, the others do not:
//! `what-was-tried.md` has what other requests cost.

mod crowd;
mod facts;
mod floor;
mod in_memory;
mod options;
mod page;
mod peer;
mod programs;
mod question;
mod session;
#[path = "../support/mod.rs"]
mod support;
mod turns;

use std::error::Error;
use std::process::ExitCode;

use clap::Parser;

use self::options::Options;
use self::peer::Peer;
use self::programs::Programs;
use self::question::Question;
use self::session::{Cpus, Session};
use self::support::identity::Identity;
use self::support::options::Extent;
use self::support::progress::Progress;
use self::support::report::{Results, Sheet};
use self::support::turns::{check, in_turn};
use self::support::{load, machine, process, report};

/// The binary's allocator, for what is measured in this process.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    process::become_keeper_if_asked();
    peer::become_floor_if_asked();
    crowd::become_crowd_if_asked();

    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<(), Box<dyn Error>> {
    let machine = machine::facts();
    let cpus = Cpus::of_this_process();
    let (peers, questions) = (options.peers(), options.questions());
    let programs = cpus.on_all(|| Programs::get(wanted(&peers, &questions)));
    let mut facts = machine;
    facts.extend(facts::gather(&programs, &cpus));
    let session = Session {
        programs,
        cpus,
        scale: options.scale(),
        identity: Identity::new(),
    };
    let turns =
        |question: &Question| question.rounds(&session.scale) * question.peers(&peers).len();
    let mut progress = Progress::new("peers", questions.iter().map(turns).sum());
    let sheets = questions.iter().map(|&question| {
        let asked = question.peers(&peers);
        let mut asked: Vec<_> = asked.iter().map(|peer| (peer.name(), *peer)).collect();
        let rounds = question.rounds(&session.scale);
        let rows = in_turn(&mut asked, rounds, |name, &mut peer| {
            progress.step(&question.name(), name);
            question.turn(&session, peer)
        });
        Sheet::new(&question.name(), question.about(&session.scale), rows)
    });
    let sheets: Vec<_> = sheets.collect();
    progress.end();
    if options.common.extent() == Extent::Smoke {
        let each = sheets.iter();
        return Ok(each
            .into_iter()
            .try_for_each(|it| check(&it.question, &it.rows))?);
    }
    let mut results = Results::new(facts);
    results.sheets = sheets;
    page::publish(&results, &session.scale, options)
}

/// What must be there beside this package.
fn wanted(peers: &[Peer], questions: &[Question]) -> Vec<programs::Program> {
    let mut wanted: Vec<_> = peers.iter().filter_map(|peer| peer.program()).collect();
    if questions.contains(&Question::InMemory) {
        wanted.extend(peers.iter().filter_map(|peer| in_memory::program(*peer)));
    }
    wanted
}
