//! This package's binary, waited for by its notices.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::contender::{Contender, Contents, Name, Speaks};
use crate::process::{CEILING, LOG_LINES, Processes, Trouble, binary};
use crate::support::notices::{self, Notices};

/// How long the server may say nothing after USR2 before we believe that it knows no upgrades.
const SILENCE: Duration = Duration::from_secs(2);

/// The longest backoff is 30 s.
const BACKOFF_MAX: Duration = Duration::from_secs(40);

pub(crate) struct Prefork {
    processes: Processes,
    notices: Notices,
    workers: BTreeMap<Pid, Worker>,
    /// Ends of workers that neither we nor a drain explain.
    odd_ends: Vec<String>,
    victim: Option<Pid>,
    address: SocketAddr,
    /// How many workers there should be.
    size: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Worker {
    slot: u64,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Starting,
    Serving,
    Draining,
}

impl Prefork {
    pub(crate) fn start(
        name: Name,
        contents: Contents,
        speaks: Speaks,
        size: usize,
    ) -> Result<Self, Trouble> {
        let dir = tempfile::tempdir()?;
        let program = dir.path().join("prefork-server");
        fs::copy(binary(), &program)?;
        let listeners = match name {
            Name::PreforkShared => "shared",
            _ => "per-slot",
        };
        let mut command = Command::new(program);
        command
            .args(["--listen", "127.0.0.1:0", "--announce-fd", "1"])
            .args(["--workers", &size.to_string(), "--listeners", listeners])
            .args(["--crash-limit", "1000/60s", "--idle-timeout", "1h"]);
        match contents {
            Contents::Echo => command.arg("--echo"),
            Contents::Files(dir) => command.arg(dir),
        };
        if let Speaks::Tls(pem) = speaks {
            command.arg("--tls-cert").arg(&pem.certificate);
            command.arg("--tls-key").arg(&pem.key);
        }
        let (processes, said) = Processes::start(dir, &command)?;
        let mut server = Self {
            processes,
            notices: Notices::of(said),
            workers: BTreeMap::new(),
            odd_ends: Vec::new(),
            victim: None,
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            size,
        };
        let serving = server.wait("serving", |notice, _| notice["notice"] == "serving");
        let serving = serving.map_err(|trouble| {
            // The caller does not get the server, and so cannot ask it for its log.
            Trouble::Stuck(format!("{trouble}\n{}", server.processes.log()))
        })?;
        server.address = notices::address(&serving)?;
        Ok(server)
    }

    /// Kills the worker of `slot`, again whenever it is back, until its next pause is at least
    /// `pause` and a sibling has its listeners.
    pub(crate) fn crash_into_backoff(&mut self, slot: u64, pause: Duration) -> Result<(), Trouble> {
        let wanted = u64::try_from(pause.as_millis()).expect("not that long");
        let mut resting = 0;
        while resting < wanted {
            let worker = self.serving().find(|(_, worker)| worker.slot == slot);
            let Some((pid, _)) = worker else {
                self.wait("a worker in the slot", |_, server| {
                    server.serving().any(|(_, worker)| worker.slot == slot)
                })?;
                continue;
            };
            self.kill(pid)?;
            self.gone(pid)?;
            let next = self.wait("what becomes of the slot", |notice, _| {
                let name = &notice["notice"];
                notice["slot"] == slot && (name == "backing_off" || name == "worker_spawned")
            })?;
            resting = next["pause_ms"].as_u64().unwrap_or(0);
        }
        self.wait("adoption", |notice, _| {
            notice["notice"] == "adopted" && notice["slot"] == slot
        })?;
        Ok(())
    }

    /// Whether `slot` is still without a worker.
    pub(crate) fn rests(&mut self, slot: u64) -> bool {
        while let Ok(notice) = self.notices.next(Instant::now()) {
            self.note(&notice);
        }
        self.workers.values().all(|worker| worker.slot != slot)
    }

    fn serving(&self) -> impl Iterator<Item = (Pid, Worker)> {
        let workers = self.workers.iter().map(|(&pid, &worker)| (pid, worker));
        workers.filter(|(_, worker)| worker.state == State::Serving)
    }

    fn signal(&self, signal: Signal) -> Result<(), Trouble> {
        Ok(kill(self.processes.tree().root, signal)?)
    }

    fn gone(&mut self, worker: Pid) -> Result<(), Trouble> {
        self.wait("the killed worker's end", |_, server| {
            !server.workers.contains_key(&worker)
        })?;
        Ok(())
    }

    /// The first notice after which `wanted` is true.
    fn wait(
        &mut self,
        what: &str,
        wanted: impl Fn(&Value, &Self) -> bool,
    ) -> Result<Value, Trouble> {
        self.wait_within(CEILING, what, wanted)
    }

    fn wait_within(
        &mut self,
        ceiling: Duration,
        what: &str,
        wanted: impl Fn(&Value, &Self) -> bool,
    ) -> Result<Value, Trouble> {
        let deadline = Instant::now() + ceiling;
        loop {
            let notice = self
                .notices
                .next(deadline)
                .map_err(|trouble| Trouble::Stuck(format!("waiting for {what}: {trouble}")))?;
            self.note(&notice);
            if wanted(&notice, self) {
                return Ok(notice);
            }
        }
    }

    fn note(&mut self, notice: &Value) {
        let pid = notice["pid"]
            .as_i64()
            .and_then(|pid| i32::try_from(pid).ok());
        let (Some(pid), Some(slot)) = (pid.map(Pid::from_raw), notice["slot"].as_u64()) else {
            return;
        };
        let state = match notice["notice"].as_str() {
            Some("worker_spawned") => State::Starting,
            Some("worker_ready") => State::Serving,
            Some("worker_draining") => State::Draining,
            Some("worker_exited") => {
                let worker = self.workers.remove(&pid);
                if notice["status"] != "exit 0" && self.victim != Some(pid) {
                    self.odd_ends.push(format!("{worker:?}: {notice}"));
                }
                return;
            }
            _ => return,
        };
        self.workers.insert(pid, Worker { slot, state });
    }

    fn reload_ends(&mut self) -> Result<(), Trouble> {
        let end = self.wait("the reload's end", |notice, _| {
            notice["notice"] == "reload_finished" || notice["notice"] == "reload_abandoned"
        })?;
        match end["notice"] == "reload_finished" {
            true => Ok(()),
            false => Err(Trouble::Stuck(end.to_string())),
        }
    }
}

impl Contender for Prefork {
    fn processes(&self) -> &Processes {
        &self.processes
    }

    fn address(&self) -> SocketAddr {
        self.address
    }

    fn reload(&mut self) -> Result<(), Trouble> {
        self.signal(Signal::SIGHUP)?;
        self.reload_ends()
    }

    /// Every second time until those that drain have left, so that idle connections are closed;
    /// else the next event meets them while they drain.
    fn settle(&mut self, number: usize) -> Result<(), Trouble> {
        let drains = |server: &Self| {
            let mut workers = server.workers.values();
            workers.any(|worker| worker.state == State::Draining)
        };
        if number.is_multiple_of(2) && drains(self) {
            self.wait("the drained workers' end", |_, server| !drains(server))?;
        }
        Ok(())
    }

    /// Never the only one that serves: to kill it measures the backoff.
    fn workers(&mut self) -> Result<Vec<Pid>, Trouble> {
        let wanted = self.size.min(2);
        if self.serving().count() < wanted {
            self.wait_within(BACKOFF_MAX, "workers that serve", |_, server| {
                server.serving().count() >= wanted
            })?;
        }
        Ok(self.serving().map(|(pid, _)| pid).collect())
    }

    fn kill(&mut self, worker: Pid) -> Result<(), Trouble> {
        self.victim = Some(worker);
        Ok(kill(worker, Signal::SIGKILL)?)
    }

    /// Over when the slot has a worker or rests with its listeners adopted.
    fn replaced(&mut self, worker: Pid) -> Result<(), Trouble> {
        let slot = self.workers[&worker].slot;
        self.gone(worker)?;
        self.wait("a worker for the slot, or its backoff", |notice, server| {
            notice["slot"] == slot && notice["notice"] == "backing_off"
                || server.serving().any(|(_, worker)| worker.slot == slot)
        })?;
        Ok(())
    }

    fn upgrade(&mut self) -> Result<(), Trouble> {
        let program = self.processes.dir().join("prefork-server");
        replace(&program)?;
        self.signal(Signal::SIGUSR2)?;
        let is_upgrade = |notice: &Value, _: &Self| {
            let name = notice["notice"].as_str().unwrap_or_default();
            name.starts_with("upgrade_")
        };
        let first = self.wait_within(SILENCE, "an upgrade", is_upgrade);
        let Ok(mut notice) = first else {
            return Err(Trouble::NotSupported("no notice after USR2".into()));
        };
        while notice["notice"] == "upgrade_started" {
            notice = self.wait("the upgrade's end", is_upgrade)?;
        }
        if notice["notice"] != "upgrade_finished" {
            return Err(Trouble::Stuck(notice.to_string()));
        }
        self.reload_ends()
    }

    fn resize(&mut self, grows: bool) -> Result<(), Trouble> {
        let (signal, size) = match grows {
            true => (Signal::SIGTTIN, self.size + 1),
            false => (Signal::SIGTTOU, self.size - 1),
        };
        self.signal(signal)?;
        self.wait("the new size", |notice, _| {
            notice["notice"] == "resized" && notice["workers"] == size
        })?;
        // The slot that came or went.
        let slot = self.size.min(size) as u64;
        self.size = size;
        let settled = move |server: &Self| {
            let mut here = server.workers.values().filter(|worker| worker.slot == slot);
            match grows {
                true => here.any(|worker| worker.state == State::Serving),
                false => here.next().is_none(),
            }
        };
        if !settled(self) {
            self.wait("the workers it takes", |_, server| settled(server))?;
        }
        Ok(())
    }

    fn log(&self) -> String {
        let mut log = self.odd_ends.clone();
        log.truncate(LOG_LINES);
        log.push(self.processes.log());
        log.join("\n")
    }
}

/// Puts another file in the program's place, as an installation does.
fn replace(program: &Path) -> Result<(), Trouble> {
    let new = program.with_extension("new");
    fs::copy(binary(), &new)?;
    fs::rename(new, program)?;
    Ok(())
}
