//! nginx with `examples/deploy/nginx.conf`. It asks nothing about health: it is told by its file,
//! and a reload.

use std::fs;
use std::net::{SocketAddr, TcpStream};

use nix::sys::signal::{Signal, kill};

use crate::balancer::{Balancer, Route, Routes, instance_at, number_in};
use crate::instance::PORT;
use crate::network::{BALANCER, Namespace, address_of};
use crate::process::{Processes, Trouble, started_by, until};
use crate::support::toolchain::found;

const FILE: &str = include_str!("../../examples/deploy/nginx.conf");

/// What the file says of each server.
const WORDS: &str = " max_fails=1 fail_timeout=10s;";

pub(crate) struct Nginx {
    processes: Processes,
    file: String,
}

impl Nginx {
    pub(crate) fn start(machine: &Namespace) -> Result<Self, Trouble> {
        let program = found("nginx")?.display().to_string();
        let dir = tempfile::tempdir()?;
        let home = dir.path().display().to_string();
        let file = FILE
            .replace("/run/nginx.pid", &format!("{home}/nginx.pid"))
            .replace("/var/log/nginx/", &format!("{home}/"));
        let path = dir.path().join("nginx.conf");
        fs::write(&path, &file)?;
        let mut command = machine.command(&program);
        command.args(["-g", "daemon off;", "-e"]);
        command.arg(dir.path().join("error.log"));
        command.arg("-c").arg(path);
        let (processes, _) = Processes::start(dir, &command)?;
        let nginx = Self { processes, file };
        let address = SocketAddr::from((BALANCER, 80));
        until("nginx accepts", || TcpStream::connect(address).is_ok())
            .map_err(|trouble| Trouble::Stuck(format!("{trouble}: {}", nginx.log())))?;
        Ok(nginx)
    }

    /// Changes its file, reloads it, and waits until its old workers are gone.
    fn change(&mut self, old: &str, new: &str) -> Result<(), Trouble> {
        assert!(self.file.contains(old), "the file has {old}");
        self.file = self.file.replace(old, new);
        fs::write(self.processes.dir().join("nginx.conf"), &self.file)?;
        let master = self.processes.root();
        let old = started_by(master);
        kill(master, Signal::SIGHUP)?;
        until("nginx has new workers only", || {
            let now = started_by(master);
            !now.is_empty() && now.is_disjoint(&old)
        })
    }
}

fn server(instance: usize) -> String {
    format!("server {}:{PORT}", address_of(instance))
}

impl Balancer for Nginx {
    fn take_out(&mut self, instance: usize) -> Result<(), Trouble> {
        let server = server(instance);
        self.change(&format!("{server}{WORDS}"), &format!("{server} down;"))
    }

    fn put_in(&mut self, instance: usize) -> Result<(), Trouble> {
        let server = server(instance);
        let down = format!("{server} down;");
        match self.file.contains(&down) {
            true => self.change(&down, &format!("{server}{WORDS}")),
            // It tries the server again by itself.
            false => Ok(()),
        }
    }

    fn add(&mut self, instance: usize) -> Result<(), Trouble> {
        let new = format!("{}{WORDS}\n        keepalive 64;", server(instance));
        self.change("keepalive 64;", &new)
    }

    fn remove(&mut self, instance: usize) -> Result<(), Trouble> {
        self.change(&format!("{}{WORDS}\n", server(instance)), "\n")
    }

    fn routes(&self) -> Result<Routes, Trouble> {
        let log = fs::read_to_string(self.processes.dir().join("access.log"))?;
        Ok(log.lines().filter_map(route).collect())
    }

    fn log(&self) -> String {
        let log = fs::read_to_string(self.processes.dir().join("error.log"));
        log.unwrap_or_default() + &self.processes.log()
    }
}

/// What a line of its access log says. With several tries, the addresses and the statuses of all
/// are there, separated by commas.
fn route(line: &str) -> Option<(usize, Route)> {
    let number = number_in(line)?;
    let quoted: Vec<_> = line.split('"').collect();
    let &[_, _, status, addresses, _, statuses, ..] = quoted.as_slice() else {
        return None;
    };
    let route = Route {
        instances: addresses.split(", ").filter_map(instance_at).collect(),
        is_retried: addresses.contains(", "),
        end: format!("{} ({statuses})", status.trim()),
    };
    Some((number, route))
}
