//! How does prefork-server compare with other people's servers, and with the least that any server
//! on epoll must do?
//!
//! - `prefork`: this package's binary, `--respond`.
//! - `floor`: our own loop of one `recv(2)` and one `send(2)` of fixed bytes over epoll. It parses
//!   nothing.
//! - `hyper`, `hyper-multi`: hyper with its defaults, on tokio's single- and multi-threaded
//!   runtime.
//! - `axum`, `actix`: axum on the multi-threaded runtime, actix-web.
//! - `prefork-axum`: the `Router` of `axum` in this package's `serve`.
//! - `nginx`: `return 200`, from the PATH.
//! - `fasthttp`: Go's fasthttp in one process. `fasthttp-shared`, `fasthttp-reuseport`:
//!   fasthttp/prefork with one listener, and with one for each process.
//! - `forker`: Ja7ad/forker around net/http. `net-http`: Go's own.
//! - `static-web-server`, `caddy`: servers of files, Caddy from the PATH. Only in the case `files`.
//!
//! They are built from `templates` into the target directory, in released versions that the
//! templates name, and need cargo, `go` and their registries the first time. What cannot be built
//! or found has a row that says why. All respond to the same request with the same 13 bytes of
//! `text/plain`, each with the other headers it sends by default. Ours and the floor are always
//! among the servers. `PREFORK_BENCH_SERVER=/path/to/another/prefork-server` measures another build
//! than the one beside it, `PREFORK_BENCH_OPTIONS='...'` gives it options besides.
//!
//! Each server has one worker or thread on the first CPU that the bench may use; the load has the
//! second. They take turns, every turn on a newly started server. The Rust servers have mimalloc,
//! as our binary has; in `idle` they have the system's allocator, which holds less. The cases:
//!
//! - `cost`, 9 rounds: CPU per request: 64 kept-alive connections with the same request again and
//!   again; with requests as a browser sends them, and as a service sends bodies of 1 KiB, each one
//!   different; 16 requests at once on each; a connection for each request.
//! - `handshakes`, 9 rounds: CPU per connection within TLS 1.3, full handshakes and resumed ones;
//!   of `prefork`, `nginx`, `fasthttp` and `net-http`.
//! - `files`, 9 rounds: CPU per request of files, with 16 kept-alive connections: one of 1, 16, 64
//!   KiB and 1 MiB; each of 10,000 of 4 KiB in turn; 64 KiB within TLS, over HTTP/1.1 and HTTP/2.
//!   Then files of 1 MiB that the kernel does not have in memory, one after another. Of `prefork`,
//!   `nginx` with its cache of open files and sendfile, `static-web-server` and `caddy` as they
//!   come.
//! - `idle`, 3 rounds: memory per connection of 8,000 after a request each.
//! - `idle-protocols`, 3 rounds: the same for HTTP/1.1 within TLS, for HTTP/2 in the open and for
//!   HTTP/2 within TLS; of `prefork` and `nginx`.
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
//! handlers that do anything, responses of more than 13 bytes but for files. In most cases every
//! request is the same, as in most benchmarks. We remember what a client repeats, the others do
//! not: the cases `cpu_browsing` and `cpu_posting` show what that is worth.

mod crowd;
mod facts;
mod files;
mod floor;
mod http2;
mod idle_protocols;
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

use std::cell::OnceCell;
use std::error::Error;
use std::process::ExitCode;

use clap::Parser;

use self::crowd::Role;
use self::options::Options;
use self::programs::Programs;
use self::session::{Cpus, Session};
use self::support::options::Extent;
use self::support::pem::Pem;
use self::support::progress::Progress;
use self::support::report::{Results, Sheet};
use self::support::turns::{check, in_turn};
use self::support::{cpus, load, machine, process, report};

/// The binary's allocator, for what is measured in this process.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    if let Some(role) = process::role::<Role>() {
        role.play();
    }
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<(), Box<dyn Error>> {
    let mut facts = machine::facts();
    let session = Session {
        programs: Programs::new(),
        cpus: Cpus::usable(),
        scale: options.scale(),
        pem: Pem::new()?,
        files: OnceCell::new(),
    };
    facts.extend(facts::gather(&session.cpus));
    cpus::pin_to(&[session.cpus.load]);
    let peers = options.peers();
    let questions = options.questions().into_iter();
    let questions: Vec<_> = questions
        .map(|question| (question.name(), question.asked(&session.scale)))
        .collect();
    let steps = questions.iter();
    let steps = steps.map(|(_, asked)| asked.rounds * asked.peers(&peers).len());
    let mut progress = Progress::new("peers", steps.sum());
    let mut sheets = Vec::new();
    for (name, asked) in &questions {
        let peers = asked.peers(&peers).into_iter();
        let mut peers: Vec<_> = peers.map(|peer| (peer.name(), peer)).collect();
        let rows = in_turn(&mut peers, asked.rounds, |server, &mut peer| {
            progress.step(name, server);
            (asked.turn)(&session, peer)
        });
        sheets.push(Sheet::new(name, asked.about.clone(), rows));
    }
    if options.common.extent() == Extent::Smoke {
        let mut sheets = sheets.iter();
        return Ok(sheets.try_for_each(|it| check(&it.question, &it.rows))?);
    }
    let mut results = Results::new(facts);
    results.sheets = sheets;
    page::publish(&results, &session.scale, options)
}
