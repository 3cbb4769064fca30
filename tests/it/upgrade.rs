//! The program's file is replaced, and the running server becomes the new program.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use hyper::service::service_fn;
use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::unistd::{Pid, geteuid, mkfifo};
use prefork_server::{BoxError, Error, Generation, Hooks, Worker};
use serde_json::Value;
use tempfile::TempDir;

use crate::apps;
use crate::client::{Client, Response, get, get_unix, under_load};
use crate::confined::as_pid_1;
use crate::support::{
    BINARY, Server, can_change_user, descendants, descriptors, nobody, open_files, pid_of,
    proc_file, program, this, until, words,
};

tests! {
    upgrades_in_a_row_refuse_no_connection_and_leave_nothing_behind,
    a_binary_that_cannot_take_over_changes_nothing_and_the_notice_says_why,
    a_canary_that_fails_changes_nothing,
    a_file_that_is_replaced_while_a_hook_looks_is_not_executed,
    an_upgrade_keeps_files_descriptors_and_open_requests,
    an_upgrade_applies_the_settings_of_the_new_binary,
    after_an_upgrade_each_worker_runs_as_the_new_user,
    settings_that_a_master_refuses_do_not_end_the_server,
    a_file_that_the_workers_user_may_not_execute_is_named,
    a_file_that_the_workers_user_may_change_is_refused,
    a_canary_that_is_told_to_leave_is_replaced_after_the_upgrade,
    a_handle_upgrades_the_server,
    a_master_as_pid_1_upgrades,
}

/// A directory with a program in it, which can be replaced while it runs.
pub(crate) struct Installed {
    dir: TempDir,
}

impl Installed {
    pub(crate) fn new(program: impl AsRef<Path>) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let installed = Self { dir };
        installed.replace(program);
        installed
    }

    /// This test binary, as the app of that name.
    pub(crate) fn app(name: &str) -> (Self, Server) {
        let installed = Self::new(this());
        let server = Server::spawn(Command::new(installed.path()).env(apps::VARIABLE, name));
        (installed, server)
    }

    pub(crate) fn start(&self, arguments: &[&str]) -> Server {
        let mut command = program(self.path());
        command.args(["--listen", "127.0.0.1:0", "--announce-fd", "1"]);
        Server::spawn(command.args(arguments))
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.beside("server")
    }

    pub(crate) fn beside(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Replaces the program by another file, in one step. cp(1) makes the copy: a file that this
    /// process has open for writing may also be open in a process that it has just forked, and such
    /// a file cannot be executed (execve(2), `ETXTBSY`).
    pub(crate) fn replace(&self, with: impl AsRef<Path>) {
        let new = self.beside("new");
        let copied = Command::new("cp").arg(with.as_ref()).arg(&new).status();
        assert!(copied.expect("there is cp").success());
        fs::rename(new, self.path()).expect("the same directory");
    }

    pub(crate) fn replace_by_script(&self, interpreter: &str, script: &str) {
        let text = self.beside("text");
        fs::write(&text, format!("#!{interpreter}\n{script}\n")).expect("writable");
        set_mode(&text, 0o755);
        self.replace(text);
    }

    /// Whether this process runs the file that is now installed.
    fn is_run_by(&self, pid: Pid) -> bool {
        let inode = |path: &Path| fs::metadata(path).map(|file| (file.dev(), file.ino()));
        let runs = inode(Path::new(&format!("/proc/{pid}/exe")));
        runs.is_ok_and(|runs| runs == inode(&self.path()).expect("it is installed"))
    }
}

fn set_mode(path: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("it is ours");
}

fn sockets_in_common(workers: &[Pid]) -> usize {
    let sockets = |&pid: &Pid| -> BTreeSet<String> {
        let files = open_files(pid).into_iter();
        files.filter(|file| file.starts_with("socket:")).collect()
    };
    let [one, other] = workers else {
        panic!("there are two")
    };
    sockets(one).intersection(&sockets(other)).count()
}

fn upgrades_in_a_row_refuse_no_connection_and_leave_nothing_behind() {
    let installed = Installed::new(BINARY);
    let mut server = installed.start(&["--workers", "2", "--respond", "hi", "--worker-header"]);
    let (address, pid) = (server.address(), server.pid);
    let before = descriptors(pid);
    // Both ends of two inboxes: each worker knows its sibling's, and the one that was ready first
    // has closed the other's listener, which it had adopted.
    until(|| sockets_in_common(&server.workers()) == 4);
    let of_a_worker = descriptors(server.workers()[0]);
    let is_served = |response: Response| assert_eq!(response.body, "hi");
    under_load(address, 2, is_served, || {
        for generation in 2..5 {
            let old = server.workers();
            installed.replace(BINARY);
            assert!(!installed.is_run_by(pid));
            server.signal(Signal::SIGUSR2);
            server.wait("upgrade_started");
            server.wait("upgrade_finished");
            assert_eq!(server.wait("reload_finished")["generation"], generation);
            until(|| {
                let workers = server.workers();
                workers.len() == 2 && workers.iter().all(|worker| !old.contains(worker))
            });
            assert!(installed.is_run_by(pid), "the master is the new file");
            for worker in server.workers() {
                assert!(installed.is_run_by(worker), "so is worker {worker}");
            }
            // The master closes a worker's descriptors a moment after its process ends.
            until(|| descriptors(pid) == before);
            until(|| get(address, "/").worker("generation") == generation);
        }
    });
    for worker in server.workers() {
        let environment = proc_file(worker, "environ").expect("it lives");
        assert!(environment.contains("PREFORK_SERVER_WORKER="));
        assert!(!environment.contains("PREFORK_SERVER_UPGRADE="));
        until(|| descriptors(worker) == of_a_worker);
    }
    // The running image is the new one.
    let gone = server.workers()[0];
    kill(gone, Signal::SIGTERM).expect("it lives");
    let come = pid_of(&server.wait("worker_ready"));
    assert!(installed.is_run_by(come));
    let ended = server.stop();
    assert_eq!(ended.notices.last().expect("some")["outcome"], "drained");
}

fn a_binary_that_cannot_take_over_changes_nothing_and_the_notice_says_why() {
    let installed = Installed::new(BINARY);
    let mut server = installed.start(&words("--workers 1 --respond hi --drain-timeout 100ms"));
    let worker = pid_of(&server.wait("worker_ready"));
    let address = server.address();
    let before = descriptors(server.pid);
    let path = installed.path();
    let mut try_in_vain = |why: &str| {
        let said = server.upgrade_in_vain();
        assert!(said.contains(why), "{why}: {said}");
        assert!(server.log().contains(why), "{why}: {}", server.log());
        assert_eq!(get(address, "/").body, "hi");
        until(|| server.workers() == [worker] && descriptors(server.pid) == before);
    };
    fs::remove_file(&path).expect("it is ours");
    try_in_vain("No such file or directory");
    installed.replace(BINARY);
    set_mode(&path, 0o644);
    try_in_vain("Permission denied");
    installed.replace("/bin/false");
    try_in_vain("exit 1");
    installed.replace("/bin/true");
    try_in_vain("exit 0");
    // A program that says it is ready without a version, as one without upgrades, and stays.
    let ready = "set -- $PREFORK_SERVER_WORKER; printf R >&$7; exec sleep 1000";
    installed.replace_by_script("/bin/bash", ready);
    try_in_vain("reads no version of a master's state, and this master writes version ");
    // A program that reads the versions 100 to 101 (in octal).
    let ready = r"set -- $PREFORK_SERVER_WORKER; printf 'R\144\0\145\0' >&$7; exec sleep 1000";
    installed.replace_by_script("/bin/bash", ready);
    try_in_vain("reads versions 100 to 101 of");
    installed.replace(BINARY);
    server.signal(Signal::SIGUSR2);
    server.wait("upgrade_finished");
    assert!(installed.is_run_by(server.pid));
}

fn a_canary_that_fails_changes_nothing() {
    let (installed, mut server) = Installed::app("fickle");
    let address = server.address();
    let before = (server.workers(), descriptors(server.pid));
    for (whim, why) in [
        ("wait for ever", "a new worker was not ready in time"),
        ("lock", "Permission denied"),
        ("vanish", "not the file any more"),
    ] {
        set_mode(&installed.path(), 0o755);
        fs::write(installed.beside("whim"), whim).expect("writable");
        let said = server.upgrade_in_vain();
        assert!(said.contains(why), "{whim}: {said}");
        assert_eq!(get(address, "/").body, "hello");
        until(|| (server.workers(), descriptors(server.pid)) == before);
    }
    server.stop();
}

fn an_upgrade_keeps_files_descriptors_and_open_requests() {
    let installed = Installed::new(BINARY);
    let (pid_file, unix) = (installed.beside("pid"), installed.beside("socket"));
    // The notices go to a descriptor that only the master has.
    let script = format!(
        r#"exec {} --listen 127.0.0.1:0 --listen unix:{} --pid-file {} --announce-fd 7 \
        --workers 2 --respond hi --delay 300ms 7>&1 >&2"#,
        installed.path().display(),
        unix.display(),
        pid_file.display(),
    );
    let mut server = Server::spawn(program("/bin/sh").args(["-c", &script]));
    let address = server.address();
    let inodes = || [&pid_file, &unix].map(|path| fs::metadata(path).expect("it is there").ino());
    let before = inodes();
    let mut clients = Client::ask_many(address, 20, "/");
    installed.replace(BINARY);
    server.signal(Signal::SIGUSR2);
    // A signal during the upgrade waits until the upgrade is done.
    server.signal(Signal::SIGHUP);
    server.wait("upgrade_finished");
    for client in &mut clients {
        assert_eq!(client.response().body, "hi");
    }
    server.wait_for("reload_finished", |reload| reload["generation"] == 3);
    assert_eq!(inodes(), before);
    let pid = fs::read_to_string(&pid_file).expect("it is there");
    assert_eq!(pid.trim(), server.pid.to_string());
    assert_eq!(get_unix(&unix), "hi");
    server.stop();
    assert!(!pid_file.exists() && !unix.exists());
}

fn an_upgrade_applies_the_settings_of_the_new_binary() {
    let installed = Installed::new(BINARY);
    let mut server = installed.start(&["--workers", "1", "--respond", "old"]);
    let address = server.address();
    assert_eq!(get(address, "/").body, "old");
    let unix = installed.beside("socket");
    // The new binary does not name the old address, and still serves it.
    let script = format!(
        "exec {BINARY} --listen unix:{} --announce-fd 1 --workers 3 --respond new",
        unix.display()
    );
    installed.replace_by_script("/bin/sh", &script);
    server.signal(Signal::SIGUSR2);
    server.wait("upgrade_finished");
    assert_eq!(server.wait("resized")["workers"], 3);
    server.wait_for("reload_finished", |reload| reload["generation"] == 3);
    assert_eq!(get_unix(&unix), "new");
    until(|| server.workers().len() == 3);
    for _ in 0..20 {
        assert_eq!(get(address, "/").body, "new");
    }
    server.stop();
    assert!(!unix.exists());
}

/// The only worker is the canary, which the master before has started as the user of then.
fn after_an_upgrade_each_worker_runs_as_the_new_user() {
    if !can_change_user() {
        return;
    }
    let installed = Installed::new(BINARY);
    set_mode(installed.dir.path(), 0o755);
    let options = ["--workers", "1", "--respond", "hi", "--user", "root"];
    let mut server = installed.start(&options);
    let address = server.address();
    let new = format!("exec {BINARY} --announce-fd 1 --workers 1 --respond hi");
    let script = format!("{new} --listen {address} --user nobody");
    installed.replace_by_script("/bin/sh", &script);
    server.signal(Signal::SIGUSR2);
    server.wait("upgrade_finished");
    let nobody = nobody().uid.as_raw();
    let is_nobody = |&worker: &Pid| {
        let owner = fs::metadata(format!("/proc/{worker}")).map(|it| it.uid());
        owner.is_ok_and(|owner| owner == nobody)
    };
    until(|| matches!(&server.workers()[..], [worker] if is_nobody(worker)));
    assert_eq!(get(address, "/").body, "hi");
    server.stop();
}

/// A hook that replaces the file of the program by an empty one.
struct Replaced;

impl Hooks for Replaced {
    fn check_upgrade(&mut self) -> Result<Vec<(OsString, OsString)>, BoxError> {
        let program = std::env::current_exe()?;
        let new = program.with_file_name("new");
        fs::write(&new, "")?;
        fs::rename(new, program)?;
        Ok(Vec::new())
    }
}

pub(crate) fn replaced() -> Result<(), Error> {
    let server = apps::server().hooks(Replaced);
    server.serve(async |_| Ok(service_fn(apps::hello)))
}

fn a_file_that_is_replaced_while_a_hook_looks_is_not_executed() {
    let (_installed, mut server) = Installed::app("replaced");
    let address = server.address();
    let why = server.upgrade_in_vain();
    assert!(why.contains("it is not the file any more"), "{why}");
    assert_eq!(get(address, "/").body, "hello");
    server.stop();
}

/// Only a master checks these settings. They must not end the master that has become the new image.
fn settings_that_a_master_refuses_do_not_end_the_server() {
    let installed = Installed::new(BINARY);
    let mut server = installed.start(&["--workers", "1", "--respond", "old"]);
    let address = server.address();
    let new = format!("exec {BINARY} --announce-fd 1 --respond new --listen");
    if geteuid().is_root() {
        let before = server.workers();
        installed.replace_by_script("/bin/sh", &format!("{new} 0.0.0.0:0"));
        server.upgrade_in_vain();
        assert!(server.log().contains("--user root"), "{}", server.log());
        // The canary serves until it has drained.
        until(|| server.workers() == before);
        assert_eq!(get(address, "/").body, "old");
    }
    installed.replace_by_script("/bin/sh", &format!("{new} {address} --user no-such-user"));
    server.signal(Signal::SIGUSR2);
    server.wait("reload_finished");
    assert!(server.log().contains("no-such-user"), "{}", server.log());
    until(|| get(address, "/").body == "new");
    server.stop();
}

fn a_file_that_the_workers_user_may_not_execute_is_named() {
    if !can_change_user() {
        return;
    }
    let installed = Installed::new(BINARY);
    set_mode(installed.dir.path(), 0o755);
    let mut server = installed.start(&["--respond", "hi", "--user", "nobody"]);
    server.wait("serving");
    installed.replace(BINARY);
    set_mode(&installed.path(), 0o700);
    let said = server.upgrade_in_vain();
    let named = format!("may not execute {}", installed.path().display());
    assert!(said.ends_with(&named), "{said}");
}

fn a_file_that_the_workers_user_may_change_is_refused() {
    if !can_change_user() {
        return;
    }
    let installed = Installed::new(BINARY);
    set_mode(installed.dir.path(), 0o755);
    let mut server = installed.start(&["--respond", "hi", "--user", "nobody"]);
    server.wait("serving");
    let directory = installed.dir.path().to_owned();
    for (changed, mode) in [(installed.path(), 0o757), (directory, 0o777)] {
        set_mode(&changed, mode);
        let said = server.upgrade_in_vain();
        let named = format!("may change {} ", installed.path().display());
        assert!(said.contains(&named), "{said}");
        set_mode(&changed, 0o755);
    }
    server.signal(Signal::SIGUSR2);
    server.wait("upgrade_finished");
}

/// A worker of a later generation waits at its start for this file, a FIFO, if it is there. Until
/// then its event loop does not turn.
pub(crate) const GATE: &str = "PREFORK_TEST_GATE";

pub(crate) fn gated() -> Result<(), Error> {
    apps::server().workers(1).serve(async |worker: Worker| {
        let gate = std::env::var_os(GATE).expect("the test sets it");
        if worker.generation() != Generation::FIRST && fs::read(&gate).is_ok() {
            fs::remove_file(&gate)?;
            // The worker sees a signal that came meanwhile, before it is ready.
            for _ in 0..1000 {
                tokio::task::yield_now().await;
            }
        }
        Ok(service_fn(apps::hello))
    })
}

fn a_canary_that_is_told_to_leave_is_replaced_after_the_upgrade() {
    let installed = Installed::new(this());
    let gate = installed.beside("gate");
    let mut command = Command::new(installed.path());
    let mut server = Server::spawn(command.env(apps::VARIABLE, "gated").env(GATE, &gate));
    let address = server.address();
    mkfifo(&gate, Mode::S_IRWXU).expect("a new name");
    server.signal(Signal::SIGUSR2);
    server.wait("upgrade_started");
    let canary = server.wait("worker_spawned");
    kill(pid_of(&canary), Signal::SIGTERM).expect("it starts");
    // Waits until the canary reads.
    fs::write(&gate, "go").expect("the canary reads");
    server.wait("upgrade_finished");
    let is_canary = |notice: &Value| notice["pid"] == canary["pid"];
    server.wait_for("worker_draining", is_canary);
    server.wait("worker_ready");
    assert_eq!(get(address, "/").body, "hello");
}

fn a_handle_upgrades_the_server() {
    let (installed, mut server) = Installed::app("handle");
    let address = server.address();
    installed.replace(this());
    assert_eq!(get(address, "/upgrade").body, "asked");
    server.wait("upgrade_finished");
    server.wait("reload_finished");
    assert!(installed.is_run_by(server.pid));
    assert_eq!(get(address, "/stop").body, "asked");
    server.end_well();
}

fn a_master_as_pid_1_upgrades() {
    let installed = Installed::new(this());
    let Some(mut command) = as_pid_1() else {
        return;
    };
    let mut server = Server::spawn(command.arg(installed.path()).env(apps::VARIABLE, "hello"));
    assert_eq!(server.wait("serving")["pid"], 1);
    let master = server.workers()[0];
    for _ in 0..2 {
        kill(master, Signal::SIGUSR2).expect("it lives");
        server.wait("upgrade_finished");
        server.wait("reload_finished");
    }
    assert_eq!(server.workers(), [master]);
    // The drained workers are reaped.
    until(|| descendants(master).len() == 2);
    kill(master, Signal::SIGTERM).expect("it lives");
    server.end_well();
}
