//! fasthttp/prefork, built from the Go program beside this file if there is a Go to build it.

use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};

use nix::poll::{PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::chance::Chance;
use crate::connections;
use crate::contender::Contender;
use crate::load::Load;
use crate::process::{Processes, Trouble, free_address, freeze, started_by, until};
use crate::support::toolchain;

/// With one listener for all, nothing visible from outside tells that a new process accepts. A Go
/// program of this size takes 10 ms to get there.
const SETTLE_MS: u8 = 100;

/// Who holds the listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sharing {
    OneListener,
    ReusePort,
}

pub(crate) struct Fasthttp {
    processes: Processes,
    sharing: Sharing,
    address: SocketAddr,
    workers: usize,
}

impl Fasthttp {
    pub(crate) fn start(sharing: Sharing, workers: usize) -> Result<Self, Trouble> {
        let program = build()?;
        let address = free_address()?;
        let listener = match sharing {
            Sharing::OneListener => "shared",
            Sharing::ReusePort => "reuseport",
        };
        let arguments = [&address.to_string(), listener];
        // It starts as many as Go may use CPUs.
        let variables = [("GOMAXPROCS", &*workers.to_string())];
        let dir = tempfile::tempdir()?;
        let (processes, _) = Processes::start(dir, &program, &arguments, &variables)?;
        let server = Self {
            processes,
            sharing,
            address,
            workers,
        };
        until("fasthttp serves", || TcpStream::connect(address).is_ok())?;
        server.until_complete_without(None)?;
        Ok(server)
    }

    fn children(&self) -> Vec<Pid> {
        started_by(self.processes.root()).into_iter().collect()
    }

    fn until_complete_without(&self, gone: Option<Pid>) -> Result<(), Trouble> {
        until("fasthttp has all its processes", || {
            let now = self.children();
            now.len() == self.workers && gone.is_none_or(|gone| !now.contains(&gone))
        })?;
        match self.sharing {
            Sharing::ReusePort => until("each of them listens", || {
                let listeners = connections::listeners(self.address.port());
                listeners.is_ok_and(|count| count == self.workers)
            }),
            Sharing::OneListener => Ok(poll(&mut [], PollTimeout::from(SETTLE_MS)).map(drop)?),
        }
    }
}

impl Contender for Fasthttp {
    fn address(&self) -> SocketAddr {
        self.address
    }

    /// It knows no reload. What comes closest is to have each process replaced in turn.
    fn reload(&mut self) -> Result<(), Trouble> {
        for child in self.children() {
            kill(child, Signal::SIGTERM)?;
            self.until_complete_without(Some(child))?;
        }
        Ok(())
    }

    fn kill(&mut self, load: &Load, chance: &mut Chance) -> Result<(), Trouble> {
        let children = self.children();
        let victim = children[chance.below(children.len())];
        freeze(victim)?;
        load.excuse(victim)?;
        kill(victim, Signal::SIGKILL)?;
        self.until_complete_without(Some(victim))
    }

    fn upgrade(&mut self) -> Result<(), Trouble> {
        Err(Trouble::NotSupported("it has none".into()))
    }

    fn resize(&mut self, _: &mut Chance) -> Result<(), Trouble> {
        Err(Trouble::NotSupported("it has none".into()))
    }

    fn log(&self) -> String {
        self.processes.log()
    }
}

fn build() -> Result<PathBuf, Trouble> {
    let sources = [
        ("main.go", include_str!("fasthttp.go.txt")),
        ("go.mod", include_str!("go.mod.txt")),
    ];
    let sources = sources.map(|(name, text)| (name.to_owned(), text.to_owned()));
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("lifecycle-fasthttp");
    toolchain::go_program(&dir, &sources)
}
