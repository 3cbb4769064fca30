//! Settings that are refused, descriptors that are inherited, and a master that is PID 1.

use std::fs::{self, Permissions};
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use nix::errno::Errno;
use nix::libc::{LOCK_UN, SYS_epoll_create1, SYS_flock, SYS_prctl, SYS_prlimit64, SYS_waitid};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use prefork_server::{Error, Limit, Role, role, service_fn};
use serde_json::json;

use crate::admin::ask;
use crate::apps;
use crate::client::get;
use crate::confined::{as_pid_1, refusing, refusing_if, unshare};
use crate::support::{
    BINARY, Server, app_after, app_command, binary, can_change_user, open_files, output, proc_file,
    program, refused, status_field, until,
};
use crate::upgrade::Installed;

tests! {
    bad_settings_exit_2_and_name_the_flag,
    what_would_change_a_terminal_is_escaped_in_each_message,
    a_taken_port_exits_5_although_it_could_be_shared,
    a_limit_on_descriptors_that_is_too_low_is_named,
    a_server_that_serves_has_a_descriptor_for_a_connection,
    a_log_that_is_as_long_as_a_file_may_be_ends_no_server,
    a_limit_that_a_hook_cannot_raise_is_named,
    a_proc_that_is_not_mounted_is_named,
    a_call_that_a_filter_refuses_is_named,
    a_limit_on_descriptors_that_cannot_be_raised_ends_no_server,
    a_lock_that_cannot_be_released_ends_no_server,
    a_group_that_a_socket_file_cannot_have_is_named,
    the_proc_of_another_namespace_is_not_believed,
    notices_go_to_any_descriptor_that_the_master_has,
    a_worker_inherits_only_its_own_descriptors,
    workers_have_the_scheduling_policy_of_their_master,
    a_program_started_before_the_server_inherits_nothing_of_it,
    a_thread_beside_the_master_can_wait_for_programs,
    workers_need_no_resolver,
    workers_have_no_huge_pages,
    a_master_as_pid_1_reaps_orphans,
}

fn what_would_change_a_terminal_is_escaped_in_each_message() {
    // Not in a variable: it cannot have a NUL.
    let evil = "/no\u{1b}[31m\u{7}\u{9b}\u{202e}/x";
    let shown = r"/no\u001b[31m\u0007\u009b\u202e/x";
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("server.toml");
    let file = file.to_str().expect("text");
    let long = format!("--{evil}");
    let quoted = r#"pid-file = "/no\u001B[31m\u0007\u009b\u202e/x\u0000""#;
    std::fs::write(file, quoted).expect("a new name");
    for arguments in [
        &[evil][..],
        &["--check", evil],
        &["--workers", evil],
        &["--listen", evil],
        &["--tls-ciphers", evil],
        &["--header", evil],
        &["--admin", evil],
        &["--user", evil],
        &["--pid-file", evil],
        &["--access-log", evil, "--check"],
        &["--config", evil],
        &["--config", file],
        &[&long],
        &["status", &long],
        &["status", "--admin", evil],
        &["status", "--pid-file", evil],
    ] {
        let mut command = binary();
        command.env("PREFORK_LISTEN", "127.0.0.1:0");
        let ended = output(command.args(arguments));
        let said = String::from_utf8(ended.stderr).expect("text");
        assert!(said.contains(shown), "{arguments:?}: {said}");
        let is_raw = |it: char| it != '\n' && (it.is_control() || it == '\u{202e}');
        assert!(!said.contains(is_raw), "{arguments:?}: {said:?}");
    }
    let mut command = binary();
    command.args(["--listen", "127.0.0.1:0", "--announce-fd", "1"]);
    let mut server = Server::spawn(command.env(format!("PREFORK_{evil}"), "1"));
    server.address();
    let log = server.log();
    assert!(log.contains(r"\u202e/x") && !log.contains(evil), "{log:?}");
}

fn bad_settings_exit_2_and_name_the_flag() {
    let too_many = ["--listen", "127.0.0.1:0"].repeat(253);
    for (arguments, named) in [
        (&["--workers", "none"][..], "--workers"),
        (&["--listen", "localhost"], "--listen"),
        (&["--drain-timeout", "soon"], "--drain-timeout"),
        (&["--no-such-flag"], "--no-such-flag"),
        (&["--announce-fd", "99"], "99"),
        (&["/no/such/directory"], "/no/such/directory"),
        (
            &["--workers", "1", "status"],
            "the verb status must come before all options",
        ),
        (&["help"], "no directory help: did you mean --help?"),
        (&["check"], "no directory check: did you mean --check?"),
        (&["relod"], "did you mean the verb reload?"),
        (
            &[":8080"],
            "no directory :8080: did you mean --listen :8080?",
        ),
        (&["--respond", "a", "--echo"], "--echo"),
        (&too_many, "253 addresses: there can be up to 252"),
    ] {
        let mut command = binary();
        if !arguments.contains(&"--listen") {
            command.args(["--listen", "127.0.0.1:0"]);
        }
        let said = refused(command.args(arguments));
        assert!(said.contains(named), "{arguments:?}: {said}");
    }
}

fn a_limit_on_descriptors_that_is_too_low_is_named() {
    let server = binary();
    for limit in 5..=16 {
        let mut command = Command::new("prlimit");
        command
            .arg(format!("--nofile={limit}"))
            .arg(server.get_program())
            .args(["--listen", "127.0.0.1:0", "--workers", "2"])
            .env("PREFORK_ADMIN", "off");
        let ended = output(&mut command);
        let said = String::from_utf8_lossy(&ended.stderr);
        let last = said.lines().last().unwrap_or_default();
        let named = last.contains("raise it (ulimit -n, LimitNOFILE=)");
        assert!(named, "{limit}: {said}");
        assert!(!last.contains("another address"), "{limit}: {said}");
    }
}

fn a_server_that_serves_has_a_descriptor_for_a_connection() {
    for limit in 17..=24 {
        let mut command = program("prlimit");
        command
            .args([&format!("--nofile={limit}"), BINARY, "--respond", "hi"])
            .args(["--listen", "127.0.0.1:0", "--workers", "1"])
            .args(["--announce-fd", "1", "--sandbox", "off"]);
        let mut server = Server::spawn(&mut command);
        match server.address_or_end() {
            Some(address) => assert_eq!(get(address, "/").body, "hi", "{limit}"),
            None => {
                let log = server.end().log;
                assert!(log.contains("raise it (ulimit -n, LimitNOFILE=)"), "{log}");
            }
        }
    }
}

/// As root the first line says that the workers run as root.
fn a_log_that_is_as_long_as_a_file_may_be_ends_no_server() {
    let begin = |arguments: &[&str]| {
        let mut log = tempfile::tempfile().expect("a file");
        log.set_len(9 << 20).expect("a hole");
        log.seek(SeekFrom::End(0)).expect("a file");
        let mut command = program("prlimit");
        command
            .args(["--fsize=8388608", BINARY, "--listen", "127.0.0.1:0"])
            .args(["--announce-fd", "1", "--workers", "2"])
            .args(arguments);
        Server::spawn_with_log(&mut command, log)
    };
    let mut server = begin(&[]);
    server.address();
    server.stop();
    let never_ready = begin(&["--access-log", "/no/such/directory/log"]);
    assert_eq!(never_ready.end().code, Some(3));
}

pub(crate) fn app(name: &str) -> Result<(), Error> {
    match name {
        "boundless" => boundless(),
        _ => starts_beside(),
    }
}

/// No process can have so many descriptors (proc(5), `fs.nr_open`), and root cannot either.
fn boundless() -> Result<(), Error> {
    let server = apps::server().hooks(apps::WorkersHave(Limit::OpenFiles, u64::MAX));
    server.serve(async |_| Ok(service_fn(apps::hello)))
}

fn a_limit_that_a_hook_cannot_raise_is_named() {
    let ended = output(&mut app_command("boundless"));
    let said = String::from_utf8(ended.stderr).expect("text");
    assert_eq!(ended.status.code(), Some(3), "{said}");
    assert!(said.contains("setrlimit(2) failed: OpenFiles "), "{said}");
    assert!(
        said.contains("is above the hard limit of the master"),
        "{said}"
    );
}

fn a_proc_that_is_not_mounted_is_named() {
    let dir = tempfile::tempdir().expect("a directory");
    let socket = format!("unix:{}", dir.path().join("s").display());
    for listen in ["127.0.0.1:0", &socket] {
        let Some(mut command) = unshare(&["--user", "--map-root-user", "--mount"]) else {
            return;
        };
        command
            .args(["sh", "-c"])
            .arg("mount --bind \"$0\" /proc && exec \"$@\"")
            .arg(dir.path())
            .args([BINARY, "--admin", "off", "--listen", listen]);
        let said = String::from_utf8(output(&mut command).stderr).expect("text");
        let last = said.lines().last().unwrap_or_default();
        assert!(last.contains("/proc must be mounted"), "{listen}: {said}");
        assert!(!last.contains("another address"), "{listen}: {said}");
    }
}

fn a_call_that_a_filter_refuses_is_named() {
    for (call, code, told) in [
        (SYS_waitid, 1, "waitid(2) failed"),
        (SYS_prctl, 3, "prctl(2), setsid(2) or execve(2) failed"),
        (SYS_epoll_create1, 3, ": it could not be set up: "),
    ] {
        let Some(mut command) = refusing(call, Errno::EPERM) else {
            return;
        };
        let ended = output(command.args([BINARY, "--listen", "127.0.0.1:0"]));
        let said = String::from_utf8(ended.stderr).expect("text");
        assert_eq!(ended.status.code(), Some(code), "{said}");
        assert!(said.contains(told), "{said}");
    }
}

fn a_limit_on_descriptors_that_cannot_be_raised_ends_no_server() {
    let Some(mut command) = refusing(SYS_prlimit64, Errno::EPERM) else {
        return;
    };
    command.args([BINARY, "--listen", "127.0.0.1:0", "--announce-fd", "1"]);
    let mut server = Server::spawn(command.args(["--respond", "hi"]));
    assert_eq!(get(server.address(), "/").body, "hi");
    let log = server.stop().log;
    assert!(log.contains("the limit on descriptors stays"), "{log}");
}

/// As on a network file system that does not respond.
fn a_lock_that_cannot_be_released_ends_no_server() {
    let Some(mut command) = refusing_if(SYS_flock, LOCK_UN, Errno::EIO) else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let socket = format!("unix:{}", dir.path().join("s").display());
    command.args([BINARY, "--listen", &socket, "--announce-fd", "1"]);
    let mut server = Server::spawn(&mut command);
    server.wait("serving");
    server.stop();
    let left = fs::read_dir(dir.path()).expect("a directory");
    assert_eq!(left.count(), 0, "no socket and no lock");
}

/// Needs root.
fn a_group_that_a_socket_file_cannot_have_is_named() {
    if !can_change_user() {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let socket = format!("unix:{}", dir.path().join("s").display());
    let mut command = program("setpriv");
    command
        .args(["--bounding-set=-chown", "--inh-caps=-chown", BINARY])
        .args(["--admin", "off", "--user", "nobody", "--listen", &socket]);
    let ended = output(&mut command);
    let said = String::from_utf8(ended.stderr).expect("text");
    assert_eq!(ended.status.code(), Some(5), "{said}");
    let last = said.lines().last().unwrap_or_default();
    assert!(last.contains("the group of the socket file"), "{said}");
    assert!(
        last.ends_with("lacks CAP_CHOWN (capabilities(7))"),
        "{said}"
    );
    let left = fs::read_dir(dir.path()).expect("a directory");
    assert_eq!(left.count(), 0, "no socket and no lock");
}

/// The server is in a process namespace of its own and sees the `/proc` of this one, in which its
/// numbers are other processes.
fn the_proc_of_another_namespace_is_not_believed() {
    let installed = Installed::new(BINARY);
    let (path, socket) = (installed.path(), installed.beside("admin"));
    let dir = path.parent().expect("a directory");
    fs::set_permissions(dir, Permissions::from_mode(0o777)).expect("it is ours");
    // Here process 1 may be root's. There it is the master, which is not.
    let (options, user, listen) = match can_change_user() {
        true => {
            let nobody = &["setpriv", "--reuid=nobody", "--clear-groups"][..];
            (&["--pid", "--fork"][..], nobody, "0.0.0.0:0")
        }
        false => {
            let options = &["--user", "--map-root-user", "--pid", "--fork"][..];
            (options, &[][..], "127.0.0.1:0")
        }
    };
    let Some(mut command) = unshare(options) else {
        return;
    };
    command
        .args(user)
        .arg(path)
        .args(["--announce-fd", "1", "--workers", "2", "--listen", listen])
        .arg(format!("--admin=unix:{}", socket.display()));
    let mut server = Server::spawn(&mut command);
    server.address();
    let metrics = ask(&socket, "GET", "/metrics").body;
    assert!(
        metrics.contains("\nprefork_http_requests_total "),
        "{metrics}"
    );
    let cpu = "\nprefork_process_cpu_seconds_total ";
    assert!(!metrics.contains(cpu), "{metrics}");
    let master = server.workers()[0];
    kill(master, Signal::SIGTERM).expect("it lives");
    server.end_well();
}

/// Field 41 of proc_pid_stat(5).
fn policy(pid: Pid) -> i32 {
    let stat = proc_file(pid, "stat").expect("it lives");
    let (_, fields) = stat.rsplit_once(')').expect("its name is in brackets");
    let policy = fields.split_whitespace().nth(41 - 3);
    policy
        .and_then(|policy| policy.parse().ok())
        .expect("a number")
}

fn workers_have_the_scheduling_policy_of_their_master() {
    let mut server = Server::start(&["--respond", "hi"]);
    server.address();
    let master = policy(server.pid);
    for worker in server.workers() {
        assert_eq!(policy(worker), master);
    }
}

fn workers_need_no_resolver() {
    let mut command = binary();
    command.args(["--listen", "localhost:0", "--announce-fd", "1"]);
    let mut server = Server::spawn(&mut command);
    server.address();
    let told = format!(
        "PREFORK_SERVER_HOSTS={} localhost:0=127.0.0.1:0",
        server.pid
    );
    for worker in server.workers() {
        let environment = proc_file(worker, "environ").expect("it lives");
        assert!(
            environment.split('\0').any(|it| it == told),
            "{environment}"
        );
    }
}

fn workers_have_no_huge_pages() {
    let mut server = Server::start(&["--respond", "hi"]);
    server.address();
    for worker in server.workers() {
        assert_eq!(status_field(worker, "THP_enabled"), "0");
    }
}

fn a_taken_port_exits_5_although_it_could_be_shared() {
    let mut server = Server::start(&["--respond", "hi"]);
    let address = server.address().to_string();
    let ended = output(binary().args(["--listen", &address]));
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(5), "{said}");
    assert!(said.contains(&address), "{said}");
}

fn notices_go_to_any_descriptor_that_the_master_has() {
    let mut command = Command::new("sh");
    command.args(["-c", "exec \"$@\" 9>&1 >/dev/null", "sh"]);
    let server = binary();
    command.arg(server.get_program());
    for (name, value) in server.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.args(["--listen", "127.0.0.1:0", "--announce-fd", "9"]);
    let mut server = Server::spawn(&mut command);
    server.address();
    server.stop();
}

fn a_worker_inherits_only_its_own_descriptors() {
    let mut server = Server::start_app("leaks");
    server.address();
    let leaked = |files: &[String]| files.iter().any(|file| file.ends_with("/status"));
    assert!(
        leaked(&open_files(server.pid)),
        "the app leaks in the master"
    );
    let workers = server.workers();
    assert_eq!(workers.len(), 2);
    for pid in workers {
        // Its listener, both ends of its inbox and of the other worker's, its channel, and two
        // pairs that it made itself, one end of each twice: the handle's pair, and the pair that
        // tells its runtime of signals. The worker that was ready first has adopted the other's
        // listener, and closes it when it is told to.
        let is_socket = |file: &&String| file.starts_with("socket:");
        until(|| open_files(pid).iter().filter(is_socket).count() == 12);
        let files = open_files(pid);
        assert!(!leaked(&files), "{files:?}");
        assert!(
            files.contains(&"/dev/null".to_owned()),
            "standard input: {files:?}"
        );
    }
}

fn a_program_started_before_the_server_inherits_nothing_of_it() {
    let (_installed, mut server) = Installed::app("starts_early");
    // The master and two workers; then a canary, the master's next image and another worker.
    let roles = |server: &mut Server| {
        let mut early = || server.wait("early");
        [early(), early(), early()].map(|early| {
            assert_eq!(early["inherited"], json!([]), "{}", early["role"]);
            early["role"].as_str().expect("text").to_owned()
        })
    };
    assert_eq!(roles(&mut server), ["Master", "Worker", "Worker"]);
    server.wait("serving");
    server.signal(Signal::SIGUSR2);
    assert_eq!(roles(&mut server), ["Worker", "Master", "Worker"]);
    // The server's descriptors are close-on-exec again. They still reach a third image.
    server.wait("reload_finished");
    server.signal(Signal::SIGUSR2);
    assert_eq!(roles(&mut server), ["Worker", "Master", "Worker"]);
    server.stop();
}

fn a_thread_beside_the_master_can_wait_for_programs() {
    let mut server = Server::start_app("starts_beside");
    assert_eq!(server.wait("waited")["failed"], 0);
    server.stop();
}

/// While the master supervises, another thread starts programs and waits for each.
fn starts_beside() -> Result<(), Error> {
    let mut server = apps::server();
    let handle = server.handle()?;
    if role() == Role::Master {
        std::thread::spawn(move || {
            let _addresses = handle.wait_serving();
            let ended = (0..200).map(|_| Command::new("true").status());
            let failed = ended.filter(Result::is_err).count();
            println!("{}", json!({ "notice": "waited", "failed": failed }));
        });
    }
    server.serve(async |_| Ok(service_fn(apps::hello)))
}

fn a_master_as_pid_1_reaps_orphans() {
    let Some(mut command) = as_pid_1() else {
        return;
    };
    let mut server = Server::spawn(app_after(&mut command, "hello"));
    assert_eq!(server.wait("serving")["pid"], 1);
    let master = server.workers()[0];
    // The orphans are reaped; two workers stay.
    until(|| crate::support::descendants(master).len() == 2);
    kill(master, Signal::SIGTERM).expect("it lives");
    let ended = server.end_well();
    assert_eq!(ended.notices.last().expect("some")["outcome"], "drained");
}
