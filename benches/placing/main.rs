//! Are connections that cannot move later on the right worker from the beginning?
//!
//! Four connections to two workers whose handler computes for 500 us: TLS (HTTP/1), HTTP/2 by
//! prior knowledge, and the connections of `Prefork::run`. The kernel puts all four on one worker
//! in one case of eight. In each of 100 rounds the four connect at once, each asks which worker it
//! has, and then all of them ask as fast as they get responses. The opponent is tokio's
//! multi-threaded runtime with hyper, in one process with two threads, or the same bytes as in
//! `run`.
//!
//! - `two and two`: rounds in which each worker had two of the connections.
//! - `requests/s`: the medians of all rounds.
//! - `ratio`: of the requests/s of a round, ours to the opponent's: the median, and the range from
//!   the 10th to the 90th of 100.
//!
//! The client has one thread, on the same CPUs. Not measured: connections that come one after the
//! other (those are exact: `tests/it/placing.rs`), and what placing costs where connections live
//! for one request (`models -- churn`).

mod client;
#[path = "../models/handlers.rs"]
mod handlers;
mod server;
#[path = "../support/mod.rs"]
mod support;

use std::time::{Duration, Instant};

use clap::Parser;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

use self::client::{Client, Connection};
use self::handlers::Speed;
use self::server::{Kind, Model, Role, Server};
use self::support::options::{Common, Extent};
use self::support::process;
use self::support::progress::Progress;

/// The allocator of this package's binary, so that it does not make a difference between servers.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const CONNECTIONS: usize = 4;

/// Are connections that cannot move later on the right worker from the beginning?
#[derive(Debug, Parser)]
#[command(name = "placing")]
struct Options {
    /// How many rounds, if not a hundred
    #[arg(long, env = "PREFORK_BENCH_ROUNDS")]
    rounds: Option<usize>,

    #[command(flatten)]
    common: Common,
}

/// What came of a round.
struct Round {
    per_second: f64,
    is_even: bool,
}

fn main() {
    if let Some(role) = process::role::<Role>() {
        role.play();
    }
    let options = Options::parse();
    let extent = options.common.extent();
    let (rounds, time) = match extent {
        Extent::Smoke => (1, Duration::from_millis(5)),
        Extent::Quick => (5, Duration::from_millis(50)),
        Extent::Full => (100, Duration::from_millis(200)),
    };
    let rounds = options.rounds.unwrap_or(rounds);
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    let pem = [cert.pem(), signing_key.serialize_pem()];
    let speed = Speed::measure();
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime can be built");
    let mut progress = Progress::new("placing", Kind::ALL.len() * rounds);
    if extent != Extent::Smoke {
        println!("| connections | two and two | requests/s | opponent | ratio |");
        println!("|---|---|---|---|---|");
    }
    for &kind in Kind::ALL {
        let start = |model| Server::start(kind, model, speed, &pem).expect("it serves");
        let servers = [Model::Prefork, Model::MultiThread].map(start);
        let client = Client::new(kind, cert.der().clone());
        let mut ours = Vec::new();
        let mut theirs = Vec::new();
        for _ in 0..rounds {
            progress.step(kind.name(), "both");
            ours.push(round(&runtime, &client, &servers[0], time));
            theirs.push(round(&runtime, &client, &servers[1], time));
        }
        if extent != Extent::Smoke {
            print(kind, &ours, &theirs);
        }
    }
}

fn round(runtime: &Runtime, client: &Client, server: &Server, time: Duration) -> Round {
    runtime.block_on(async {
        let mut connecting = JoinSet::new();
        for _ in 0..CONNECTIONS {
            let (client, address) = (client.clone(), server.address);
            connecting.spawn(async move {
                let mut connection = client.connect(address).await;
                let worker = connection.ask().await;
                (connection, worker)
            });
        }
        let connections = connecting.join_all().await;
        let first = connections.iter().filter(|(_, worker)| *worker == 0);
        let is_even = first.count() == CONNECTIONS / 2;
        let begun = Instant::now();
        let mut asking = JoinSet::new();
        for (connection, _) in connections {
            asking.spawn(ask_until(connection, begun + time));
        }
        let requests: u32 = asking.join_all().await.iter().sum();
        Round {
            per_second: f64::from(requests) / begun.elapsed().as_secs_f64(),
            is_even,
        }
    })
}

async fn ask_until(mut connection: Connection, end: Instant) -> u32 {
    let mut requests = 0;
    while Instant::now() < end {
        connection.ask().await;
        requests += 1;
    }
    connection.end().await;
    requests
}

fn print(kind: Kind, ours: &[Round], theirs: &[Round]) {
    let even = ours.iter().filter(|round| round.is_even).count();
    let speeds = |rounds: &[Round]| rounds.iter().map(|it| it.per_second).collect::<Vec<_>>();
    let (ours, theirs) = (speeds(ours), speeds(theirs));
    let ratios = ours.iter().zip(&theirs).map(|(ours, theirs)| ours / theirs);
    let ratios = sorted(ratios.collect());
    let (ours, theirs) = (sorted(ours), sorted(theirs));
    println!(
        "| {} | {even} of {} | {:.0} | {:.0} | {:.3} ({:.2}-{:.2}) |",
        kind.name(),
        ours.len(),
        part(&ours, 50),
        part(&theirs, 50),
        part(&ratios, 50),
        part(&ratios, 10),
        part(&ratios, 90),
    );
}

fn sorted(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_by(f64::total_cmp);
    values
}

/// The value that so many of a hundred do not exceed.
fn part(sorted: &[f64], of_hundred: usize) -> f64 {
    sorted[(sorted.len() - 1) * of_hundred / 100]
}
