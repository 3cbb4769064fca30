//! Clients as they are, directly and through HAProxy, while the server is reloaded again and again.
//! A client is skipped where it is not installed.
//!
//! `PREFORK_TEST_ROUNDS=20 cargo test --test it -- clients::` runs each client 20 times. Each test
//! prints its table.

pub(crate) mod app;
mod curl;
mod haproxy;
mod programs;

use std::env;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use rustls::version::TLS13;

use self::haproxy::Haproxy;
use crate::apps;
use crate::client::get;
use crate::https::Authority;
use crate::support::{CEILING, Server, program, this, until};

tests! {
    curl_sees_no_reload,
    python_sees_no_reload,
    go_sees_no_reload,
    java_sees_no_reload,
    node_sees_no_reload,
    chromium_sees_no_reload,
}

/// A case has at least so many requests, or an eighth if their bodies are large.
const REQUESTS: usize = 16;
/// And its requests are served by at least so many generations: a reload is within each case.
const GENERATIONS: usize = 2;

const DIRECTLY: &str = "directly";

/// Cases in which the client itself fails requests that it has not sent when GOAWAY comes, with
/// which any server ends a connection of HTTP/2. Behind HAProxy the clients see none. A client that
/// fails what it has sent skips these cases.
const KNOWN: [(&str, &str, &str); 2] = [
    ("Go", "h2", "a streamed body needs GetBody"),
    ("Node", "node:http2", "its user has to send it again"),
];

/// How a client reaches the server.
struct Route {
    http: String,
    https: String,
    ca: PathBuf,
    /// The version that the server sees; `None`: that which the client speaks.
    upstream: Option<&'static str>,
}

impl Route {
    fn home(&self) -> &Path {
        self.ca.parent().expect("it is in a directory")
    }
}

/// What a client has done.
#[derive(Default)]
struct Report {
    rows: Vec<Row>,
    log: String,
    /// Why it did not end as it should.
    trouble: Option<String>,
}

struct Row {
    case: String,
    /// Or why the case was skipped.
    counts: Result<Counts, String>,
}

#[derive(Default)]
struct Counts {
    requests: usize,
    failed: usize,
    /// Failed by the client because GOAWAY came: see [`KNOWN`].
    goaway: usize,
    /// By their addresses, as the server saw them.
    connections: usize,
    /// That served the requests.
    generations: usize,
    /// WebSockets that the server closed because of a reload.
    closed: usize,
}

fn curl_sees_no_reload() {
    run("curl", curl::client());
}

fn python_sees_no_reload() {
    run("Python", programs::python());
}

fn go_sees_no_reload() {
    run("Go", programs::go());
}

fn java_sees_no_reload() {
    run("Java", programs::java());
}

fn node_sees_no_reload() {
    run("Node", programs::node());
}

fn chromium_sees_no_reload() {
    run("Chromium", programs::chromium());
}

fn run(name: &str, client: Result<impl Fn(&Route) -> Report, String>) {
    let client = match client {
        Ok(client) => client,
        Err(why) => return println!("{name:8} skipped: {why}"),
    };
    let rounds =
        env::var("PREFORK_TEST_ROUNDS").map_or(1, |rounds| rounds.parse().expect("a number"));
    for _ in 0..rounds {
        directly(name, &client);
        for version in ["HTTP/1.1", "HTTP/2.0"] {
            through_haproxy(name, &client, version);
        }
    }
}

fn directly(name: &str, client: &impl Fn(&Route) -> Report) {
    let authority = authority();
    let plain = Reloaded::start(None);
    let secure = Reloaded::start(Some(&authority));
    let route = Route {
        http: format!("http://{}", plain.address),
        https: format!("https://{}", secure.address),
        ca: authority.path("ca.pem"),
        upstream: None,
    };
    let report = client(&route);
    plain.stop(|address| drop(get(address, "/")));
    secure.stop(|address| {
        let browser = authority.client(&TLS13);
        browser
            .try_visit_host(address, "127.0.0.1")
            .expect("it is served");
    });
    judge(name, DIRECTLY, Ok(report));
}

fn through_haproxy(name: &str, client: &impl Fn(&Route) -> Report, version: &'static str) {
    let authority = authority();
    let server = Reloaded::start(None);
    let haproxy = Haproxy::start(&authority.path(""), server.address, version);
    let how = format!("through HAProxy, {version}");
    let report = match &haproxy {
        Err(why) => Err(why.clone()),
        Ok(haproxy) => Ok(client(&Route {
            http: format!("http://{}", haproxy.plain),
            https: format!("https://{}", haproxy.secure),
            ca: authority.path("ca.pem"),
            upstream: Some(version),
        })),
    };
    server.stop(|address| drop(get(address, "/")));
    judge(name, &how, report);
}

/// Clients reach the server by its address.
fn authority() -> Authority {
    let authority = Authority::new();
    authority.issue("127.0.0.1", "cert.pem", "key.pem");
    let read = |name: &str| fs::read_to_string(authority.path(name)).expect("a file");
    fs::write(
        authority.path("both.pem"),
        read("cert.pem") + &read("key.pem"),
    )
    .expect("writable");
    authority
}

/// Prints the table. No request may have failed.
fn judge(name: &str, how: &str, report: Result<Report, String>) {
    let report = match report {
        Ok(report) => report,
        Err(why) => return println!("{name:8} {how:26} skipped: {why}"),
    };
    let mut wrong = Vec::from_iter(report.trouble);
    for Row { case, counts } in &report.rows {
        let start = format!("{name:8} {how:26} {case:26}");
        let counts = match counts {
            Ok(counts) => counts,
            Err(why) => {
                println!("{start} skipped: {why}");
                continue;
            }
        };
        let mut known = KNOWN
            .iter()
            .filter(|_| how == DIRECTLY && counts.goaway > 0);
        let known = known.find(|(client, cases, _)| *client == name && case.starts_with(cases));
        let row = format!(
            "{start} {:4} requests, {} failed, {} reloads, {} connections, {} closed, {} GOAWAY",
            counts.requests,
            counts.failed,
            counts.generations.saturating_sub(1),
            counts.connections,
            counts.closed,
            counts.goaway,
        );
        let row = row + &known.map_or(String::new(), |(_, _, why)| format!(": {why}"));
        println!("{row}");
        if is_wrong(how, case, counts) || (counts.goaway > 0 && known.is_none()) {
            wrong.push(row);
        }
    }
    assert!(
        !report.rows.is_empty() && wrong.is_empty(),
        "{}\n{}",
        wrong.join("\n"),
        report.log
    );
}

/// Whether a case is not as it should be.
fn is_wrong(how: &str, case: &str, counts: &Counts) -> bool {
    // A connection of HTTP/1 without TLS moves to the next worker. undici and Chromium open two.
    let connections = if case.contains("fetch") || case.contains("undici") {
        2
    } else {
        1
    };
    let moves = ["get", "post", "chunked"].map(|operation| format!("http {operation}"));
    let moves = how == DIRECTLY && moves.iter().any(|end| case.ends_with(end));
    counts.failed > 0
        || counts.requests < REQUESTS / 8
        || counts.generations < GENERATIONS
        || (moves && counts.connections > connections)
}

/// A server that is reloaded after its new workers have begun to serve, again and again. Dropped
/// before [`stop`](Self::stop), it is killed.
struct Reloaded {
    address: SocketAddr,
    pid: Pid,
    is_over: Arc<AtomicBool>,
    /// `None` when the server is stopped.
    reloads: Option<JoinHandle<Server>>,
}

/// How long the client may use another server.
const PAUSE_MAX: Duration = CEILING.saturating_mul(9);

impl Reloaded {
    /// With TLS if there is an authority.
    fn start(authority: Option<&Authority>) -> Self {
        let mut command: Command = program(this());
        command.env(apps::VARIABLE, "clients");
        if let Some(authority) = authority {
            command.env(apps::FILES, authority.path(""));
        }
        let mut server = Server::spawn(&mut command);
        let (address, pid) = (server.address(), server.pid);
        let is_over = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&is_over);
        let reloads = thread::spawn(move || {
            let mut generation = 1.into();
            while !ends.load(Ordering::Relaxed) {
                server.wait_within(PAUSE_MAX, "served", |served| {
                    served["generation"] == generation || ends.load(Ordering::Relaxed)
                });
                generation = server.reload()["generation"].clone();
            }
            server
        });
        Self {
            address,
            pid,
            is_over,
            reloads: Some(reloads),
        }
    }

    /// Ends the server, which has cut nothing. A request lets the reloads end.
    fn stop(mut self, ask: impl Fn(SocketAddr)) {
        self.is_over.store(true, Ordering::Relaxed);
        let reloads = self.reloads.take().expect("it is stopped once");
        until(|| {
            reloads.is_finished() || {
                ask(self.address);
                false
            }
        });
        let server = reloads.join().expect("each reload finishes");
        let ended = server.stop();
        let cut = |notice: &serde_json::Value| notice["cut"].as_u64().unwrap_or(0);
        assert_eq!(
            ended.notices.iter().map(cut).sum::<u64>(),
            0,
            "{}",
            ended.log
        );
    }
}

impl Drop for Reloaded {
    fn drop(&mut self) {
        if let Some(reloads) = self.reloads.take() {
            let _ = killpg(self.pid, Signal::SIGKILL);
            // The thread fails, because the server has ended.
            let _ = reloads.join();
        }
    }
}
