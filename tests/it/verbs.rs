//! The verbs: commands to a server that runs.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use prefork_server::Stop;
use prefork_server::control::{Command, Control, ControlError, Progress};
use serde_json::Value;

use crate::admin::{admin_of, admin_port};
use crate::client::{Client, get};
use crate::support::{BINARY, Server, binary, output, pid_of};
use crate::upgrade::Installed;

tests! {
    each_verb_is_done_when_it_returns,
    an_upgrade_that_is_asked_for_during_a_trial_is_made,
    a_watch_shows_the_server_until_its_reader_leaves,
    an_operation_that_fails_says_why,
    a_scale_fails_whose_worker_cannot_be_spawned,
    a_wait_that_is_over_is_told_and_the_operation_goes_on,
    a_stop_is_done_when_another_server_can_start,
    a_stop_is_done_also_when_another_server_has_the_address,
    servers_are_found_by_the_runtime_directory_the_environment_or_the_pid_file,
    a_pid_file_of_no_server_is_told_from_one_of_a_server_with_another_address,
    a_page_that_cannot_be_written_is_named,
    what_cannot_be_written_fails,
    a_reader_that_leaves_is_no_error_to_tell,
    a_port_is_read_only,
    events_follow_the_server_to_its_end,
}

/// These write to standard output and need no server.
const WITHOUT_SERVER: [&[&str]; 7] = [
    &["--help"],
    &["-h"],
    &["--version"],
    &["--print-config"],
    &["--check", "--listen", "127.0.0.1:0"],
    &["reload", "--help"],
    &["generate", "completions", "fish"],
];

/// A server with an admin address, and its verbs.
struct Operated {
    server: Server,
    admin: String,
    installed: Installed,
}

impl Operated {
    fn start(arguments: &[&str]) -> Self {
        let installed = Installed::new(BINARY);
        let admin = format!("unix:{}", installed.beside("admin").display());
        let all = [&["--admin", &admin], arguments].concat();
        let server = installed.start(&all);
        Self {
            server,
            admin,
            installed,
        }
    }

    fn run(&self, verb: &[&str]) -> Output {
        let mut command = binary();
        output(command.args(verb).args(["--admin", &self.admin]))
    }

    /// The exit code, standard output and standard error.
    fn told(&self, verb: &[&str]) -> (Option<i32>, String, String) {
        told(&self.run(verb))
    }

    fn status(&self) -> Value {
        let (code, text, _) = self.told(&["status", "--json"]);
        assert_eq!(code, Some(0));
        serde_json::from_str(&text).expect("JSON")
    }

    fn generations(&self) -> Vec<u64> {
        let status = self.status();
        let slots = status["slots"].as_array().expect("a list");
        let workers = slots
            .iter()
            .flat_map(|slot| slot["workers"].as_array().expect("a list"));
        workers
            .map(|worker| worker["generation"].as_u64().expect("a number"))
            .collect()
    }
}

pub(crate) fn told(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
    (
        output.status.code(),
        text(&output.stdout),
        text(&output.stderr),
    )
}

pub(crate) fn done() -> (Option<i32>, String, String) {
    (Some(0), "done\n".to_owned(), String::new())
}

fn each_verb_is_done_when_it_returns() {
    let mut operated = Operated::start(&["--workers", "2", "--respond", "hi"]);
    let address = operated.server.address();
    assert_eq!(operated.told(&["reload", "--wait"]), done());
    // Without a wait for anything: no old worker runs.
    assert_eq!(operated.generations(), [2, 2]);
    let master = operated.status()["pid"].clone();
    let upgrades = operated.status()["history"]["upgrades"].clone();
    assert_eq!(operated.told(&["upgrade", "--dry-run", "--wait"]), done());
    assert_eq!(operated.generations(), [2, 2]);
    assert_eq!(operated.status()["history"]["upgrades"], upgrades);
    assert_eq!(operated.told(&["upgrade", "--wait"]), done());
    assert_eq!(operated.status()["pid"], master);
    assert_eq!(operated.told(&["scale", "3", "--wait"]), done());
    assert_eq!(operated.generations(), [4, 4, 4]);
    assert_eq!(operated.told(&["scale", "-1", "--wait"]), done());
    assert_eq!(operated.generations(), [4, 4]);
    let before = pid_of(&operated.status()["slots"][1]["workers"][0]);
    assert_eq!(operated.told(&["recycle", "1", "--wait"]), done());
    assert_ne!(pid_of(&operated.status()["slots"][1]["workers"][0]), before);
    assert_eq!(operated.told(&["logs", "reopen", "--wait"]), done());
    assert_eq!(get(address, "/").body, "hi");
    let (code, text, _) = operated.told(&["status"]);
    assert_eq!(code, Some(0));
    assert!(text.starts_with("serving (ready)\n"), "{text}");
    assert_eq!(operated.told(&["stop", "--wait"]), done());
    let Operated { server, .. } = operated;
    server.end_well();
}

fn an_upgrade_that_is_asked_for_during_a_trial_is_made() {
    let mut operated = Operated::start(&["--workers", "1"]);
    operated.server.address();
    let server = Control::at(operated.admin.parse().expect("an address"));
    for command in [Command::TryUpgrade, Command::Upgrade] {
        let progress = server.run(command, None).expect("it is begun");
        assert!(!matches!(progress, Progress::Failed(_)), "{progress:?}");
    }
    operated.server.wait("upgrade_finished");
    operated.server.wait("reload_finished");
}

fn a_watch_shows_the_server_until_its_reader_leaves() {
    let mut operated = Operated::start(&["--workers", "1"]);
    operated.server.address();
    let mut command = binary();
    command.args(["status", "--watch=10ms", "--admin", &operated.admin]);
    let mut watch = command.stdout(Stdio::piped()).spawn().expect("it runs");
    let output = watch.stdout.take().expect("a pipe");
    let mut lines = BufReader::new(output).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.ends_with("requests/s")));
    assert!(lines.any(|line| line.ends_with("requests/s")));
    drop(lines);
    // It cannot write any more.
    assert_eq!(watch.wait().expect("it ends").code(), Some(1));
}

fn an_operation_that_fails_says_why() {
    let mut operated = Operated::start(&["--workers", "1"]);
    operated.server.address();
    operated
        .installed
        .replace_by_script("/bin/sh", "echo 'no disk' >&2; exit 9");
    let (code, _, why) = operated.told(&["upgrade", "--wait"]);
    assert_eq!(code, Some(3), "{why}");
    assert!(
        why.contains(": abandoned: ") && why.contains("exit 9"),
        "{why}"
    );
    let (code, _, why) = operated.told(&["upgrade", "--dry-run", "--wait"]);
    assert_eq!(code, Some(3), "{why}");
    assert!(
        why.contains(": abandoned: ") && why.contains("exit 9"),
        "{why}"
    );
    let (code, _, why) = operated.told(&["recycle", "7", "--wait"]);
    assert_eq!(
        (code, &*why),
        (
            Some(3),
            "prefork-server: refused: there is no slot 7; the server has slot 0 only\n"
        )
    );
    let (code, _, why) = operated.told(&["scale", "2000"]);
    assert_eq!(code, Some(3));
    assert!(why.contains("a server has 1 to 1024 slots"), "{why}");
    let (code, _, _) = operated.told(&["scale", "0"]);
    assert_eq!(code, Some(2));
}

fn a_scale_fails_whose_worker_cannot_be_spawned() {
    let mut operated = Operated::start(&["--workers", "1"]);
    operated.server.address();
    operated.status();
    // Enough to poll those that it has, but none is free.
    operated.server.limit_descriptors("12:");
    let mut command = binary();
    command.args(["scale", "2", "--wait", "--admin", &operated.admin]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let scale = command.spawn().expect("it runs");
    operated.server.wait("backing_off");
    operated.server.limit_descriptors("1024:");
    let (code, _, why) = told(&scale.wait_with_output().expect("it runs"));
    assert_eq!(code, Some(3), "{why}");
    assert!(why.contains("worker 1 could not be spawned"), "{why}");
    // The server has tried again.
    operated
        .server
        .wait_for("worker_ready", |ready| ready["slot"] == 1);
}

fn a_wait_that_is_over_is_told_and_the_operation_goes_on() {
    let mut operated = Operated::start(&["--workers", "1", "--echo"]);
    let mut client = Client::connect(operated.server.address());
    // Half of a request, which keeps the drain open.
    client.send("POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 2\r\n\r\nh");
    let (code, _, why) = operated.told(&["stop", "--wait=1s"]);
    assert_eq!(code, Some(4), "{why}");
    let (code, _, why) = operated.told(&["reload"]);
    assert_eq!(
        (code, &*why),
        (Some(3), "prefork-server: refused: the server drains\n")
    );
    // Another one cuts nothing, and waits although the admin process is replaced.
    let mut command = binary();
    command.args(["stop", "--wait", "--admin", &operated.admin]);
    let mut stop = command.stdout(Stdio::piped()).spawn().expect("it runs");
    let mut told = BufReader::new(stop.stdout.take().expect("a pipe")).lines();
    let note = told.next().expect("a note").expect("a line");
    assert!(note.contains("drains already"), "{note}");
    kill(admin_of(&operated.server), Signal::SIGKILL).expect("it runs");
    client.send("i");
    assert_eq!(client.response().body, "hi");
    assert_eq!(stop.wait().expect("it ends").code(), Some(0));
    let Operated { server, .. } = operated;
    server.end_well();
}

fn a_stop_is_done_when_another_server_can_start() {
    let dir = tempfile::tempdir().expect("a directory");
    let pid_file = dir.path().join("pid").display().to_string();
    // An address of its own: no other test gets the port that is free then.
    let arguments = ["--admin", "127.0.0.28:0", "--pid-file", &pid_file];
    let Operated {
        mut server,
        admin,
        installed: _directory,
    } = Operated::start(&arguments);
    server.address();
    let port = admin_port(&server);
    let socket = admin.trim_start_matches("unix:");
    let control = Control::at(admin.parse().expect("an address"));
    let wait = Some(Duration::from_secs(10));
    let stop = control.run(Command::Stop(Stop::Drain), wait);
    let freed = TcpListener::bind(port);
    let left = [&pid_file, socket].map(|it| Path::new(it).exists());
    assert_eq!(stop.expect("it serves"), Progress::Done);
    freed.expect("the server has left its port");
    assert_eq!(left, [false, false], "the pid file and the socket file");
    server.end_well();
}

fn a_stop_is_done_also_when_another_server_has_the_address() {
    let arguments = ["--workers", "1"];
    let Operated {
        mut server,
        admin,
        installed,
    } = Operated::start(&arguments);
    server.address();
    let control = Control::at(admin.parse().expect("an address"));
    let reload = control.begin(Command::Reload).expect("it serves");
    server.wait("reload_finished");
    let stop = control
        .begin(Command::Stop(Stop::Drain))
        .expect("it serves");
    server.end_well();
    let mut next = installed.start(&[&["--admin", &admin], &arguments[..]].concat());
    next.address();
    let wait = |begun| control.wait(begun, Duration::from_secs(10));
    assert_eq!(wait(&stop).expect("it is known"), Progress::Done);
    assert!(matches!(wait(&reload), Err(ControlError::UnknownOperation)));
}

fn servers_are_found_by_the_runtime_directory_the_environment_or_the_pid_file() {
    let dir = tempfile::tempdir().expect("a directory");
    let of = |verb: &[&str]| {
        let mut command = binary();
        command.env("RUNTIME_DIRECTORY", dir.path()).args(verb);
        told(&output(&mut command))
    };
    let (code, _, why) = of(&["status"]);
    assert_eq!(code, Some(5), "{why}");
    // What a master leaves that was killed.
    std::fs::write(dir.path().join("999999999.sock"), "").expect("a file");
    let start = |pid_file: &str| {
        let mut command = binary();
        command
            .env_remove("PREFORK_ADMIN")
            .env("RUNTIME_DIRECTORY", dir.path());
        command.args(["--listen", "127.0.0.1:0", "--announce-fd", "1"]);
        let path = dir.path().join(pid_file);
        Server::spawn(command.arg("--pid-file").arg(path))
    };
    let mut first = start("first");
    first.address();
    assert!(!dir.path().join("999999999.sock").exists());
    // That of a master that was killed, whose number another program has now.
    let left = format!("{}.sock", std::process::id());
    std::fs::write(dir.path().join(left), "").expect("a file");
    assert_eq!(of(&["reload", "--wait"]), done());
    let mut second = start("second");
    second.address();
    let (code, _, why) = of(&["status"]);
    assert_eq!(code, Some(5));
    assert!(why.contains("several servers run"), "{why}");
    let pid = std::fs::read_to_string(dir.path().join("first")).expect("a pid file");
    let socket = dir.path().join(format!("{}.sock", pid.trim()));
    let mut reload = binary();
    reload.env("PREFORK_ADMIN", format!("unix:{}", socket.display()));
    reload.args(["reload", "--wait"]);
    assert_eq!(told(&output(&mut reload)), done());
    first.wait("reload_finished");
    first.wait("reload_finished");
    let pid_file = dir.path().join("second").display().to_string();
    assert_eq!(of(&["stop", "--wait", "--pid-file", &pid_file]), done());
    second.end_well();
    first.stop();
}

fn a_pid_file_of_no_server_is_told_from_one_of_a_server_with_another_address() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("server.pid");
    let this = std::process::id();
    for (pid, why) in [
        // No process has this number (proc_sys_kernel(5), `pid_max`).
        (999_999_999, "process 999999999 has ended".to_owned()),
        (this, format!("process {this} has no socket in ")),
    ] {
        std::fs::write(&file, pid.to_string()).expect("writable");
        let mut command = binary();
        command.env("RUNTIME_DIRECTORY", dir.path());
        command.args(["status", "--pid-file"]).arg(&file);
        let (code, _, said) = told(&output(&mut command));
        assert_eq!(code, Some(5), "{said}");
        assert!(said.contains(&why), "{said}");
    }
}

fn a_page_that_cannot_be_written_is_named() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("file");
    std::fs::write(&file, "").expect("a new name");
    let mut command = binary();
    let output = command.args(["generate", "man"]).arg(&file).output();
    let (code, _, said) = told(&output.expect("it runs"));
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains(&file.display().to_string()), "{said}");
}

fn what_cannot_be_written_fails() {
    for arguments in WITHOUT_SERVER {
        let full = File::options().write(true).open("/dev/full");
        let mut command = binary();
        let command = command.args(arguments).stdout(full.expect("it exists"));
        let (code, _, said) = told(&command.output().expect("it runs"));
        assert_eq!(code, Some(1), "{arguments:?}: {said}");
        let why = "prefork-server: cannot write: No space left on device (os error 28)\n";
        assert_eq!(said, why, "{arguments:?}");
    }
}

fn a_reader_that_leaves_is_no_error_to_tell() {
    for arguments in WITHOUT_SERVER {
        let (_, writer) = std::io::pipe().expect("a pipe");
        let mut command = binary();
        let command = command.args(arguments).stdout(writer);
        let (_, _, said) = told(&command.output().expect("it runs"));
        assert_eq!(said, "", "{arguments:?}");
    }
}

fn a_port_is_read_only() {
    let dir = tempfile::tempdir().expect("a directory");
    let unix = format!("unix:{}", dir.path().join("socket").display());
    let mut server = Server::start(&["--listen", &unix, "--admin", "127.0.0.1:0"]);
    server.wait("serving");
    let admin = admin_port(&server).to_string();
    let ask = |verb: &str| told(&output(binary().args([verb, "--admin", &admin])));
    assert_eq!(ask("status").0, Some(0));
    let (code, _, why) = ask("stop");
    assert_eq!(code, Some(3), "{why}");
    assert!(why.contains("POST on a Unix address"), "{why}");
    let any = told(&output(binary().args(["stop", "--admin", "127.0.0.1:0"])));
    assert_eq!(any.0, Some(2), "{}", any.2);
    assert!(any.2.contains("it needs the port that"), "{}", any.2);
}

fn events_follow_the_server_to_its_end() {
    let mut operated = Operated::start(&["--workers", "1"]);
    operated.server.address();
    let mut command = binary();
    command.args(["events", "--json", "--admin", &operated.admin]);
    let mut events = command.stdout(Stdio::piped()).spawn().expect("it runs");
    let mut lines = BufReader::new(events.stdout.take().expect("a pipe")).lines();
    // Then it is connected.
    lines.next().expect("there were some").expect("a line");
    // It goes on when the admin process is replaced.
    assert_eq!(operated.told(&["reload", "--wait"]), done());
    assert_eq!(operated.told(&["upgrade", "--wait"]), done());
    assert_eq!(operated.told(&["stop", "--wait"]), done());
    let rest = lines.map_while(Result::ok);
    let rest = rest.map(|line| serde_json::from_str(&line).expect("JSON"));
    let rest: Vec<Value> = rest.collect();
    assert_eq!(events.wait().expect("it ends").code(), Some(0));
    for (name, times) in [
        ("reload_finished", 2),
        ("upgrade_finished", 1),
        ("finished", 1),
    ] {
        let found = rest.iter().filter(|notice| notice["notice"] == name);
        assert_eq!(found.count(), times, "{name} in {rest:?}");
    }
    let last = rest.last().expect("there were more");
    assert_eq!(last["notice"], "finished", "{last}");
    assert!(last["at"].as_f64().is_some_and(|at| at > 1.6e9), "{last}");
}
