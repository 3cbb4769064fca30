//! nginx, and fasthttp/prefork if there is a Go to build it. Both are watched from outside, as they
//! announce nothing.

use std::collections::BTreeSet;
use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};

use nix::poll::{PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::connections;
use crate::contender::Contender;
use crate::load::Load;
use crate::process::{
    Processes, Trouble, free_address, freeze, is_alive, started_by, until, which,
};
use crate::support::chance::Chance;
use crate::support::toolchain;

/// With one listener for all, nothing visible from outside tells that a new process accepts. A Go
/// program of this size takes 10 ms to get there.
const SETTLE_MS: u8 = 100;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// With `reuseport`.
    Nginx,
    /// One listener for all children.
    FasthttpShared,
    /// A listener for each.
    FasthttpReuseport,
}

pub(crate) struct Foreign {
    kind: Kind,
    processes: Processes,
    master: Pid,
    address: SocketAddr,
    workers: usize,
}

impl Foreign {
    pub(crate) fn start(kind: Kind, workers: usize) -> Result<Self, Trouble> {
        let dir = tempfile::tempdir()?;
        let address = free_address()?;
        let (program, arguments) = match kind {
            Kind::Nginx => nginx(dir.path(), address, workers)?,
            Kind::FasthttpShared => (fasthttp()?, vec![address.to_string(), "shared".into()]),
            Kind::FasthttpReuseport => (fasthttp()?, vec![address.to_string(), "reuseport".into()]),
        };
        let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
        // fasthttp starts as many as Go may use CPUs.
        let variables = [("GOMAXPROCS", &*workers.to_string())];
        let (processes, _) = Processes::start(dir, &program, &arguments, &variables)?;
        let mut server = Self {
            kind,
            master: processes.root(),
            processes,
            address,
            workers,
        };
        if kind == Kind::Nginx {
            // It runs as a daemon, because otherwise it ignores USR2.
            until("nginx is a daemon", || {
                server.master = server.pid_file().unwrap_or(server.master);
                server.pid_file().is_some()
            })?;
        }
        until("it accepts", || TcpStream::connect(address).is_ok())?;
        server.until_complete(|_| true)?;
        Ok(server)
    }

    /// Waits until it has all its workers, and they are as they should be.
    fn until_complete(&self, fits: impl Fn(&BTreeSet<Pid>) -> bool) -> Result<(), Trouble> {
        until("it has all its workers", || {
            let now = started_by(self.master);
            now.len() == self.workers && fits(&now)
        })?;
        match self.kind {
            Kind::Nginx => Ok(()),
            Kind::FasthttpShared => Ok(poll(&mut [], PollTimeout::from(SETTLE_MS)).map(drop)?),
            Kind::FasthttpReuseport => until("each of them listens", || {
                let listeners = connections::listeners(self.address.port());
                listeners.is_ok_and(|count| count == self.workers)
            }),
        }
    }

    fn pid_file(&self) -> Option<Pid> {
        let pid = fs::read_to_string(self.processes.dir().join("nginx.pid")).ok()?;
        pid.trim().parse().ok().map(Pid::from_raw)
    }
}

impl Contender for Foreign {
    fn address(&self) -> SocketAddr {
        self.address
    }

    /// fasthttp knows no reload. What comes closest is to have each process replaced in turn.
    fn reload(&mut self) -> Result<(), Trouble> {
        let old = started_by(self.master);
        if self.kind == Kind::Nginx {
            kill(self.master, Signal::SIGHUP)?;
            return self.until_complete(|now| now.is_disjoint(&old));
        }
        old.into_iter().try_for_each(|child| {
            kill(child, Signal::SIGTERM)?;
            self.until_complete(|now| !now.contains(&child))
        })
    }

    fn kill(&mut self, load: &Load, chance: &mut Chance) -> Result<(), Trouble> {
        let workers: Vec<_> = started_by(self.master).into_iter().collect();
        let victim = workers[chance.below(workers.len())];
        freeze(victim)?;
        load.excuse(victim)?;
        kill(victim, Signal::SIGKILL)?;
        self.until_complete(|now| !now.contains(&victim))
    }

    /// The three steps of nginx's manual: USR2, wait for the new master, QUIT to the old.
    fn upgrade(&mut self) -> Result<(), Trouble> {
        if self.kind != Kind::Nginx {
            return Err(Trouble::NotSupported("it has none".into()));
        }
        let old = self.master;
        kill(old, Signal::SIGUSR2)?;
        until("a new master", || {
            self.master = self.pid_file().unwrap_or(old);
            self.master != old
        })?;
        self.until_complete(|_| true)?;
        kill(old, Signal::SIGQUIT)?;
        until("the old master and its workers leave", || {
            !is_alive(old) && started_by(old).is_empty()
        })
    }

    fn resize(&mut self, _: &mut Chance) -> Result<(), Trouble> {
        Err(Trouble::NotSupported("no signal for it".into()))
    }

    fn log(&self) -> String {
        let log = fs::read_to_string(self.processes.dir().join("error.log"));
        log.unwrap_or_default() + &self.processes.log()
    }
}

fn fasthttp() -> Result<PathBuf, Trouble> {
    let sources = [
        ("main.go", include_str!("fasthttp.go.txt")),
        ("go.mod", include_str!("go.mod.txt")),
    ];
    let sources = sources.map(|(name, text)| (name.to_owned(), text.to_owned()));
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("lifecycle-fasthttp");
    toolchain::go_program(&dir, &sources)
}

fn nginx(
    home: &Path,
    address: SocketAddr,
    workers: usize,
) -> Result<(PathBuf, Vec<String>), Trouble> {
    let not_found = || Trouble::NotSupported("nginx not found".into());
    let program = which("nginx").ok_or_else(not_found)?;
    // A body is never read for `return`, so the token comes back from a header.
    let http = "keepalive_requests 1000000;";
    let listen = format!("listen {address} reuseport;");
    let answer = "$http_x_token";
    let main = format!("worker_processes {workers};");
    let arguments = toolchain::nginx(home, [&main, http, &listen, answer])?;
    Ok((program, arguments))
}
