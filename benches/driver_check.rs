//! Is our load driver as fast as wrk?
//!
//! The same server, the same connections and the same time, with wrk and the driver in turn. Both
//! run in one thread on the last CPU, and the server has the others: on shared CPUs, the client
//! that takes less CPU time would leave the server more. A slower driver hides what a server can
//! do; a faster one has left something out. The bench prints whether the median difference is
//! within five per cent for
//!
//! - `/cpu/20`, where a handler computes for 20 us: the server is the bottleneck, and both must
//!   find the same rate;
//! - `/`, where wrk, which asks epoll for writability before each request, may be the bottleneck.
//!
//! Nothing depends on the verdict.
//!
//! Not measured: open loops, which wrk does not have, and what either does with wrong responses
//! (`tests/load.rs` tests ours). wrk reads to the end of each response, as ours does, and does not
//! look at the bytes.

#[allow(dead_code, unused_imports, reason = "shared by several benches")]
#[path = "support/server/mod.rs"]
mod server;
#[path = "support/mod.rs"]
mod support;

use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::Duration;

use clap::Parser;

use self::server::{App, BODY, COMPUTED, Model, Server, Workers};
use self::support::cpus;
use self::support::load::{Ask, Driver, Extent::For, Plan};
use self::support::options::{Common, Extent};
use self::support::process::which;
use self::support::report::Sample;

const CONNECTIONS: usize = 64;
const TARGET_PER_CENT: f64 = 5.0;

/// What is asked, and what must come back.
#[derive(Clone, Copy)]
struct Load {
    path: &'static str,
    body: &'static str,
}

const LOADS: [Load; 2] = [
    Load {
        path: "/cpu/20",
        body: COMPUTED,
    },
    Load {
        path: "/",
        body: BODY,
    },
];

fn main() {
    server::become_server_if_asked();

    let extent = Common::parse().extent();
    let (rounds, time): (_, _) = match extent {
        Extent::Smoke => (1, Duration::from_millis(50)),
        Extent::Quick => (1, Duration::from_secs(1)),
        Extent::Full => (3, Duration::from_secs(5)),
    };
    let models: &[Model] = match extent {
        Extent::Quick => &[Model::Prefork],
        _ => &[Model::Prefork, Model::MultiThread],
    };
    // wrk asks for whole seconds, so it is no part of the smoke.
    let has_wrk = extent != Extent::Smoke && which("wrk").is_some();
    // The last CPU is the driver's, the others are the server's. A single one is both's.
    let all = cpus::usable();
    let (servers, driver) = match all.as_slice() {
        [servers @ .., driver] if !servers.is_empty() => (servers, std::slice::from_ref(driver)),
        all => (all, all),
    };
    for load in LOADS {
        let mut differences = Vec::new();
        for &model in models {
            cpus::pin_to(servers);
            let server = Server::start(model, &App::Handlers, Workers::PerCpu);
            cpus::pin_to(driver);
            for round in 1..=rounds {
                let ours = ours(server.address, load, time);
                let name = model.name();
                print!("{:<8} {name:<13} {round}: ours {ours:>7.0}", load.path);
                if !has_wrk {
                    println!(" requests/s");
                    continue;
                }
                let theirs = wrk(server.address, load, time);
                let difference = (ours / theirs - 1.0) * 100.0;
                differences.push(difference);
                println!(", wrk {theirs:>7.0} requests/s, {difference:>+5.1} %");
            }
        }
        let Some(differences) = Sample::new(differences.into_iter()) else {
            println!("nothing to compare with: no figures are wanted, or wrk is not installed");
            continue;
        };
        let median = differences.median();
        let verdict = match median.abs() <= TARGET_PER_CENT {
            true => "within",
            false => "NOT within",
        };
        let path = load.path;
        println!("{path:<8} median {median:+.1} %: {verdict} {TARGET_PER_CENT} %");
    }
}

fn ours(address: SocketAddr, load: Load, time: Duration) -> f64 {
    let ask = Ask::get(load.path).expecting(load.body);
    let mut driver = Driver::new(Plan::new(address, CONNECTIONS, ask));
    let outcome = driver.closed(For(time));
    assert_eq!(outcome.failures.total(), 0, "{}", outcome.failures);
    outcome.per_second()
}

/// Requests in a second.
fn wrk(address: SocketAddr, load: Load, time: Duration) -> f64 {
    let output = Command::new("wrk")
        .args(["-t1", &format!("-c{CONNECTIONS}")])
        .arg(format!("-d{}s", time.as_secs()))
        .arg(format!("http://{address}{}", load.path))
        .stderr(Stdio::inherit())
        .output()
        .expect("wrk can be run");
    let text = String::from_utf8_lossy(&output.stdout);
    let mut lines = text.lines();
    let rate = lines.find_map(|line| line.strip_prefix("Requests/sec:"));
    let rate = rate.and_then(|rest| rest.trim().parse().ok());
    rate.unwrap_or_else(|| panic!("wrk says no rate:\n{text}"))
}
