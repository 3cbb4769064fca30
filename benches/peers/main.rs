//! How does prefork-server compare with other people's servers, and with the least that any server
//! on epoll must do?
//!
//! Each server has one worker or thread, pinned to one CPU; the load is pinned to another. All give
//! the same answer to the same load, one server after the other, round after round. Ratios are
//! taken within a round.
//!
//! Not measured: more than one worker (balance between them has a bench of its own), a network,
//! encryption in bulk, HTTP/2, handlers that do anything, bodies of more than 13 bytes.

mod command_line;
mod cost;
#[expect(
    dead_code,
    reason = "the clocks of the load itself are of no interest here"
)]
#[path = "../support/server/cpu.rs"]
mod cpu;
mod cpus;
mod crowd;
mod facts;
mod files;
mod floor;
#[cfg(feature = "tls")]
mod handshakes;
#[cfg(feature = "tls")]
#[path = "../support/identity.rs"]
mod identity;
mod idle;
mod in_memory;
mod latency;
#[expect(
    dead_code,
    unused_imports,
    reason = "benches with mixed loads need the rest"
)]
#[path = "../support/load/mod.rs"]
mod load;
#[path = "../support/results/machine.rs"]
mod machine;
mod memory;
mod peer;
#[expect(
    dead_code,
    reason = "a bench in which things happen to servers needs the rest"
)]
#[path = "../support/process.rs"]
mod process;
mod programs;
mod progress;
#[path = "../support/server/memory.rs"]
mod pss;
mod report;
mod series;
mod session;
mod slow_clients;
#[path = "../support/toolchain.rs"]
mod toolchain;

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;

use self::command_line::{Extent, Options, Question};
use self::cpus::Cpus;
use self::facts::Facts;
use self::machine::Machine;
use self::peer::Peer;
use self::programs::{Program, Programs};
use self::progress::{Expected, Progress};
use self::report::Results;
use self::session::Session;

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
    check_templates()?;
    let machine = Machine::this_one();
    let cpus = Cpus::of_this_process()?;
    cpus.load_here()?;
    let peers = options.peers();
    let in_memory = options
        .asks(Question::InMemory)
        .then_some(Program::InMemory);
    let wanted = peers.iter().filter_map(|peer| peer.program());
    let programs = cpus.on_all(|| Programs::get(wanted.chain(in_memory)))?;
    let facts = Facts::gather(machine, &programs, cpus);
    let mut session = Session {
        programs,
        cpus,
        progress: Progress::new(expected(options, &peers)),
        peers,
        scale: options.scale(),
    };
    let results = measure(options, &mut session, facts);
    match options.extent() {
        Extent::Test => check(&results),
        Extent::Quick | Extent::Full => report::publish(&results, options),
    }
}

fn measure(options: &Options, session: &mut Session, facts: Facts) -> Results {
    let mut results = Results::new(facts, session.scale.clone());
    if options.asks(Question::Cost) {
        results.cost = cost::measure(session);
    }
    #[cfg(feature = "tls")]
    if options.asks(Question::Handshakes) {
        results.handshakes = handshakes::measure(session);
    }
    if options.asks(Question::Idle) {
        results.idle = idle::measure(session);
    }
    if options.asks(Question::Latency) {
        results.latency = latency::measure(session);
    }
    if options.asks(Question::SlowClients) {
        results.slow_clients = slow_clients::measure(session);
    }
    if options.asks(Question::InMemory) {
        results.in_memory = in_memory::measure(session);
    }
    results
}

/// How many turns there will be, and how long they should take.
fn expected(options: &Options, peers: &[Peer]) -> Expected {
    let scale = options.scale();
    let mut expected = Expected::default();
    let mut add = |question, turns: usize, time: Duration| {
        if options.asks(question) {
            expected.cases += turns;
            expected.time += time * turns as u32;
        }
    };
    let (rounds, third) = (scale.rounds.0, scale.rounds.third().0);
    #[cfg(feature = "tls")]
    add(
        Question::Handshakes,
        rounds * handshakes::private(peers).count(),
        handshakes::expected(scale.turn),
    );
    add(
        Question::SlowClients,
        third * slow_clients::parsing(peers).count(),
        slow_clients::expected(&scale),
    );
    let peers = peers.len();
    add(Question::Cost, rounds * peers, cost::expected(scale.turn));
    add(Question::Idle, third * peers, idle::expected(scale.turn));
    add(Question::Latency, third * peers, latency::expected(&scale));
    add(Question::InMemory, rounds, in_memory::EXPECTED);
    expected
}

/// That each template is there and says which version it is for.
fn check_templates() -> Result<(), String> {
    for program in Program::ALL {
        for (name, text) in program.sources() {
            if text.trim().is_empty() {
                return Err(format!("the template of {name} is empty"));
            }
        }
    }
    for (name, version) in facts::pinned() {
        if version.is_none() {
            return Err(format!("no template says which {name} it is for"));
        }
    }
    Ok(())
}

/// That every server has answered every question that it was asked, without a failure.
fn check(results: &Results) -> Result<(), Box<dyn Error>> {
    for series in results.all() {
        for row in &series.rows {
            if row.failures > 0 || row.median().is_none() {
                return Err(format!("{}: {} has no answer", series.title, row.name).into());
            }
        }
    }
    Ok(())
}
