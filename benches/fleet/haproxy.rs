//! HAProxy with `examples/deploy/haproxy.cfg`, and its runtime API.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use nix::poll::{PollTimeout, poll};

use crate::balancer::{Balancer, Kind, Route, Routes, number_in};
use crate::instance::PORT;
use crate::network::{Namespace, address_of};
use crate::process::{Processes, Trouble, until};
use crate::support::toolchain::found;

const FILE: &str = include_str!("../../examples/deploy/haproxy.cfg");

/// Where the file has the socket of the runtime API.
const SOCKET: &str = "/run/haproxy/admin.sock";

/// The columns of `show stat`.
const SERVER: usize = 1;
const SESSIONS: usize = 4;
const STATUS: usize = 17;

pub(crate) struct Haproxy {
    kind: Kind,
    processes: Processes,
    backend: &'static str,
    /// What the file says of every server.
    words: String,
}

impl Haproxy {
    pub(crate) fn start(kind: Kind, machine: &Namespace) -> Result<Self, Trouble> {
        let program = found("haproxy")?.display().to_string();
        let dir = tempfile::tempdir()?;
        let socket = dir.path().join("admin.sock").display().to_string();
        let (backend, other) = match kind {
            Kind::HaproxyH2c => ("app-h2c", "app"),
            _ => ("app", "app-h2c"),
        };
        let mut file = without(FILE, other)
            .replace("default_backend app", &format!("default_backend {backend}"))
            .replace(SOCKET, &socket);
        if kind == Kind::Service {
            file = as_a_service(&file);
        }
        let words = file.split("default-server ").nth(1);
        let words = words.and_then(|rest| rest.lines().next());
        let words = words.expect("the file says it").to_owned();
        let path = dir.path().join("haproxy.cfg");
        fs::write(&path, file)?;
        let mut command = machine.command(&program);
        command.args(["-db", "-f"]).arg(path);
        let (processes, _) = Processes::start(dir, &command)?;
        let haproxy = Self {
            kind,
            processes,
            backend,
            words,
        };
        let begun = until("HAProxy has its socket", || {
            haproxy.say("show info").is_ok()
        });
        begun.map_err(|trouble| Trouble::Stuck(format!("{trouble}: {}", haproxy.log())))?;
        Ok(haproxy)
    }

    fn socket(&self) -> PathBuf {
        self.processes.dir().join("admin.sock")
    }

    /// A command, and what HAProxy says to it.
    fn say(&self, command: &str) -> Result<String, Trouble> {
        let mut stream = UnixStream::connect(self.socket())?;
        stream.write_all(format!("{command}\n").as_bytes())?;
        let mut said = String::new();
        stream.read_to_string(&mut said)?;
        Ok(said)
    }

    /// A command that it does, or else says why not.
    fn order(&self, command: &str) -> Result<(), Trouble> {
        let said = self.say(command)?;
        let is_done = ["", "New server registered.", "Server deleted."].contains(&said.trim());
        match is_done {
            true => Ok(()),
            false => Err(Trouble::Stuck(format!("{command}: {}", said.trim()))),
        }
    }

    fn server(&self, instance: usize) -> String {
        format!("{}/app{instance}", self.backend)
    }

    /// A column of the line that `show stat` has for an instance.
    fn column(&self, instance: usize, column: usize) -> Result<String, Trouble> {
        let (stat, name) = (self.say("show stat")?, format!("app{instance}"));
        let mut lines = stat.lines().map(|line| line.split(',').collect::<Vec<_>>());
        let line = lines.find(|line| line.get(SERVER) == Some(&name.as_str()));
        let cell = line.and_then(|line| Some((*line.get(column)?).to_owned()));
        cell.ok_or_else(|| Trouble::Stuck(format!("HAProxy knows no {name}")))
    }

    fn until_status(&self, instance: usize, wanted: &str) -> Result<(), Trouble> {
        until(&format!("HAProxy says {wanted} of app{instance}"), || {
            let status = self.column(instance, STATUS);
            status.is_ok_and(|status| status == wanted)
        })
    }
}

impl Balancer for Haproxy {
    fn put_in(&mut self, instance: usize) -> Result<(), Trouble> {
        match self.kind {
            Kind::Service => {
                self.order(&format!("set server {} state ready", self.server(instance)))
            }
            _ => self.until_status(instance, "UP"),
        }
    }

    fn take_out(&mut self, instance: usize) -> Result<(), Trouble> {
        match self.kind {
            Kind::Service => {
                self.order(&format!("set server {} state maint", self.server(instance)))
            }
            _ => Ok(()),
        }
    }

    fn until_noticed(&mut self, instance: usize) -> Result<(), Trouble> {
        self.until_status(instance, "DOWN")
    }

    fn add(&mut self, instance: usize) -> Result<(), Trouble> {
        let (server, address) = (self.server(instance), address_of(instance));
        self.order(&format!(
            "add server {server} {address}:{PORT} {}",
            self.words
        ))?;
        if self.kind == Kind::Service {
            return self.put_in(instance);
        }
        self.order(&format!("enable health {server}"))?;
        self.order(&format!("enable server {server}"))?;
        self.until_status(instance, "UP")
    }

    fn remove(&mut self, instance: usize) -> Result<(), Trouble> {
        self.order(&format!("set server {} state drain", self.server(instance)))?;
        until("its requests have their responses", || {
            let sessions = self.column(instance, SESSIONS);
            sessions.is_ok_and(|sessions| sessions == "0")
        })
    }

    /// It refuses as long as connections are open to the server that rest.
    fn forget(&mut self, instance: usize) -> Result<(), Trouble> {
        let server = self.server(instance);
        self.order(&format!("set server {server} state maint"))?;
        until("HAProxy forgets the server", || {
            self.order(&format!("del server {server}")).is_ok()
        })
    }

    fn routes(&self) -> Result<Routes, Trouble> {
        // It writes a line when the response is sent, and the client is a little faster.
        poll(
            &mut [],
            PollTimeout::try_from(Duration::from_millis(100)).expect("it is short"),
        )?;
        let log = fs::read_to_string(self.processes.dir().join("log"))?;
        Ok(log.lines().filter_map(route).collect())
    }

    fn log(&self) -> String {
        let log = fs::read_to_string(self.processes.dir().join("log")).unwrap_or_default();
        let lines = log.lines().filter(|line| number_in(line).is_none());
        lines.collect::<Vec<_>>().join("\n")
    }
}

/// The file without a backend that has no part in this.
fn without(file: &str, backend: &str) -> String {
    let head = format!("\nbackend {backend}\n");
    let (before, rest) = file.split_once(&head).expect("the file has it");
    let after = rest.split_once("\n\n").map_or("", |(_, after)| after);
    format!("{before}\n{after}")
}

/// No checks, and no second try: the proxy of a Service has neither.
fn as_a_service(file: &str) -> String {
    let is_kept = |line: &&str| {
        let line = line.trim_start();
        !line.starts_with("option redispatch") && !line.starts_with("retry-on")
    };
    let lines: Vec<_> = file.lines().filter(is_kept).collect();
    let file = lines.join("\n") + "\n";
    let (before, rest) = file.split_once("check port").expect("the file has it");
    let (_, after) = rest.split_once("rise 2 ").expect("the file has it");
    format!("{before}{after}").replace("retries 3", "retries 0")
}

/// What a line of `option httplog` says.
fn route(line: &str) -> Option<(usize, Route)> {
    let number = number_in(line)?;
    let words: Vec<_> = line.split(' ').collect();
    let &[_, _, _, server, _, status, _, _, _, end, counts, ..] = words.as_slice() else {
        return None;
    };
    let (_, server) = server.split_once('/')?;
    let tries = counts.rsplit('/').next()?;
    let instance = server.strip_prefix("app").and_then(|it| it.parse().ok());
    let route = Route {
        instances: instance.into_iter().collect(),
        is_retried: tries != "0",
        end: format!("{status} {end}"),
    };
    Some((number, route))
}
