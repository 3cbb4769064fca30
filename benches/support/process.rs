//! A server's processes: started in a group of their own, and gone when the bench is.
//!
//! Between the bench and the server stands a keeper: this executable in another role, in another
//! process group. Its standard input is a pipe from the bench. When that ends, because the
//! server is dropped, or because the bench panicked or was killed, the keeper kills the group and
//! reaps it to the last, orphans included.

use std::collections::BTreeSet;
use std::env;
use std::error::Error;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio, exit};
use std::time::{Duration, Instant};

use nix::poll::{PollTimeout, poll};
use nix::sys::prctl::set_child_subreaper;
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::wait;
use nix::unistd::{Pid, dup2_stdout};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tempfile::TempDir;

use super::tree::Tree;

/// Tells this executable to be a keeper.
const KEEPER: &str = "BENCH_KEEPER";

/// Tells this executable its role in a bench, as JSON.
const ROLE: &str = "BENCH_ROLE";

/// No event takes this long.
pub(crate) const CEILING: Duration = Duration::from_secs(60);

/// How much of a log is shown.
pub(crate) const LOG_LINES: usize = 10;

/// How often a fact that no server announces is looked up.
const TICK_MS: u8 = 1;

/// Why an event did not come to its end.
#[derive(Clone, Debug)]
pub(crate) enum Trouble {
    /// The server does not know such a thing.
    NotSupported(String),
    /// It knows, and something went wrong.
    Stuck(String),
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotSupported(why) => write!(f, "not supported: {why}"),
            Self::Stuck(why) => write!(f, "stuck: {why}"),
        }
    }
}

impl Error for Trouble {}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Self::Stuck(error.to_string())
    }
}

impl From<nix::errno::Errno> for Trouble {
    fn from(error: nix::errno::Errno) -> Self {
        Self::Stuck(error.desc().to_owned())
    }
}

/// This executable once more, in a role of the bench.
pub(crate) fn this_as(role: &impl Serialize) -> Result<Command, Trouble> {
    let role = serde_json::to_string(role).expect("it is plain data");
    let mut command = Command::new(env::current_exe()?);
    command.env(ROLE, role);
    Ok(command)
}

/// The role that this process was started in. Becomes a keeper, and does not return, if it was
/// started as one.
pub(crate) fn role<R: DeserializeOwned>() -> Option<R> {
    if env::var_os(KEEPER).is_some() {
        keep();
    }
    let role = env::var(ROLE).ok()?;
    Some(serde_json::from_str(&role).expect("`this_as` has written it"))
}

fn keep() -> ! {
    set_child_subreaper(true).expect("prctl(2) takes orphans in");
    let mut command = env::args_os().skip(1);
    let program = command.next().expect("`Processes::start` names a program");
    // From now on the bench counts how long the server takes.
    io::stdout().write_all(b"\n").expect("the bench reads it");
    io::stdout().flush().expect("the bench reads it");
    let server = Command::new(program)
        .args(command)
        .env_remove(KEEPER)
        .stdin(Stdio::null())
        .process_group(0)
        .spawn()
        .expect("the server can be started");
    // So that the end of the announcements means that the server is gone.
    let nowhere = File::options().write(true).open("/dev/null");
    dup2_stdout(nowhere.expect("/dev/null")).expect("dup2(2)");
    // Nothing is ever written there: this returns when the bench lets go or is gone.
    let _ = io::stdin().read(&mut [0]);
    // Not reaped yet, so the group is still the server's; it may have ended by itself.
    let _ = killpg(pid_of(&server), Signal::SIGKILL);
    // A process that has left the group, as a daemon does, becomes our child when its parent ends.
    loop {
        for process in started_by(Pid::this()) {
            let _ = kill(process, Signal::SIGKILL);
        }
        if wait().is_err() {
            break;
        }
    }
    exit(0);
}

/// The processes of one server. Dropped, all of them are killed.
pub(crate) struct Processes {
    keeper: Child,
    dir: TempDir,
    root: Pid,
    /// When the keeper was about to start the server.
    pub(crate) started: Instant,
}

impl Processes {
    /// Starts `server`, whose files are in `dir`. Gives what it says on its standard output too.
    pub(crate) fn start(dir: TempDir, server: &Command) -> Result<(Self, ChildStdout), Trouble> {
        let log = File::create(dir.path().join("log"))?;
        let mut command = Command::new(env::current_exe()?);
        for (name, _) in env::vars_os() {
            // They are options of the binary, and none of them is meant for it.
            if name.to_string_lossy().starts_with("PREFORK_") || name == "PORT" {
                command.env_remove(name);
            }
        }
        let variables = server.get_envs();
        let mut keeper = command
            .arg(server.get_program())
            .args(server.get_args())
            .env(KEEPER, "yes")
            .envs(variables.filter_map(|(name, value)| Some((name, value?))))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .process_group(0)
            .spawn()?;
        let mut said = keeper.stdout.take().expect("it is piped");
        said.read_exact(&mut [0])?;
        let keeper_pid = pid_of(&keeper);
        let mut processes = Self {
            root: keeper_pid,
            keeper,
            dir,
            started: Instant::now(),
        };
        until("the keeper starts the server", || {
            let server = started_by(keeper_pid).pop_first();
            processes.root = server.unwrap_or(keeper_pid);
            server.is_some() || !is_alive(keeper_pid)
        })?;
        if processes.root == keeper_pid {
            return Err(Trouble::Stuck(processes.log()));
        }
        Ok((processes, said))
    }

    pub(crate) fn tree(&self) -> Tree {
        Tree { root: self.root }
    }

    /// The server's first process.
    pub(crate) fn root(&self) -> Pid {
        self.root
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The end of what the server said on its standard error.
    pub(crate) fn log(&self) -> String {
        let log = fs::read_to_string(self.dir().join("log")).unwrap_or_default();
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        // It ends as soon as the group is reaped. Its status tells nothing.
        let _ = self.keeper.wait();
    }
}

/// Another build of our binary, if `PREFORK_BENCH_SERVER` names one.
pub(crate) fn other_binary() -> Option<PathBuf> {
    env::var_os("PREFORK_BENCH_SERVER").map(PathBuf::from)
}

/// Our binary: the one that cargo has built, or another.
pub(crate) fn binary() -> PathBuf {
    other_binary().unwrap_or_else(|| env!("CARGO_BIN_EXE_prefork-server").into())
}

/// A command for our binary, without its process for operators: no other server has one.
pub(crate) fn ours() -> Command {
    let mut command = Command::new(binary());
    command.env("PREFORK_ADMIN", "off");
    command
}

/// An address that was free a moment ago, for a server that cannot tell which one it took. Tests
/// that run beside a bench take no ports there.
pub(crate) fn free_address() -> Result<SocketAddr, Trouble> {
    let listener = TcpListener::bind((Ipv4Addr::new(127, 0, 0, 29), 0))?;
    Ok(listener.local_addr()?)
}

/// What a process has started and not yet reaped, but for those that have ended.
pub(crate) fn started_by(process: Pid) -> BTreeSet<Pid> {
    let mut found = BTreeSet::new();
    let Ok(threads) = fs::read_dir(format!("/proc/{process}/task")) else {
        return found;
    };
    for thread in threads.flatten() {
        let list = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
        let pids = list.split_whitespace().filter_map(|pid| pid.parse().ok());
        found.extend(pids.map(Pid::from_raw).filter(|&pid| is_alive(pid)));
    }
    found
}

pub(crate) fn is_alive(process: Pid) -> bool {
    state(process).is_some_and(|state| state != 'Z' && state != 'X')
}

/// As `ps` shows it; `None` if there is no such process.
fn state(process: Pid) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(") ")?;
    fields.chars().next()
}

/// Stops a process, so that it does nothing more until it is killed.
pub(crate) fn freeze(process: Pid) -> Result<(), Trouble> {
    kill(process, Signal::SIGSTOP)?;
    until("a worker stops", || {
        state(process).is_none_or(|state| state == 'T')
    })
}

/// Waits for a fact that no server announces.
pub(crate) fn until(what: &str, mut fact: impl FnMut() -> bool) -> Result<(), Trouble> {
    let deadline = Instant::now() + CEILING;
    while !fact() {
        if Instant::now() > deadline {
            return Err(Trouble::Stuck(format!("not in {CEILING:?}: {what}")));
        }
        poll(&mut [], PollTimeout::from(TICK_MS))?;
    }
    Ok(())
}

fn pid_of(child: &Child) -> Pid {
    Pid::from_raw(i32::try_from(child.id()).expect("a pid"))
}
