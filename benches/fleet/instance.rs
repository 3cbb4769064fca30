//! One instance of the binary, on its own machine.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::network::{BALANCER, CLIENTS, Namespace, address_of};
use crate::process::{CEILING, Processes, Trouble, binary, freeze, is_alive, until};
use crate::support::notices::Notices;

pub(crate) const PORT: u16 = 8080;

/// The admin address.
const ADMIN_PORT: u16 = 9180;

/// How the balancer asks an instance about its health, and how operators command the instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Probe {
    /// `/readyz` of an admin address with a port, which takes no commands: signals do.
    Readyz,
    /// `--health-path`. The admin address is a Unix socket: verbs command.
    HealthPath,
}

#[derive(Clone, Copy)]
pub(crate) struct Manner {
    pub(crate) probe: Probe,
    /// Whether connections begin with a PROXY header.
    pub(crate) names_clients: bool,
    pub(crate) workers: usize,
    pub(crate) pre_stop: Duration,
}

pub(crate) struct Instance {
    number: usize,
    manner: Manner,
    processes: Processes,
    notices: Notices,
}

impl Instance {
    /// Starts it, and returns when it serves.
    pub(crate) fn start(
        number: usize,
        machine: &Namespace,
        manner: Manner,
    ) -> Result<Self, Trouble> {
        let dir = tempfile::tempdir()?;
        let program = dir.path().join("prefork-server");
        copy(&binary(), &program)?;
        let mut command = machine.command(&program.display().to_string());
        command
            .args(["--listen", &format!("0.0.0.0:{PORT}"), "--user", "root"])
            .args(["--echo", "--delay", "20ms", "--announce-fd", "1"])
            .args(["--workers", &manner.workers.to_string()])
            .args([
                "--pre-stop-delay",
                &format!("{}ms", manner.pre_stop.as_millis()),
            ])
            .arg("--access-log")
            .arg(access_log(dir.path()));
        match manner.probe {
            Probe::Readyz => command.args(["--admin", &format!("0.0.0.0:{ADMIN_PORT}")]),
            Probe::HealthPath => command
                .args(["--health-path", "/healthz", "--admin"])
                .arg(format!("unix:{}", admin_socket(dir.path()).display())),
        };
        if manner.names_clients {
            command.args(["--proxy-protocol", &BALANCER.to_string()]);
        }
        let (processes, said) = Processes::start(dir, &command)?;
        let instance = Self {
            number,
            manner,
            notices: Notices::of(said),
            processes,
        };
        instance.notice("serving")?;
        Ok(instance)
    }

    fn notice(&self, name: &str) -> Result<(), Trouble> {
        let notice = self.notices.named(name, Instant::now() + CEILING);
        notice.map(drop).map_err(|trouble| {
            Trouble::Stuck(format!("{name}: {trouble}\n{}", self.processes.log()))
        })
    }

    pub(crate) fn signal(&self, signal: Signal) -> Result<(), Trouble> {
        Ok(kill(self.processes.root(), signal)?)
    }

    /// Waits for its end. Whether the clients that it has served were named rightly.
    pub(crate) fn ended(self) -> Result<Named, Trouble> {
        let root = self.processes.root();
        until("an instance ends", || !is_alive(root))?;
        self.named()
    }

    /// The same, or an error if all of it is killed because it has not ended in time.
    pub(crate) fn ended_before(self, deadline: Instant) -> Result<Named, Trouble> {
        let root = self.processes.root();
        until("an instance ends or its time is up", || {
            !is_alive(root) || Instant::now() > deadline
        })?;
        match is_alive(root) {
            true => Err(Trouble::Stuck(
                "a pod was killed at the end of its grace period".into(),
            )),
            false => self.named(),
        }
    }

    /// Puts a copy of the binary in its place, and lets the instance become it.
    pub(crate) fn upgrade(&self) -> Result<(), Trouble> {
        let program = self.processes.dir().join("prefork-server");
        let new = program.with_extension("new");
        copy(&binary(), &new)?;
        fs::rename(new, program)?;
        match self.manner.probe {
            Probe::Readyz => {
                self.signal(Signal::SIGUSR2)?;
                self.notice("upgrade_finished")?;
                self.notice("reload_finished")
            }
            Probe::HealthPath => self.verb(["upgrade", "--wait=20s"]),
        }
    }

    fn verb<const N: usize>(&self, verb: [&str; N]) -> Result<(), Trouble> {
        let socket = admin_socket(self.processes.dir());
        let mut command = Command::new(binary());
        command.args(verb).arg("--admin");
        command.arg(format!("unix:{}", socket.display()));
        let output = command.stdin(Stdio::null()).output()?;
        match output.status.success() {
            true => Ok(()),
            false => Err(Trouble::Stuck(format!(
                "{verb:?}: {}{}",
                output.status,
                String::from_utf8_lossy(&output.stderr)
            ))),
        }
    }

    /// Stops all of its processes (SIGSTOP). The master comes first, so that it starts no others.
    pub(crate) fn freeze(&self) -> Result<Vec<Pid>, Trouble> {
        let processes = self.processes.tree().pids();
        processes.iter().try_for_each(|&process| freeze(process))?;
        Ok(processes)
    }

    /// Lets them go on.
    pub(crate) fn thaw(processes: &[Pid]) -> Result<(), Trouble> {
        let thaw = |&process| Ok(kill(process, Signal::SIGCONT)?);
        processes.iter().try_for_each(thaw)
    }

    /// Kills all of its processes.
    pub(crate) fn kill(self) -> Result<Named, Trouble> {
        for process in self.freeze()? {
            kill(process, Signal::SIGKILL)?;
        }
        self.ended()
    }

    /// What the kubelet's readiness probe asks.
    pub(crate) fn is_ready(&self) -> bool {
        let address = SocketAddr::from((address_of(self.number), ADMIN_PORT));
        let ask = || -> std::io::Result<String> {
            let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(1))?;
            stream.set_read_timeout(Some(Duration::from_secs(1)))?;
            let request = "GET /readyz HTTP/1.1\r\nHost: probe\r\nConnection: close\r\n\r\n";
            stream.write_all(request.as_bytes())?;
            let mut response = String::new();
            stream.read_to_string(&mut response)?;
            Ok(response)
        };
        ask().is_ok_and(|response| response.starts_with("HTTP/1.1 200 "))
    }

    /// How its access log names the clients.
    pub(crate) fn named(&self) -> Result<Named, Trouble> {
        let mut named = Named::default();
        if !self.manner.names_clients {
            return Ok(named);
        }
        let log = fs::read_to_string(access_log(self.processes.dir()))?;
        let client = format!("{CLIENTS} ");
        for line in log.lines() {
            match line.starts_with(&client) {
                true => named.rightly += 1,
                false => named.wrongly.push(line.to_owned()),
            }
        }
        Ok(named)
    }

    pub(crate) fn log(&self) -> String {
        self.processes.log()
    }
}

/// Lines of access logs by whether they have the client's address, and not the balancer's.
#[derive(Debug, Default)]
pub(crate) struct Named {
    pub(crate) rightly: usize,
    pub(crate) wrongly: Vec<String>,
}

impl Named {
    pub(crate) fn add(&mut self, other: Self) {
        self.rightly += other.rightly;
        self.wrongly.extend(other.wrongly);
    }
}

/// By cp(1): a process that this one starts meanwhile would inherit the file that is open for
/// writing, and then nobody could execute it.
fn copy(from: &Path, to: &Path) -> Result<(), Trouble> {
    let status = Command::new("cp").arg(from).arg(to).status()?;
    match status.success() {
        true => Ok(()),
        false => Err(Trouble::Stuck(format!("cp: {status}"))),
    }
}

fn access_log(dir: &Path) -> PathBuf {
    dir.join("access.log")
}

fn admin_socket(dir: &Path) -> PathBuf {
    dir.join("admin.sock")
}
