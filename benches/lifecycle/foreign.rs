//! nginx, and fasthttp/prefork if there is a Go to build it. Both are watched from outside, as they
//! announce nothing.

use std::collections::BTreeSet;
use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;

use nix::poll::{PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::connections;
use crate::contender::{Contender, Contents, Name, Speaks};
use crate::process::{Processes, Trouble, free_address, is_alive, started_by, until};
use crate::support::toolchain;
use crate::support::tree::Tree;

/// With one listener for all, nothing visible from outside tells that a new process accepts. A Go
/// program of this size takes 10 ms to get there.
const SETTLE_MS: u8 = 100;

pub(crate) struct Foreign {
    name: Name,
    processes: Processes,
    master: Pid,
    address: SocketAddr,
    workers: usize,
}

impl Foreign {
    pub(crate) fn start(
        name: Name,
        contents: Contents,
        speaks: Speaks,
        workers: usize,
    ) -> Result<Self, Trouble> {
        let dir = tempfile::tempdir()?;
        let address = free_address()?;
        let command = match name {
            Name::Nginx => nginx(dir.path(), address, contents, speaks, workers)?,
            _ if !matches!(speaks, Speaks::Http1) => {
                return Err(Trouble::NotSupported("it speaks HTTP/1 here".into()));
            }
            Name::FasthttpReuseport => fasthttp(address, "reuseport", workers)?,
            _ => fasthttp(address, "shared", workers)?,
        };
        let (processes, _) = Processes::start(dir, &command)?;
        let mut server = Self {
            name,
            master: processes.tree().root,
            processes,
            address,
            workers,
        };
        if name == Name::Nginx {
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
        match self.name {
            Name::Nginx => Ok(()),
            Name::FasthttpReuseport => until("each of them listens", || {
                let listeners = connections::listeners(self.address.port());
                listeners.is_ok_and(|count| count == self.workers)
            }),
            _ => Ok(poll(&mut [], PollTimeout::from(SETTLE_MS)).map(drop)?),
        }
    }

    fn pid_file(&self) -> Option<Pid> {
        let pid = fs::read_to_string(self.processes.dir().join("nginx.pid")).ok()?;
        pid.trim().parse().ok().map(Pid::from_raw)
    }
}

impl Contender for Foreign {
    fn processes(&self) -> &Processes {
        &self.processes
    }

    /// A daemon has left the process that was started.
    fn tree(&self) -> Tree {
        Tree { root: self.master }
    }

    fn address(&self) -> SocketAddr {
        self.address
    }

    /// fasthttp knows no reload. What comes closest is to have each process replaced in turn.
    fn reload(&mut self) -> Result<(), Trouble> {
        let old = started_by(self.master);
        if self.name == Name::Nginx {
            kill(self.master, Signal::SIGHUP)?;
            return self.until_complete(|now| now.is_disjoint(&old));
        }
        old.into_iter().try_for_each(|child| {
            kill(child, Signal::SIGTERM)?;
            self.until_complete(|now| !now.contains(&child))
        })
    }

    fn workers(&mut self) -> Result<Vec<Pid>, Trouble> {
        Ok(started_by(self.master).into_iter().collect())
    }

    fn kill(&mut self, worker: Pid) -> Result<(), Trouble> {
        Ok(kill(worker, Signal::SIGKILL)?)
    }

    fn replaced(&mut self, worker: Pid) -> Result<(), Trouble> {
        self.until_complete(|now| !now.contains(&worker))
    }

    /// The three steps of nginx's manual: USR2, wait for the new master, QUIT to the old.
    fn upgrade(&mut self) -> Result<(), Trouble> {
        if self.name != Name::Nginx {
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

    fn resize(&mut self, _grows: bool) -> Result<(), Trouble> {
        Err(Trouble::NotSupported("no signal for it".into()))
    }

    fn log(&self) -> String {
        let log = fs::read_to_string(self.processes.dir().join("error.log"));
        log.unwrap_or_default() + &self.processes.log()
    }
}

fn fasthttp(address: SocketAddr, how: &str, workers: usize) -> Result<Command, Trouble> {
    let sources = [
        ("main.go", include_str!("fasthttp.go.txt")),
        ("go.mod", include_str!("go.mod.txt")),
    ];
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("lifecycle-fasthttp");
    let mut command = Command::new(toolchain::go_program(&dir, &sources)?);
    command.args([&address.to_string(), how]);
    // It starts as many as Go may use CPUs.
    command.env("GOMAXPROCS", workers.to_string());
    Ok(command)
}

fn nginx(
    home: &Path,
    address: SocketAddr,
    contents: Contents,
    speaks: Speaks,
    workers: usize,
) -> Result<Command, Trouble> {
    let http = "keepalive_requests 1000000; keepalive_timeout 1h; sendfile on;";
    let listens = match speaks {
        Speaks::Http1 => String::new(),
        Speaks::Http2 => "http2".to_owned(),
        Speaks::Tls(pem) => toolchain::nginx_tls(pem),
    };
    let listen = format!("listen {address} reuseport {listens};");
    let main = format!("worker_processes {workers};");
    let location = match contents {
        // A body is never read for `return`, so the token comes back from a header.
        Contents::Echo => toolchain::nginx_text("$http_x_token"),
        Contents::Files(dir) => format!("root {};", dir.display()),
    };
    toolchain::nginx(home, [&main, http, &listen, &location])
}
