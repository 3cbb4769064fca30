//! The clients that are programs of their own. One that has to be compiled is compiled before a
//! server is started, because that may take minutes on a busy machine. Each gets as arguments: the
//! URLs without and with TLS, the file of the CA, the version that the server sees (`-`: the
//! client's), how many requests a case has at least, and how many generations have to serve them.
//! It prints a JSON object for each case.

use std::env;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde_json::Value;

use super::{Counts, GENERATIONS, REQUESTS, Report, Route, Row};
use crate::support::CEILING;

/// A case is many requests. A machine that runs all tests at the same time needs some seconds.
const CASE_MAX: Duration = CEILING.saturating_mul(3);

/// Where those that are compiled go.
const BUILT: &str = env!("CARGO_TARGET_TMPDIR");

/// Where the sources of the clients are.
const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/clients");

pub(super) fn python() -> Result<impl Fn(&Route) -> Report, String> {
    let python = found(&["python3"])?;
    Ok(move |route: &Route| {
        let mut command = Command::new(&python);
        command.arg("-B").arg(Path::new(SOURCES).join("clients.py"));
        follow(with_arguments(&mut command, route))
    })
}

pub(super) fn node() -> Result<impl Fn(&Route) -> Report, String> {
    let node = found(&["node"])?;
    // The first with `fetch`.
    at_least(&node, &["--version"], "v", 18)?;
    Ok(move |route: &Route| {
        let mut command = Command::new(&node);
        command.env("NODE_EXTRA_CA_CERTS", &route.ca);
        command.arg(Path::new(SOURCES).join("client.mjs"));
        follow(with_arguments(&mut command, route))
    })
}

pub(super) fn go() -> Result<impl Fn(&Route) -> Report, String> {
    let go = found(&["go"])?;
    // The first that lets a program choose HTTP/2 without TLS.
    at_least(&go, &["env", "GOVERSION"], "go1.", 24)?;
    let client = Path::new(BUILT).join("client");
    let mut build = Command::new(go);
    build.args(["build", "-o"]).arg(&client).arg("client.go");
    // Not the commit of what is around it, and no other toolchain.
    build
        .env("GOFLAGS", "-buildvcs=false")
        .env("GOTOOLCHAIN", "local");
    compile(&mut build);
    Ok(move |route: &Route| follow(with_arguments(&mut Command::new(&client), route)))
}

pub(super) fn java() -> Result<impl Fn(&Route) -> Report, String> {
    let (java, javac) = (found(&["java"])?, found(&["javac"])?);
    at_least(&javac, &["--version"], "javac ", 17)?;
    let mut build = Command::new(javac);
    build.args(["-d", BUILT, "Client.java"]);
    compile(&mut build);
    Ok(move |route: &Route| {
        let mut command = Command::new(&java);
        // It starts faster so.
        command.args(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]);
        command.args(["-cp", BUILT, "Client"]);
        follow(with_arguments(&mut command, route))
    })
}

pub(super) fn chromium() -> Result<impl Fn(&Route) -> Report, String> {
    let chromium = found(&["chromium", "chromium-browser", "google-chrome"])?;
    Ok(move |route: &Route| follow(&mut visit(&chromium, route)))
}

/// The page runs the cases: first that of the address without TLS, then that with it.
fn visit(chromium: &Path, route: &Route) -> Command {
    let mut command = Command::new(chromium);
    command.args([
        "--headless",
        // For root.
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--no-proxy-server",
        "--ignore-certificate-errors",
        // The page's console goes to standard error.
        "--enable-logging=stderr",
    ]);
    let profile = route.home().join("profile");
    command.arg(format!("--user-data-dir={}", profile.display()));
    command.arg(format!(
        "{}/page?upstream={}&requests={REQUESTS}&generations={GENERATIONS}&next={}/page",
        route.http,
        route.upstream.unwrap_or("-"),
        route.https
    ));
    command
}

/// Where the first of these programs is that is on the PATH.
pub(super) fn found(programs: &[&str]) -> Result<PathBuf, String> {
    let path = env::var_os("PATH").unwrap_or_default();
    let dirs: Vec<_> = env::split_paths(&path).collect();
    let mut paths = programs
        .iter()
        .flat_map(|program| dirs.iter().map(move |dir| dir.join(program)));
    paths
        .find(|path| path.is_file())
        .ok_or_else(|| format!("{} is not installed", programs[0]))
}

/// Whether a program prints this word and this number or a higher one.
pub(super) fn at_least(
    program: &Path,
    arguments: &[&str],
    word: &str,
    least: u32,
) -> Result<(), String> {
    let output = Command::new(program).args(arguments).output();
    let output = output.map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let number = text.strip_prefix(word).unwrap_or_default();
    let number = number.split(|c: char| !c.is_ascii_digit()).next();
    match number.and_then(|number| number.parse::<u32>().ok()) {
        Some(number) if number >= least => Ok(()),
        _ => Err(format!("{} is older than {word}{least}", text.trim())),
    }
}

fn compile(build: &mut Command) {
    let output = build.current_dir(SOURCES).output().expect("it is there");
    // The program is ours and the compiler new enough.
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");
}

fn with_arguments<'a>(command: &'a mut Command, route: &Route) -> &'a mut Command {
    command.args([&route.http, &route.https]).arg(&route.ca);
    command.arg(route.upstream.unwrap_or("-"));
    command.args([REQUESTS, GENERATIONS].map(|count| count.to_string()))
}

/// Without a proxy between client and server.
pub(super) fn clean(command: &mut Command) -> &mut Command {
    for (name, _) in env::vars_os() {
        if name.to_string_lossy().to_lowercase().ends_with("_proxy") {
            command.env_remove(name);
        }
    }
    command
}

/// A client and the processes that it has started. Dropped, all are killed.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let group = Pid::from_raw(i32::try_from(self.0.id()).expect("a pid"));
        // Fails if no process of the group is left. That is fine.
        let _ = killpg(group, Signal::SIGKILL);
        let _ = self.0.wait();
    }
}

/// Runs a client and reads its rows. What else it prints is its log.
fn follow(command: &mut Command) -> Report {
    let (output, input) = std::io::pipe().expect("a pipe");
    clean(command).stdin(Stdio::null()).process_group(0);
    command.stderr(input.try_clone().expect("a descriptor"));
    let mut client = Running(command.stdout(input).spawn().expect("it is there"));
    // Until then the command has the end of the pipe that the client writes to.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let (sender, lines) = channel();
    thread::spawn(move || {
        let lines = BufReader::new(output).lines().map_while(Result::ok);
        lines.map(|line| sender.send(line)).find(Result::is_err)
    });
    let mut report = Report::default();
    loop {
        match lines.recv_timeout(CASE_MAX) {
            Ok(line) if line.contains(r#"{"case":"end"}"#) => break,
            Ok(line) => match row(&line) {
                Some(row) => report.rows.push(row),
                None => report.log += &(line + "\n"),
            },
            Err(RecvTimeoutError::Disconnected) => {
                let status = client.0.wait().expect("it is ours");
                report.trouble = (!status.success()).then(|| status.to_string());
                break;
            }
            Err(RecvTimeoutError::Timeout) => {
                report.trouble = Some("a case has no end".into());
                break;
            }
        }
    }
    report
}

/// The object in a line. Chromium puts other words around it.
fn row(line: &str) -> Option<Row> {
    let (start, end) = (line.find(r#"{"case":"#)?, line.rfind('}')?);
    let value: Value = serde_json::from_str(line.get(start..=end)?).ok()?;
    let count = |name: &str| value[name].as_u64().unwrap_or(0) as usize;
    let counts = match value["skipped"].as_str() {
        Some(why) => Err(why.to_owned()),
        None => Ok(Counts {
            requests: count("requests"),
            failed: count("failed"),
            goaway: count("goaway"),
            connections: count("connections"),
            generations: count("generations"),
            closed: count("closed"),
        }),
    };
    Some(Row {
        case: value["case"].as_str()?.to_owned(),
        counts,
    })
}
