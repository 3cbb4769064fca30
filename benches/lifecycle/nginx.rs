//! nginx, watched from outside: it tells nobody what it does.

use std::collections::BTreeSet;
use std::fs;
use std::net::{SocketAddr, TcpStream};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::chance::Chance;
use crate::contender::Contender;
use crate::load::Load;
use crate::process::{
    Processes, Trouble, free_address, freeze, is_alive, started_by, until, which,
};

pub(crate) struct Nginx {
    processes: Processes,
    master: Pid,
    address: SocketAddr,
    workers: usize,
}

impl Nginx {
    pub(crate) fn start(workers: usize) -> Result<Self, Trouble> {
        let not_found = || Trouble::NotSupported("nginx not found".into());
        let program = which("nginx").ok_or_else(not_found)?;
        let dir = tempfile::tempdir()?;
        let address = free_address()?;
        let configuration = dir.path().join("nginx.conf");
        let home = dir.path().display().to_string();
        fs::write(&configuration, configured(&home, address, workers))?;
        let configuration = configuration.display().to_string();
        let log = format!("{home}/error.log");
        let arguments = ["-c", &configuration, "-p", &home, "-e", &log];
        let (processes, _) = Processes::start(dir, &program, &arguments, &[])?;
        let mut nginx = Self {
            master: processes.root(),
            processes,
            address,
            workers,
        };
        // It runs as a daemon, because otherwise it ignores USR2.
        until("nginx is a daemon", || {
            nginx.master = nginx.pid_file().unwrap_or(nginx.master);
            nginx.pid_file().is_some()
        })?;
        nginx.until_served()?;
        Ok(nginx)
    }

    fn until_served(&self) -> Result<(), Trouble> {
        until("nginx serves", || {
            started_by(self.master).len() == self.workers
                && TcpStream::connect(self.address).is_ok()
        })
    }

    fn pid_file(&self) -> Option<Pid> {
        let pid = fs::read_to_string(self.processes.dir().join("nginx.pid")).ok()?;
        pid.trim().parse().ok().map(Pid::from_raw)
    }
}

impl Contender for Nginx {
    fn address(&self) -> SocketAddr {
        self.address
    }

    fn reload(&mut self) -> Result<(), Trouble> {
        let old = started_by(self.master);
        kill(self.master, Signal::SIGHUP)?;
        until("all workers are new", || {
            let now = started_by(self.master);
            now.len() == self.workers && now.is_disjoint(&old)
        })
    }

    fn kill(&mut self, load: &Load, chance: &mut Chance) -> Result<(), Trouble> {
        let workers: Vec<_> = started_by(self.master).into_iter().collect();
        let victim = workers[chance.below(workers.len())];
        freeze(victim)?;
        load.excuse(victim)?;
        kill(victim, Signal::SIGKILL)?;
        until("a worker takes the killed one's place", || {
            let now = started_by(self.master);
            now.len() == self.workers && !now.contains(&victim)
        })
    }

    /// The three steps of its manual: USR2, wait for the new master, QUIT to the old.
    fn upgrade(&mut self) -> Result<(), Trouble> {
        let old = self.master;
        kill(old, Signal::SIGUSR2)?;
        let mut new = old;
        until("a new master and its workers", || {
            new = self.pid_file().unwrap_or(old);
            new != old && started_by(new).len() == self.workers
        })?;
        kill(old, Signal::SIGQUIT)?;
        self.master = new;
        until("the old master and its workers leave", || {
            let left: BTreeSet<_> = started_by(old);
            !is_alive(old) && left.is_empty()
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

fn configured(home: &str, address: SocketAddr, workers: usize) -> String {
    // A body is never read for `return`, so the token comes back from a header.
    format!(
        "worker_processes {workers}; pid {home}/nginx.pid; error_log {home}/error.log;
events {{ worker_connections 1024; }}
http {{
  access_log off;
  keepalive_requests 1000000;
  client_body_temp_path {home}/body; proxy_temp_path {home}/proxy;
  fastcgi_temp_path {home}/fastcgi; uwsgi_temp_path {home}/uwsgi; scgi_temp_path {home}/scgi;
  server {{
    listen {address} reuseport;
    location / {{ default_type text/plain; return 200 $http_x_token; }}
  }}
}}
"
    )
}
