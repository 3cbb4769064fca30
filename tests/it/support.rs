//! A server under test. Its announce stream is a pipe, from which the test reads its notices. All
//! its processes are killed when it is dropped.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::{Pid, User, geteuid};
use serde_json::Value;
use tempfile::TempDir;

use crate::apps;

/// The limit of each wait. No wait of a passing test reaches it; a test that does fails with the
/// log.
pub(crate) const CEILING: Duration = Duration::from_secs(20);

/// The binary under test.
pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_prefork-server");

/// More workers than any test spawns. A server that spawns more is killed, and its test fails.
const SPAWNED_MAX: usize = 400;

/// A running server and everything it has announced.
pub(crate) struct Server {
    process: Child,
    notices: Receiver<Value>,
    spawned: usize,
    history: Vec<Value>,
    dir: TempDir,
    pub(crate) pid: Pid,
}

/// The exit code, the log and the notices of a server that has ended.
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) log: String,
    pub(crate) notices: Vec<Value>,
    /// The same, and before them those that were waited for or skipped.
    pub(crate) history: Vec<Value>,
}

impl Server {
    /// The binary on a port of the kernel's choice, with two workers unless the arguments say
    /// otherwise.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let mut command = binary();
        if !arguments.contains(&"--listen") {
            command.args(["--listen", "127.0.0.1:0"]);
        }
        if !arguments.contains(&"--workers") {
            command.args(["--workers", "2"]);
        }
        Self::spawn(command.args(["--announce-fd", "1"]).args(arguments))
    }

    /// One of [`apps`], which is this test binary in another role.
    pub(crate) fn start_app(app: &str) -> Self {
        Self::spawn(&mut app_command(app))
    }

    pub(crate) fn spawn(command: &mut Command) -> Self {
        Self::spawn_with_input(command, Stdio::null())
    }

    pub(crate) fn spawn_with_input(command: &mut Command, input: Stdio) -> Self {
        let (dir, log) = room_for_log();
        Self::spawn_in(dir, command.stdin(input).stderr(log))
    }

    /// The server's log goes to `log`. [`log`](Self::log) does not have it then.
    pub(crate) fn spawn_with_log(command: &mut Command, log: impl Into<Stdio>) -> Self {
        let (dir, _) = room_for_log();
        Self::spawn_in(dir, command.stdin(Stdio::null()).stderr(log))
    }

    fn spawn_in(dir: TempDir, command: &mut Command) -> Self {
        let mut process = command
            .stdout(Stdio::piped())
            // So that one call can kill all of them.
            .process_group(0)
            .spawn()
            .expect("the server starts");
        let stdout = process.stdout.take().expect("it is piped");
        let pid = Pid::from_raw(i32::try_from(process.id()).expect("a pid"));
        Self {
            process,
            notices: follow(stdout),
            spawned: 0,
            history: Vec::new(),
            dir,
            pid,
        }
    }

    /// The next notice of this name. Notices before it are skipped.
    pub(crate) fn wait(&mut self, name: &str) -> Value {
        self.wait_for(name, |_| true)
    }

    /// The next notice of this name that `wanted` accepts.
    pub(crate) fn wait_for(&mut self, name: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        self.wait_within(CEILING, name, wanted)
    }

    /// The same with another limit, for what depends on more than this server.
    pub(crate) fn wait_within(
        &mut self,
        limit: Duration,
        name: &str,
        wanted: impl Fn(&Value) -> bool,
    ) -> Value {
        let deadline = Instant::now() + limit;
        loop {
            match self.next(deadline) {
                Ok(notice) if notice["notice"] == name && wanted(&notice) => return notice,
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) => panic!("no `{name}`; {}", self.log()),
                Err(RecvTimeoutError::Disconnected) => {
                    panic!("it ended before `{name}`; {}", self.log())
                }
            }
        }
    }

    /// Waits until the server serves, and returns its first TCP address.
    pub(crate) fn address(&mut self) -> SocketAddr {
        self.addresses()[0].parse().expect("a TCP address")
    }

    /// As [`address`](Self::address). `None` if the server ends before.
    pub(crate) fn address_or_end(&mut self) -> Option<SocketAddr> {
        let deadline = Instant::now() + CEILING;
        loop {
            match self.next(deadline) {
                Ok(notice) if notice["notice"] == "serving" => {
                    return Some(addresses(&notice)[0].parse().expect("a TCP address"));
                }
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) => panic!("it does not serve; {}", self.log()),
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
    }

    /// Waits until the server serves, and returns all its addresses.
    pub(crate) fn addresses(&mut self) -> Vec<String> {
        addresses(&self.wait("serving"))
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(self.pid, signal).expect("it has not been waited for");
    }

    /// Changes the master's limit on descriptors to `SOFT:` or `SOFT:HARD`.
    pub(crate) fn limit_descriptors(&self, limit: &str) {
        let mut command = Command::new("prlimit");
        command.args(["--pid", &self.pid.to_string()]);
        let changed = command.arg(format!("--nofile={limit}")).status();
        assert!(changed.expect("there is prlimit(1)").success());
    }

    /// Has the server reload. Returns the notice of the end.
    pub(crate) fn reload(&mut self) -> Value {
        self.signal(Signal::SIGHUP);
        self.wait("reload_finished")
    }

    /// Has the server become the program that is on disk now, with all its workers.
    pub(crate) fn upgrade(&mut self) {
        self.signal(Signal::SIGUSR2);
        self.wait("upgrade_finished");
        self.wait("reload_finished");
    }

    /// Has the server try an upgrade that it abandons. Returns why it does.
    pub(crate) fn upgrade_in_vain(&mut self) -> String {
        self.signal(Signal::SIGUSR2);
        let abandoned = self.wait("upgrade_abandoned");
        abandoned["why"].as_str().expect("a reason").to_owned()
    }

    /// Has all workers replaced by a reload or an upgrade, and waits until the old ones have
    /// exited: they still accept what was in their queues.
    pub(crate) fn replace_workers(&mut self, how: Signal) {
        let old = self.workers();
        self.signal(how);
        self.wait("reload_finished");
        until(|| !self.workers().iter().any(|worker| old.contains(worker)));
    }

    /// Has the server drain, and waits for its end, which must be without an error.
    pub(crate) fn stop(self) -> Ended {
        self.signal(Signal::SIGTERM);
        self.end_well()
    }

    /// As [`end`](Self::end), and it must be without an error.
    pub(crate) fn end_well(self) -> Ended {
        let ended = self.end();
        assert_eq!(ended.code, Some(0), "{}", ended.log);
        ended
    }

    /// Waits for the end of the master and of each process that has its standard output: all
    /// workers.
    pub(crate) fn end(mut self) -> Ended {
        let deadline = Instant::now() + CEILING;
        let mut notices = Vec::new();
        loop {
            match self.next(deadline) {
                Ok(notice) => notices.push(notice),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => panic!("a process is left; {}", self.log()),
            }
        }
        let status: ExitStatus = self.process.wait().expect("it is ours");
        Ended {
            code: status.code(),
            log: self.log(),
            notices,
            history: std::mem::take(&mut self.history),
        }
    }

    /// The pids of the processes that the master has started and not reaped.
    pub(crate) fn workers(&self) -> Vec<Pid> {
        descendants(self.pid)
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).expect("it is ours")
    }

    fn next(&mut self, deadline: Instant) -> Result<Value, RecvTimeoutError> {
        let left = deadline.saturating_duration_since(Instant::now());
        let notice = self.notices.recv_timeout(left)?;
        self.spawned += usize::from(notice["notice"] == "worker_spawned");
        assert!(
            self.spawned <= SPAWNED_MAX,
            "workers without end; {}",
            self.log()
        );
        self.history.push(notice.clone());
        Ok(notice)
    }
}

fn addresses(serving: &Value) -> Vec<String> {
    let addresses = serving["addresses"].as_array().expect("a list").iter();
    addresses
        .map(|address| address.as_str().expect("text").to_owned())
        .collect()
}

impl Drop for Server {
    fn drop(&mut self) {
        // Fails if no process of the group is left. That is fine.
        let _ = killpg(self.pid, Signal::SIGKILL);
        let _ = self.process.wait();
    }
}

impl Ended {
    /// The number of notices of this name since the last one that a test waited for.
    pub(crate) fn count(&self, name: &str) -> usize {
        self.notices
            .iter()
            .filter(|notice| notice["notice"] == name)
            .count()
    }
}

/// The binary without variables of ours in its environment.
pub(crate) fn binary() -> Command {
    program(BINARY)
}

/// Another program, also without variables of ours.
pub(crate) fn program(path: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(path);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("PREFORK_") || name == "PORT" {
            command.env_remove(name);
        }
    }
    // Most tests need no admin process. Those that do give it an address.
    command.env("PREFORK_ADMIN", "off");
    // Those with a port have a socket too.
    command.env(
        "RUNTIME_DIRECTORY",
        concat!(env!("CARGO_TARGET_TMPDIR"), "/run"),
    );
    command
}

/// This test binary.
pub(crate) fn this() -> PathBuf {
    std::env::current_exe().expect("a path")
}

/// One of [`apps`]: this test binary in another role.
pub(crate) fn app_command(app: &str) -> Command {
    let mut command = Command::new(this());
    command.env(apps::VARIABLE, app);
    command
}

/// The app as an argument of this program, which executes it.
pub(crate) fn app_after<'a>(program: &'a mut Command, app: &str) -> &'a mut Command {
    program.arg(this()).env(apps::VARIABLE, app)
}

/// The words of a command line without quotes.
pub(crate) fn words(line: &str) -> Vec<&str> {
    line.split(' ').collect()
}

/// What a command told that ends by itself. One that does not is killed, and the test fails.
pub(crate) fn output(command: &mut Command) -> Output {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let process = command.process_group(0).spawn().expect("it starts");
    let group = Pid::from_raw(i32::try_from(process.id()).expect("a pid"));
    let (sender, ended) = channel();
    thread::spawn(move || {
        // Fails if the test has failed. Nobody wants it then.
        let _ = sender.send(process.wait_with_output());
    });
    let output = ended.recv_timeout(CEILING).unwrap_or_else(|_| {
        // Fails if it has just ended. The test fails all the same.
        let _ = killpg(group, Signal::SIGKILL);
        panic!("it does not end; {:?}", ended.recv());
    });
    output.expect("it is ours")
}

/// What a command says that ends with code 2, because it refuses its settings.
pub(crate) fn refused(command: &mut Command) -> String {
    let ended = output(command);
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), Some(2), "{command:?}: {said}");
    said
}

/// Whether the workers' user can be another than that of the tests. Prints why not.
pub(crate) fn can_change_user() -> bool {
    let is_root = geteuid().is_root();
    if !is_root {
        println!("not root: the workers' user cannot be another");
    }
    is_root
}

/// The user with few rights that each system has.
pub(crate) fn nobody() -> User {
    let nobody = User::from_name("nobody").expect("passwd(5)");
    nobody.expect("an entry")
}

fn room_for_log() -> (TempDir, File) {
    let dir = tempfile::tempdir().expect("a directory");
    let log = File::create(dir.path().join("log")).expect("a file");
    (dir, log)
}

pub(crate) fn pid_of(notice: &Value) -> Pid {
    Pid::from_raw(i32::try_from(notice["pid"].as_i64().expect("a pid")).expect("a pid"))
}

/// A file of `/proc` for this process; `None` if there is no such process.
pub(crate) fn proc_file(pid: Pid, name: impl AsRef<OsStr>) -> Option<String> {
    fs::read_to_string(format!("/proc/{pid}/{}", name.as_ref().to_string_lossy())).ok()
}

/// A field of `/proc/PID/status` (proc_pid_status(5)).
pub(crate) fn status_field(pid: Pid, name: &str) -> String {
    let status = proc_file(pid, "status").expect("it lives");
    let value = |line: &str| {
        Some(
            line.strip_prefix(name)?
                .strip_prefix(':')?
                .trim()
                .to_owned(),
        )
    };
    status.lines().find_map(value).expect("proc(5) has it")
}

/// A field of that file which is a size.
pub(crate) fn status_kib(pid: Pid, name: &str) -> usize {
    let size = status_field(pid, name);
    let number = size.strip_suffix(" kB").expect("a size");
    number.parse().expect("a number")
}

/// The children of a process that it has not reaped, also those that it got when their parents
/// ended. Not those that it has only forked (src/sys/apart.rs): they have its name.
pub(crate) fn descendants(pid: Pid) -> Vec<Pid> {
    let list = proc_file(pid, format!("task/{pid}/children")).unwrap_or_default();
    let name = proc_file(pid, "comm");
    list.split_whitespace()
        .map(|pid| Pid::from_raw(pid.parse().expect("a pid")))
        .filter(|&child| proc_file(child, "comm").is_some_and(|it| Some(it) != name))
        .collect()
}

/// How many descriptors a process has open.
pub(crate) fn descriptors(pid: Pid) -> usize {
    open_files(pid).len()
}

/// What the descriptors of a process lead to, such as `socket:[123]`.
pub(crate) fn open_files(pid: Pid) -> Vec<String> {
    fs::read_dir(format!("/proc/{pid}/fd"))
        .expect("it lives")
        .filter_map(|entry| fs::read_link(entry.ok()?.path()).ok())
        .map(|path| path.to_string_lossy().into_owned())
        .collect()
}

/// Waits for a fact that no notice announces.
pub(crate) fn until(fact: impl Fn() -> bool) {
    until_within(CEILING, fact);
}

pub(crate) fn until_within(ceiling: Duration, fact: impl Fn() -> bool) {
    let deadline = Instant::now() + ceiling;
    while !fact() {
        assert!(Instant::now() < deadline, "it never came true");
        thread::yield_now();
    }
}

/// Reads the announce stream on a thread, so that a wait can have a limit.
fn follow(stdout: ChildStdout) -> Receiver<Value> {
    let (sender, notices) = channel();
    thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            let notice = serde_json::from_str(&line).unwrap_or(Value::String(line));
            if sender.send(notice).is_err() {
                break;
            }
        }
    });
    notices
}
