//! A server in a process of its own, so that its CPU time is its own.
//!
//! Every server is this executable started once more with its role in the environment. It prints
//! the notice `serving` when it does, ends on TERM, and ends as well when the bench is gone: the
//! kernel sends that TERM, so not even a killed bench leaves a server behind.

use std::env;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::{Pid, geteuid};
use serde_json::Value;

use super::answer::BODY;
use super::cpu::Processes;
use super::opponents;

/// Tells this executable which server to be.
const ROLE: &str = "PREFORK_BENCH_ROLE";

/// The CPUs that servers are pinned to, like `0` or `0,2`. Not pinned without it.
const SERVER_CPUS: &str = "PREFORK_BENCH_SERVER_CPUS";

/// For a server to start, or to stop once it has no connections. Only a broken one takes as long.
const PATIENCE_MS: u16 = 10_000;

/// A way to spread connections over CPUs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Model {
    /// This package's binary: a process per CPU, each with a runtime and a listener.
    Prefork,
    /// One process, one multi-threaded runtime, one listener.
    MultiThread,
    /// One process, a thread per CPU, each with a runtime and a listener.
    CurrentThreads,
}

impl Model {
    pub(crate) const ALL: [Self; 3] = [Self::Prefork, Self::MultiThread, Self::CurrentThreads];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Prefork => "prefork",
            Self::MultiThread => "multi_thread",
            Self::CurrentThreads => "current_threads",
        }
    }

    fn processes(self, workers: usize) -> usize {
        match self {
            Self::Prefork => 1 + workers,
            Self::MultiThread | Self::CurrentThreads => 1,
        }
    }
}

/// Becomes a server, and does not return, if the environment says so.
pub(crate) fn become_server_if_asked() {
    let Ok(role) = env::var(ROLE) else { return };
    let model = Model::ALL.into_iter().find(|model| model.name() == role);
    let model = model.expect("only `Server::start` sets the role");

    set_pdeathsig(Signal::SIGTERM).expect("prctl(2) takes SIGTERM");
    if let Ok(cpus) = env::var(SERVER_CPUS) {
        pin_to(&cpus);
    }
    let workers = thread::available_parallelism().expect("the affinity can be read");
    match model {
        Model::Prefork => {
            // The death signal survives exec: see PR_SET_PDEATHSIG(2const).
            let error = Command::new(env!("CARGO_BIN_EXE_prefork-server"))
                .args(["--listen", "127.0.0.1:0", "--respond", BODY])
                .args(["--workers", &workers.to_string()])
                .args(["--announce-fd", "1"])
                // Root has to say whom its workers run as.
                .env("PREFORK_USER", geteuid().to_string())
                .env_remove(ROLE)
                .exec();
            panic!("prefork-server: {error}");
        }
        Model::MultiThread => opponents::multi_thread(workers),
        Model::CurrentThreads => opponents::current_threads(workers),
    }
}

/// Says the same as the binary does when it serves.
pub(crate) fn announce(address: SocketAddr, workers: usize) {
    let notice = serde_json::json!({
        "notice": "serving",
        "addresses": [address.to_string()],
        "workers": workers,
        "pid": std::process::id(),
    });
    writeln!(io::stdout(), "{notice}").expect("the bench reads the notice");
}

/// A running server. Dropped, it is stopped and reaped.
pub(crate) struct Server {
    model: Model,
    process: Process,
    address: SocketAddr,
    workers: usize,
}

impl Server {
    pub(crate) fn start(model: Model) -> Self {
        let mut process = Process::spawn(model);
        let notice = process.wait_for("serving");
        let address = notice["addresses"][0]
            .as_str()
            .and_then(|it| it.parse().ok());
        let server = Self {
            model,
            process,
            address: address.unwrap_or_else(|| panic!("no address in {notice}")),
            workers: notice["workers"].as_u64().map_or(0, |it| it as usize),
        };
        assert_eq!(
            server.processes().count(),
            model.processes(server.workers),
            "processes of {}: the CPU time of all must be counted",
            model.name(),
        );
        server
    }

    pub(crate) fn model(&self) -> Model {
        self.model
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn workers(&self) -> usize {
        self.workers
    }

    pub(crate) fn processes(&self) -> Processes {
        Processes::under(self.process.pid())
    }
}

/// The process of a server, in a group of its own.
struct Process {
    child: Child,
    announced: ChildStdout,
    unread: Vec<u8>,
}

impl Process {
    fn spawn(model: Model) -> Self {
        let this = env::current_exe().expect("proc(5) is mounted");
        let mut child = Command::new(this)
            .env(ROLE, model.name())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .expect("this executable can be started once more");
        let announced = child.stdout.take().expect("stdout is a pipe");
        Self {
            child,
            announced,
            unread: Vec::new(),
        }
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id() as i32)
    }

    fn wait_for(&mut self, wanted: &str) -> Value {
        loop {
            while let Some(end) = self.unread.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.unread.drain(..=end).collect();
                let notice: Value = serde_json::from_slice(&line).unwrap_or_else(|error| {
                    panic!("\"{}\" is no notice: {error}", line.escape_ascii());
                });
                if notice["notice"] == wanted {
                    return notice;
                }
            }
            match self.read() {
                Announced::Bytes => {}
                Announced::End => panic!("the server ended before it was {wanted}"),
                Announced::Silence => panic!("the server is not {wanted} in {PATIENCE_MS} ms"),
            }
        }
    }

    fn read(&mut self) -> Announced {
        let mut ready = [PollFd::new(self.announced.as_fd(), PollFlags::POLLIN)];
        let ready = poll(&mut ready, PollTimeout::from(PATIENCE_MS)).expect("poll(2)");
        if ready == 0 {
            return Announced::Silence;
        }
        let mut bytes = [0; 4096];
        match self.announced.read(&mut bytes).expect("a pipe can be read") {
            0 => Announced::End,
            count => {
                self.unread.extend_from_slice(&bytes[..count]);
                Announced::Bytes
            }
        }
    }
}

enum Announced {
    Bytes,
    /// Nobody is left who could announce anything.
    End,
    Silence,
}

impl Drop for Process {
    /// Waits for the end of the announce stream, which comes when the last process holding it is
    /// gone; kills the group if that takes too long.
    fn drop(&mut self) {
        // Fails only if the server is gone already, which is what we want.
        let _ = kill(self.pid(), Signal::SIGTERM);
        loop {
            match self.read() {
                Announced::Bytes => {}
                Announced::End => break,
                Announced::Silence => {
                    eprintln!("the server ignores TERM for {PATIENCE_MS} ms: killed");
                    let _ = killpg(self.pid(), Signal::SIGKILL);
                    break;
                }
            }
        }
        // Not yet reaped, so the wait cannot fail, and its status changes nothing here.
        let _ = self.child.wait();
    }
}

fn pin_to(cpus: &str) {
    let mut set = CpuSet::new();
    for cpu in cpus.split(',') {
        let cpu = cpu
            .parse()
            .unwrap_or_else(|_| panic!("{SERVER_CPUS}: no CPU is \"{cpu}\""));
        set.set(cpu)
            .unwrap_or_else(|_| panic!("{SERVER_CPUS}: no CPU is {cpu}"));
    }
    let pinned = sched_setaffinity(Pid::from_raw(0), &set);
    pinned.unwrap_or_else(|error| panic!("{SERVER_CPUS}={cpus}: {error}"));
}
