//! curl(1). Each call of it sends several requests, on one connection if it can.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use super::programs::{at_least, clean, found};
use super::{Counts, GENERATIONS, REQUESTS, Report, Route, Row};

/// A kind of connections: its name, curl's option for it, and the version that it leads to.
const KINDS: [(&str, &str, &str); 4] = [
    ("http", "--http1.1", "HTTP/1.1"),
    ("https", "--http1.1", "HTTP/1.1"),
    ("h2c", "--http2-prior-knowledge", "HTTP/2.0"),
    ("h2", "--http2", "HTTP/2.0"),
];

const FAILURES_MAX: usize = 5;

pub(super) fn client() -> Result<impl Fn(&Route) -> Report, String> {
    let curl = found(&["curl"])?;
    // Before curl 8, a second request on a connection by prior knowledge fails with any server
    // (curl's issue 10634).
    let reuses_h2c = at_least(&curl, &["--version"], "curl ", 8).is_ok();
    Ok(move |route: &Route| run(route, reuses_h2c))
}

fn run(route: &Route, reuses_h2c: bool) -> Report {
    let mut report = Report::default();
    for kind in KINDS {
        for operation in ["get", "post", "chunked", "fresh"] {
            if operation == "fresh" && kind.2 != "HTTP/1.1" {
                continue;
            }
            let case = Case {
                route,
                kind,
                operation,
                is_alone: kind.0 == "h2c" && !reuses_h2c,
            };
            let counts = Ok(case.run(&mut report.log));
            let case = format!("{} {operation}", kind.0);
            report.rows.push(Row { case, counts });
        }
    }
    report
}

struct Case<'a> {
    route: &'a Route,
    kind: (&'static str, &'static str, &'static str),
    operation: &'static str,
    /// Whether a call has one request.
    is_alone: bool,
}

impl Case<'_> {
    fn run(&self, log: &mut String) -> Counts {
        let wanted = match self.operation {
            "post" | "chunked" => REQUESTS / 8,
            _ if self.is_alone => REQUESTS / 4,
            _ => REQUESTS,
        };
        let batch = if self.is_alone { 1 } else { wanted };
        let sent = match self.operation {
            "post" => "0123456789abcdef".repeat(65_536),
            "chunked" => "0123456789abcdef".repeat(16_384),
            _ => String::new(),
        };
        let mut counts = Counts::default();
        let mut generations = BTreeSet::new();
        while counts.requests < wanted || generations.len() < GENERATIONS {
            let dir = tempfile::tempdir().expect("a directory");
            let numbers = counts.requests + 1..=counts.requests + batch;
            counts.requests += batch;
            let told = self.call(&dir, &sent, numbers.clone());
            let mut peers = BTreeSet::new();
            for number in numbers {
                match self.check(dir.path(), &sent, number) {
                    Ok((generation, peer)) => {
                        generations.insert(generation);
                        peers.insert(peer);
                    }
                    Err(why) => {
                        counts.failed += 1;
                        *log += &format!("{} {}: {why}; {told}\n", self.kind.0, self.operation);
                    }
                }
            }
            // Of one call, since another cannot have the same connection.
            counts.connections = counts.connections.max(peers.len());
            if counts.failed >= FAILURES_MAX {
                break;
            }
        }
        counts.generations = generations.len();
        counts
    }

    /// Calls curl, and returns what it printed.
    fn call(&self, dir: &TempDir, sent: &str, numbers: std::ops::RangeInclusive<usize>) -> String {
        let (kind, option, _) = self.kind;
        let base = match kind {
            "http" | "h2c" => &self.route.http,
            _ => &self.route.https,
        };
        let url = format!(
            "{base}/{}/[{}-{}]",
            self.operation,
            numbers.start(),
            numbers.end()
        );
        fs::write(dir.path().join("sent"), sent).expect("a file");
        let mut curl = Command::new("curl");
        curl.args([
            "--silent",
            "--show-error",
            "--max-time",
            "20",
            option,
            "--cacert",
        ]);
        curl.arg(&self.route.ca).arg(url);
        curl.args(["--output", "#1", "--write-out"]);
        curl.arg("%{http_code} %{http_version} %{filename_effective}\n");
        if kind.starts_with("h2") {
            curl.args(["--parallel", "--parallel-max", "4"]);
        }
        match self.operation {
            "post" if self.seen() == "HTTP/1.1" => {
                let waits = "Expect: 100-continue";
                curl.args(["--data-binary", "@sent", "--header", waits])
            }
            // The server sends no 100 in HTTP/2, and curl would wait for it for a second.
            "post" => curl.args(["--data-binary", "@sent", "--header", "Expect:"]),
            "chunked" => {
                let chunked = "Transfer-Encoding: chunked";
                curl.args(["--data-binary", "@sent", "--header", chunked])
            }
            "fresh" => curl.args(["--header", "Connection: close"]),
            _ => &mut curl,
        };
        let output = clean(&mut curl).current_dir(dir).output().expect("it runs");
        let told = String::from_utf8_lossy(&output.stdout).into_owned();
        fs::write(dir.path().join("told"), &told).expect("a file");
        format!(
            "{}: {}{told}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        )
    }

    /// The version that the server sees.
    fn seen(&self) -> &'static str {
        self.route.upstream.unwrap_or(self.kind.2)
    }

    /// The generation and the client's address of a response.
    fn check(&self, dir: &Path, sent: &str, number: usize) -> Result<(String, String), String> {
        let told = fs::read_to_string(dir.join("told")).unwrap_or_default();
        let (_, _, version) = self.kind;
        let short = version.trim_start_matches("HTTP/").trim_end_matches(".0");
        let expected = format!("200 {short} {number}");
        if !told.lines().any(|line| line == expected) {
            return Err(format!("no {expected}"));
        }
        let body = fs::read_to_string(dir.join(number.to_string()));
        let body = body.map_err(|error| error.to_string())?;
        let (line, rest) = body.split_once('\n').unwrap_or_default();
        let (method, framing) = match self.operation {
            "post" => ("POST", "length=1048576"),
            "chunked" => ("POST", "stream"),
            _ => ("GET", "empty"),
        };
        let seen = self.seen();
        let start = format!("{method} /{}/{number} {framing} {seen} ", self.operation);
        let Some((generation, peer)) = line
            .strip_prefix(&start)
            .and_then(|end| end.split_once(' '))
        else {
            return Err(format!("`{line}` does not begin with `{start}`"));
        };
        if rest != sent {
            return Err(format!("{} other bytes", rest.len()));
        }
        Ok((generation.into(), peer.into()))
    }
}
