//! Is our load driver as fast as wrk?
//!
//! The same server, the same connections and the same time, wrk and the driver in turn, both in one
//! thread on the last CPU while the server has the others: else the one that takes less CPU time
//! leaves the server more. A driver that is slower hides what a server can do; one that is faster
//! has left something out. Whether the median difference is within five per cent is told for
//!
//! - `/cpu/20`, where a handler computes for 20 us: the server is the bottleneck, and both must
//!   find the same rate;
//! - `/`, where wrk, which asks epoll for writability before each request, may itself be it.
//!
//! Nothing depends on the verdict.
//!
//! Not measured: open loops, which wrk has not; what either does with wrong answers
//! (`tests/load.rs` has ours). wrk reads to the end of each answer, as ours does, and does not look
//! at the bytes.

#[allow(dead_code, unused_imports, reason = "shared by several benches")]
#[path = "support/load/mod.rs"]
mod load;
#[allow(dead_code, unused_imports, reason = "shared by several benches")]
#[path = "support/server/mod.rs"]
mod server;

use std::env;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

use self::load::{Ask, Driver, Extent, Plan};
use self::server::{App, BODY, COMPUTED, Model, Server, Workers};

const CONNECTIONS: usize = 64;
const ROUNDS: usize = 3;

/// How long either is at it in a round that counts.
const FULL: Duration = Duration::from_secs(5);
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

    let given: Vec<String> = env::args().collect();
    let has = |wanted: &str| given.iter().any(|argument| argument == wanted);
    if has("--list") {
        return;
    }
    let smoke = has("--test") || !has("--bench");
    let time = match (smoke, has("--quick")) {
        (true, _) => Duration::from_millis(50),
        (false, true) => Duration::from_secs(1),
        (false, false) => FULL,
    };
    let rounds = if time < FULL { 1 } else { ROUNDS };
    let models: &[Model] = match (smoke, has("--quick")) {
        (false, true) => &[Model::Prefork],
        _ => &[Model::Prefork, Model::MultiThread],
    };
    let split = Split::of_this_machine();
    for load in LOADS {
        let mut differences = Vec::new();
        for &model in models {
            pin_to(&split.server);
            let server = Server::start(model, &App::Handlers, Workers::PerCpu);
            pin_to(&split.driver);
            for round in 1..=rounds {
                let ours = ours(server.address(), load, time);
                print!(
                    "{:<8} {:<13} {round}: ours {ours:>7.0}",
                    load.path,
                    model.name()
                );
                // In whole seconds, and it is wrk that asks for that.
                let theirs = match smoke {
                    true => None,
                    false => wrk(server.address(), load, time),
                };
                let Some(theirs) = theirs else {
                    println!(" requests/s");
                    continue;
                };
                let difference = (ours / theirs - 1.0) * 100.0;
                differences.push(difference);
                println!(", wrk {theirs:>7.0} requests/s, {difference:>+5.1} %");
            }
        }
        judge(load, differences);
    }
}

fn judge(load: Load, mut differences: Vec<f64>) {
    if differences.is_empty() {
        return println!("nothing to compare with: no figures are wanted, or wrk is not installed");
    }
    differences.sort_by(f64::total_cmp);
    let (lower, upper) = ((differences.len() - 1) / 2, differences.len() / 2);
    let median = differences[lower].midpoint(differences[upper]);
    let verdict = match median.abs() <= TARGET_PER_CENT {
        true => "within",
        false => "NOT within",
    };
    println!(
        "{:<8} median {median:+.1} %: {verdict} {TARGET_PER_CENT} %",
        load.path
    );
}

/// Who runs where.
struct Split {
    server: CpuSet,
    driver: CpuSet,
}

impl Split {
    /// The last CPU is the driver's, the others are the server's. A single one is both's.
    fn of_this_machine() -> Self {
        let all = sched_getaffinity(Pid::from_raw(0)).expect("sched_getaffinity(2)");
        let usable = (0..CpuSet::count()).filter(|&cpu| all.is_set(cpu) == Ok(true));
        let usable: Vec<usize> = usable.collect();
        match usable.as_slice() {
            [server @ .., driver] if !server.is_empty() => Self {
                server: set_of(server),
                driver: set_of(&[*driver]),
            },
            _ => Self {
                server: all,
                driver: all,
            },
        }
    }
}

fn set_of(cpus: &[usize]) -> CpuSet {
    let mut set = CpuSet::new();
    for &cpu in cpus {
        set.set(cpu).expect("it was in a set before");
    }
    set
}

/// This thread, and the processes that it starts from now on.
fn pin_to(cpus: &CpuSet) {
    sched_setaffinity(Pid::from_raw(0), cpus).expect("they were allowed before");
}

fn ours(address: SocketAddr, load: Load, time: Duration) -> f64 {
    let ask = Ask::get(load.path).expecting(load.body);
    let mut driver = Driver::new(Plan::new(address, CONNECTIONS, ask));
    let outcome = driver.closed(Extent::For(time));
    assert_eq!(outcome.failures.total(), 0, "{}", outcome.failures);
    outcome.per_second()
}

/// Requests in a second; `None` if wrk is not there.
fn wrk(address: SocketAddr, load: Load, time: Duration) -> Option<f64> {
    let output = Command::new("wrk")
        .args(["-t1", &format!("-c{CONNECTIONS}")])
        .arg(format!("-d{}s", time.as_secs()))
        .arg(format!("http://{address}{}", load.path))
        .stderr(Stdio::inherit())
        .output();
    let output = match output {
        Err(error) if error.kind() == ErrorKind::NotFound => return None,
        output => output.expect("wrk can be run"),
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("Requests/sec:"));
    let rate = line.and_then(|rest| rest.trim().parse().ok());
    Some(rate.unwrap_or_else(|| panic!("wrk says no rate:\n{text}")))
}
