//! Is our load driver as fast as wrk?
//!
//! The same server, the same connections and the same time, wrk and the driver in turn. A driver
//! that is slower hides what a server can do; one that is faster has left something out. It passes
//! if the median difference is at most five per cent; nothing else depends on that.
//!
//! Not measured: open loops, which wrk has not; what either does with wrong answers
//! (`tests/load.rs` has ours). Both run in one thread. wrk reads to the end of each answer, as ours
//! does, and does not look at the bytes.

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

use self::load::{Ask, Driver, Extent, Plan};
use self::server::{App, BODY, Model, Server};

const CONNECTIONS: usize = 64;
const ROUNDS: usize = 3;
const TARGET_PER_CENT: f64 = 5.0;

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
        (false, false) => Duration::from_secs(5),
    };
    let mut differences = Vec::new();
    for model in [Model::Prefork, Model::MultiThread] {
        let server = Server::start(model, &App::Handlers);
        for round in 1..=if smoke { 1 } else { ROUNDS } {
            let ours = ours(server.address(), time);
            // In whole seconds, and it is wrk that asks for that.
            let theirs = match smoke {
                true => None,
                false => wrk(server.address(), time),
            };
            let Some(theirs) = theirs else {
                println!("{} {round}: ours {ours:>9.0} requests/s", model.name());
                continue;
            };
            let difference = (ours / theirs - 1.0) * 100.0;
            differences.push(difference);
            let name = model.name();
            print!("{name:<13} {round}: wrk {theirs:>9.0} requests/s, ours {ours:>9.0}, ");
            println!("{difference:>+5.1} %");
        }
    }
    judge(differences);
}

fn judge(mut differences: Vec<f64>) {
    if differences.is_empty() {
        return println!("nothing to compare with: no figures are wanted, or wrk is not installed");
    }
    differences.sort_by(f64::total_cmp);
    let median = differences[differences.len() / 2];
    let verdict = match median.abs() <= TARGET_PER_CENT {
        true => "within",
        false => "NOT within",
    };
    println!("median {median:+.1} %: {verdict} {TARGET_PER_CENT} %");
}

fn ours(address: SocketAddr, time: Duration) -> f64 {
    let ask = Ask::get("/").expecting(BODY);
    let mut driver = Driver::new(Plan::new(address, CONNECTIONS, ask));
    let outcome = driver.closed(Extent::For(time));
    assert_eq!(outcome.failures.total(), 0, "{}", outcome.failures);
    outcome.per_second()
}

/// Requests in a second; `None` if wrk is not there.
fn wrk(address: SocketAddr, time: Duration) -> Option<f64> {
    let output = Command::new("wrk")
        .args(["-t1", &format!("-c{CONNECTIONS}")])
        .arg(format!("-d{}s", time.as_secs()))
        .arg(format!("http://{address}/"))
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
