//! What a request costs without a kernel: a server that reads from memory and writes to nowhere.
//!
//! As fasthttp's own benchmark does it, with its request: a client that never waits, so that the
//! server finds many requests in one read, and one connection at a time. No runtime takes part:
//! what waits for memory has only to be asked again.

mod ours;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::process::Trouble;
use crate::programs::Program;
use crate::series::{self, Series, Unit};
use crate::session::{Session, Taken, Turn};

/// The one of fasthttp's own benchmark.
const REQUEST: &str = "GET /foobar?baz HTTP/1.1\r\n\
    Host: google.com\r\n\
    User-Agent: aaa/bbb/ccc/ddd/eee Firefox Chrome MSIE Opera\r\n\
    Referer: http://example.com/aaa?bbb=ccc\r\n\
    Cookie: foo=bar; baz=baraz; aa=aakslsdweriwereowriewroire\r\n\r\n";

/// How long the connections of a run are.
#[derive(Clone, Copy)]
struct PerConnection(u64);

const LENGTHS: [PerConnection; 2] = [PerConnection(1), PerConnection(10_000)];

/// How many requests a run answers.
#[derive(Clone, Copy)]
struct Requests(u64);

#[derive(Clone, Copy)]
enum Contender {
    Here(ours::Path),
    /// What the Go program calls it.
    Go(&'static str),
}

const CONTENDERS: [(&str, Contender); 4] = [
    (series::OURS, Contender::Here(ours::Path::Ours)),
    ("hyper", Contender::Here(ours::Path::Hyper)),
    ("fasthttp", Contender::Go("fasthttp")),
    ("net/http", Contender::Go("net-http")),
];

/// How long all turns should take.
pub(crate) const EXPECTED: Duration = Duration::from_secs(3);

pub(crate) fn measure(session: &mut Session) -> Vec<Series> {
    let rounds = session.scale.rounds;
    let requests = Requests(session.scale.requests);
    let mut all = CONTENDERS.map(|(name, contender)| (Taken::new(name), contender));
    for round in 1..=rounds.0 {
        session
            .progress
            .begin(format_args!("in memory, round {round}"), EXPECTED);
        for (taken, contender) in &mut all {
            let result = (!taken.is_out()).then(|| turn(session, *contender, requests));
            taken.take(result);
        }
    }
    let series = LENGTHS.iter().enumerate().map(|(index, length)| Series {
        key: format!("in_memory_{}", length.0),
        title: format!("CPU per request in memory, {} per connection", length.0),
        unit: Unit::Micros,
        rows: all.iter().map(|(taken, _)| taken.row(index)).collect(),
    });
    series.collect()
}

fn turn(session: &Session, contender: Contender, requests: Requests) -> Result<Turn, Trouble> {
    let mut figures = Vec::new();
    for length in LENGTHS {
        let nanos = session.cpus.on_server(|| match contender {
            Contender::Here(path) => ours::in_this_process(path, length, requests),
            Contender::Go(which) => {
                let program = session.programs.path(Program::InMemory)?;
                go(program, which, length, requests)
            }
        })??;
        figures.push(nanos / 1e3);
    }
    Ok(Turn {
        figures,
        failures: 0,
    })
}

/// Nanoseconds per request.
fn go(
    program: &Path,
    which: &str,
    length: PerConnection,
    requests: Requests,
) -> Result<f64, Trouble> {
    let output = Command::new(program)
        .args([
            which,
            &length.0.to_string(),
            &requests.0.to_string(),
            REQUEST,
        ])
        .env("GOMAXPROCS", "1")
        .output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    said.trim().parse().map_err(|_| {
        let why = String::from_utf8_lossy(&output.stderr);
        Trouble::Stuck(format!("{which}: {}", why.trim()))
    })
}
