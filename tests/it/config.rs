//! The file of `--config`, and the options that check and print.

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use tempfile::TempDir;

use crate::admin::{Watched, is_admin};
use crate::client::get;
use crate::support::{
    BINARY, Server, binary, descendants, output, pid_of, program, refused, until,
};
use crate::upgrade::Installed;

tests! {
    a_reload_reads_the_file_again_and_says_what_cannot_change,
    a_file_with_an_error_abandons_the_reload_and_stops_no_worker,
    a_file_that_was_emptied_abandons_the_reload_and_the_upgrade,
    a_file_that_no_worker_can_serve_changes_nothing,
    a_file_that_is_gone_abandons_the_reload_and_the_admin_process_does_not_need_it,
    a_file_that_has_become_a_fifo_abandons_the_reload,
    an_upgrade_reads_the_file_again,
    an_upgrade_whose_file_is_changed_meanwhile_is_abandoned,
    a_file_that_is_changed_after_it_was_tried_does_not_end_the_server,
    a_reload_says_when_what_the_master_uses_changes,
    a_resize_outlives_a_reload_and_an_upgrade_and_both_say_so,
    a_file_from_a_pipe_stays_in_a_reload_and_abandons_an_upgrade,
    an_address_that_is_given_twice_is_refused_by_its_settings,
    a_check_does_not_disturb_a_server_that_runs,
    a_file_that_is_no_socket_is_told_with_one_advice,
    a_check_accepts_a_socket_file_in_the_directory_that_it_runs_in,
    a_directory_whose_name_is_no_text_may_be_the_first_argument,
    what_is_printed_reads_the_same_through_a_pipe,
    what_is_printed_as_variables_reads_the_same,
    a_flag_that_a_variable_sets_is_printed_as_a_flag,
}

pub(crate) fn file(content: &str) -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("server.toml");
    fs::write(&file, content).expect("a new name");
    (dir, file)
}

fn start(file: &Path) -> Server {
    let mut command = binary();
    command.arg("--config").arg(file);
    Server::spawn(command.args(["--announce-fd", "1"]))
}

const BEGIN: &str = "listen = [\"127.0.0.1:0\"]\nworkers = 2\n";

fn a_reload_reads_the_file_again_and_says_what_cannot_change() {
    let (_dir, file) = file(&format!("{BEGIN}respond = \"green\""));
    let mut server = start(&file);
    let address = server.address();
    assert_eq!(get(address, "/").body, "green");
    fs::write(&file, "workers = 3\nrespond = \"black\"").expect("it is ours");
    server.reload();
    // An old worker may still accept until it has heard of the drain.
    until(|| get(address, "/").body == "black");
    let log = server.log();
    for option in ["workers", "listen"] {
        assert!(log.contains(&format!("the option {option} in ")), "{log}");
    }
    assert!(!log.contains("the option respond"), "{log}");
}

fn a_file_with_an_error_abandons_the_reload_and_stops_no_worker() {
    let why = "server.toml: no such option: did you mean respond?";
    changes_nothing("rspond = \"black\"", why);
}

fn a_file_that_was_emptied_abandons_the_reload_and_the_upgrade() {
    let (_dir, file) = file(&format!("{BEGIN}respond = \"green\""));
    let mut server = start(&file);
    let address = server.address();
    for content in ["", "# The head of the file, before the options\n"] {
        fs::write(&file, content).expect("it is ours");
        server.signal(Signal::SIGHUP);
        let of_reload = server.wait("reload_abandoned")["why"].to_string();
        let of_upgrade = server.upgrade_in_vain();
        for why in [of_reload, of_upgrade] {
            assert!(
                why.contains("server.toml: it has no options any more"),
                "{why}"
            );
        }
        assert_eq!(get(address, "/").body, "green");
    }
    // Without options from the start it may stay so.
    let mut without = binary();
    without
        .args(["--listen", "127.0.0.1:0", "--config"])
        .arg(&file);
    let mut server = Server::spawn(without.args(["--announce-fd", "1"]));
    server.address();
    server.reload();
}

fn a_file_that_no_worker_can_serve_changes_nothing() {
    let bad = "respond = \"black\"\naccess-log = \"/no-such-directory/log\"";
    changes_nothing(bad, "cannot open the access log");
}

/// A reload with these options is abandoned for this reason, and a worker that starts after it has
/// the options of before.
fn changes_nothing(bad: &str, reason: &str) {
    let (_dir, file) = file(&format!("{BEGIN}respond = \"green\""));
    let mut server = start(&file);
    let worker = pid_of(&server.wait("worker_ready"));
    let address = server.address();
    fs::write(&file, bad).expect("it is ours");
    server.signal(Signal::SIGHUP);
    let why = server.wait("reload_abandoned")["why"].to_string();
    assert!(why.contains(reason), "{why}");
    kill(worker, Signal::SIGKILL).expect("it lives");
    server.wait("worker_ready");
    for _ in 0..20 {
        assert_eq!(get(address, "/").body, "green");
    }
}

/// A server with this file and an admin address.
pub(crate) fn watched(file: &Path) -> Watched {
    Watched::start_with(|admin| {
        let mut command = binary();
        command.arg("--config").arg(file).args(["--admin", admin]);
        Server::spawn(command.args(["--announce-fd", "1"]))
    })
}

fn a_file_that_is_gone_abandons_the_reload_and_the_admin_process_does_not_need_it() {
    let (_dir, file) = file(&format!("{BEGIN}respond = \"green\""));
    let mut watched = watched(&file);
    let address = watched.server.address();
    until(|| watched.get("/readyz").body == "ready\n");
    let admin = watched.admin();
    fs::remove_file(&file).expect("it is ours");
    watched.server.signal(Signal::SIGHUP);
    let why = watched.server.wait("reload_abandoned")["why"].to_string();
    assert!(why.contains("server.toml: No such file"), "{why}");
    // The master has done what follows the notice when it hears this.
    watched.server.signal(Signal::SIGUSR1);
    until(|| watched.server.log().contains("logs are reopened"));
    let processes = descendants(watched.server.pid).into_iter();
    let admins: Vec<_> = processes.filter(is_admin).collect();
    assert_eq!(admins, [admin], "it is not replaced");
    kill(admin, Signal::SIGKILL).expect("it runs");
    assert_eq!(watched.get("/readyz").body, "ready\n");
    assert_eq!(get(address, "/").body, "green");
}

/// Nobody writes to the FIFO, so a master that opens it waits without end.
fn a_file_that_has_become_a_fifo_abandons_the_reload() {
    let (_dir, file) = file(&format!("{BEGIN}respond = \"green\""));
    let mut server = start(&file);
    let address = server.address();
    fs::remove_file(&file).expect("it is ours");
    mkfifo(&file, Mode::S_IRWXU).expect("the name is free");
    server.signal(Signal::SIGHUP);
    let why = server.wait("reload_abandoned")["why"].to_string();
    assert!(
        why.contains("server.toml: it is not a file any more"),
        "{why}"
    );
    assert_eq!(get(address, "/").body, "green");
}

fn an_upgrade_reads_the_file_again() {
    let (_dir, file) = file(&format!("{BEGIN}respond = \"green\""));
    let mut server = start(&file);
    let address = server.address();
    fs::write(&file, "rspond = \"black\"").expect("it is ours");
    let why = server.upgrade_in_vain();
    assert!(why.contains("did you mean respond?"), "{why}");
    fs::write(&file, format!("{BEGIN}respond = \"black\"")).expect("it is ours");
    server.upgrade();
    // An old worker may still accept until it has heard of the drain.
    until(|| get(address, "/").body == "black");
}

fn an_upgrade_whose_file_is_changed_meanwhile_is_abandoned() {
    let (_dir, file) = file(&format!("{BEGIN}respond = \"green\""));
    let installed = Installed::new(BINARY);
    let mut server = installed.start(&["--config", &file.display().to_string()]);
    let address = server.address();
    let before = server.workers();
    let (tried, go_on) = (installed.beside("tried"), installed.beside("go-on"));
    mkfifo(&go_on, Mode::S_IRWXU).expect("a new name");
    // The canary starts after the change, in place of a change while it starts.
    let [tried_text, go_on_text] = [&tried, &go_on].map(|path| path.display());
    let script = format!("echo > {tried_text}; read line < {go_on_text}; exec {BINARY} \"$@\"");
    installed.replace_by_script("/bin/sh", &script);
    server.signal(Signal::SIGUSR2);
    until(|| tried.exists());
    fs::write(&file, format!("{BEGIN}respond = \"black\"")).expect("it is ours");
    fs::write(&go_on, "\n").expect("the script reads it");
    let why = server.wait("upgrade_abandoned")["why"].to_string();
    assert!(
        why.contains("it was changed while the upgrade ran"),
        "{why}"
    );
    // The canary serves until it has drained.
    until(|| server.workers() == before);
    assert_eq!(get(address, "/").body, "green");
    // What is not changed is as it was tried.
    installed.replace(BINARY);
    server.upgrade();
}

/// The new image of the master starts after the change, in place of a change while it starts.
fn a_file_that_is_changed_after_it_was_tried_does_not_end_the_server() {
    let (_dir, file) = file(&format!("{BEGIN}respond = \"green\""));
    let installed = Installed::new(BINARY);
    let mut server = installed.start(&["--config", &file.display().to_string()]);
    let address = server.address();
    let bad = format!("echo bad > {}", file.display());
    let script = format!("test -z \"$PREFORK_SERVER_UPGRADE\" || {bad}; exec {BINARY} \"$@\"");
    installed.replace_by_script("/bin/sh", &script);
    server.upgrade();
    assert_eq!(get(address, "/").body, "green");
    server.signal(Signal::SIGHUP);
    let why = server.wait("reload_abandoned")["why"].to_string();
    assert!(why.contains("TOML parse error"), "{why}");
    fs::write(&file, format!("{BEGIN}respond = \"black\"")).expect("it is ours");
    server.reload();
    until(|| get(address, "/").body == "black");
}

fn a_resize_outlives_a_reload_and_an_upgrade_and_both_say_so() {
    let (_dir, file) = file(&format!("{BEGIN}respond = \"hi\""));
    let mut server = start(&file);
    server.address();
    server.signal(Signal::SIGTTIN);
    assert_eq!(server.wait("resized")["workers"], 3);
    fs::write(&file, "workers = 4\nrespond = \"hi\"").expect("it is ours");
    for (signal, said) in [
        (Signal::SIGHUP, "or in an upgrade if no signal or verb has"),
        (
            Signal::SIGUSR2,
            "there are 3 workers, as a signal or a verb has",
        ),
    ] {
        server.signal(signal);
        server.wait("reload_finished");
        until(|| server.workers().len() == 3);
        assert!(server.log().contains(said), "{}", server.log());
    }
}

fn a_reload_says_when_what_the_master_uses_changes() {
    let (_dir, file) = file(&format!("{BEGIN}respond = \"hi\""));
    let mut server = start(&file);
    server.address();
    let new = "drain-timeout = \"9s\"\nlisteners = \"shared\"\nunix-mode = \"600\"";
    fs::write(&file, format!("{BEGIN}respond = \"hi\"\n{new}")).expect("it is ours");
    server.signal(Signal::SIGHUP);
    server.wait("reload_finished");
    for (option, when) in [
        ("drain-timeout", "an upgrade or a restart only"),
        ("listeners", "a restart only"),
        ("unix-mode", "a restart only"),
    ] {
        let said = format!(
            "the option {option} in {} changes in {when}",
            file.display()
        );
        assert!(server.log().contains(&said), "{}", server.log());
    }
}

fn a_file_from_a_pipe_stays_in_a_reload_and_abandons_an_upgrade() {
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    write!(writer, "{BEGIN}respond = \"green\"").expect("it has room");
    drop(writer);
    let mut command = binary();
    command.args(["--config", "/dev/stdin", "--announce-fd", "1"]);
    let mut server = Server::spawn_with_input(&mut command, reader.into());
    let address = server.address();
    let why = server.upgrade_in_vain();
    assert!(why.contains("cannot be read again"), "{why}");
    server.reload();
    assert_eq!(get(address, "/").body, "green");
}

fn a_directory_whose_name_is_no_text_may_be_the_first_argument() {
    let dir = tempfile::tempdir().expect("a directory");
    let public = dir.path().join(OsStr::from_bytes(b"caf\xe9"));
    fs::create_dir(&public).expect("a new name");
    let mut command = binary();
    command
        .arg(&public)
        .args(["--listen", "127.0.0.1:0", "--check"]);
    let ended = output(&mut command);
    assert!(ended.status.success(), "{ended:?}");
}

fn check(arguments: &[&str]) -> Output {
    output(binary().arg("--check").args(arguments))
}

fn a_file_that_is_no_socket_is_told_with_one_advice() {
    let (_dir, file) = file("");
    let listen = format!("unix:{}", file.display());
    let bad = check(&["--listen", &listen]);
    let error = String::from_utf8_lossy(&bad.stderr);
    assert_eq!(bad.status.code(), Some(5), "{error}");
    assert!(
        error.ends_with("remove it or choose another path\n"),
        "{error}"
    );
}

fn a_check_accepts_a_socket_file_in_the_directory_that_it_runs_in() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut command = binary();
    command.current_dir(dir.path()).arg("--check");
    let ended = output(command.args(["--listen", "unix:app.sock"]));
    assert!(ended.status.success(), "{ended:?}");
}

fn an_address_that_is_given_twice_is_refused_by_its_settings() {
    for more in [&[][..], &["--check"]] {
        let mut command = binary();
        command.args(["--listen", "127.0.0.1:1", "--listen", "127.0.0.1:1"]);
        let said = refused(command.args(more));
        assert!(said.contains("127.0.0.1:1 is given twice"), "{said}");
    }
}

fn a_check_does_not_disturb_a_server_that_runs() {
    let dir = tempfile::tempdir().expect("a directory");
    let socket = format!("unix:{}", dir.path().join("socket").display());
    let mut server = Server::start(&[
        "--respond",
        "hi",
        "--listen",
        "127.0.0.1:0",
        "--listen",
        &socket,
    ]);
    let addresses = server.addresses();
    let address = addresses.iter().find_map(|address| address.parse().ok());
    let address: SocketAddr = address.expect("a TCP address");
    let listen = address.to_string();
    let good = check(&["--listen", &listen, "--listen", &socket, "--respond", "hi"]);
    let told = String::from_utf8_lossy(&good.stdout);
    assert!(
        good.status.success() && told.contains("are good"),
        "{good:?}"
    );
    for _ in 0..20 {
        assert_eq!(get(address, "/").body, "hi");
    }
    let other = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let other_address = other.local_addr().expect("it is bound").to_string();
    let twice = format!("unix:{}", dir.path().join("twice").display());
    let link = dir.path().join("link");
    symlink("/no-such-directory/a", &link).expect("a new name");
    let link = link.display().to_string();
    for (arguments, code, told) in [
        (&["--listen", &other_address][..], 5, &other_address[..]),
        (&["--listen", &twice, "--admin", &twice], 2, &twice),
        (
            &["--listen", "unix:/no-such-directory/a"],
            5,
            "/no-such-directory/a",
        ),
        (&["/no-such-directory"], 2, "/no-such-directory"),
        (&["--user", "no-such-user"], 2, "no-such-user"),
        (
            &["--access-log", "/no-such-directory/a"],
            2,
            "the access log",
        ),
        (&["--access-log", &link], 2, "the access log"),
        (&["--pid-file", "/no-such-directory/a"], 2, "the pid file"),
        (
            &["--access-log", "/tmp"],
            2,
            "the access log /tmp: Is a dir",
        ),
        (&["--pid-file", "/tmp"], 2, "the pid file /tmp: Is a dir"),
    ] {
        let bad = check(arguments);
        let error = String::from_utf8_lossy(&bad.stderr);
        assert_eq!(bad.status.code(), Some(code), "{error}");
        assert!(error.contains(told), "{error}");
    }
}

fn what_is_printed_reads_the_same_through_a_pipe() {
    let (_dir, file) = file(&format!("{BEGIN}respond = \"it's\"\naccess-log = \"-\""));
    let mut first = binary();
    first
        .arg("--config")
        .arg(&file)
        .args(["--max-warm", "7", "--print-config=toml"]);
    let first = first.output().expect("it runs").stdout;
    let mut second = binary();
    second.args(["--config", "/dev/stdin", "--print-config=toml"]);
    let piped = second.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut piped = piped.expect("it runs");
    let mut input = piped.stdin.take().expect("a pipe");
    input.write_all(&first).expect("it reads");
    drop(input);
    let second = piped.wait_with_output().expect("it ends").stdout;
    let [first, second] = [first, second].map(|text| String::from_utf8(text).expect("text"));
    assert!(first.contains("max-warm = \"7\"\n"), "{first}");
    assert_eq!(first, second);
}

const SEVERAL: &str = r#"dir = "it's"
listen = ["127.0.0.1:1", "unix:/a"]
header = ["*.css: a: b, c", "**: d: e"]
allow-origin = ["http://a", "http://b"]
proxy-protocol = ["10.0.0.0/8", "unix"]
"#;

const SEVERAL_OF_TLS: &str = r#"tls-cert = ["a.pem", "b.pem"]
tls-key = ["a.key", "b.key"]
tls-ocsp = ["none", "b.ocsp"]
tls-ciphers = ["TLS13_AES_128_GCM_SHA256", "TLS13_AES_256_GCM_SHA384"]
redirect-to-https = ["127.0.0.1:2", "127.0.0.1:3"]
"#;

fn what_is_printed_as_variables_reads_the_same() {
    let of_tls = match cfg!(feature = "tls") {
        true => SEVERAL_OF_TLS,
        false => "",
    };
    let (_dir, file) = file(&[SEVERAL, of_tls].concat());
    let printed = |command: &mut Command| {
        let output = command.output().expect("it runs");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{error}");
        String::from_utf8(output.stdout).expect("text")
    };
    let of_file = |format: &str| printed(binary().arg(format).arg("--config").arg(&file));
    let (first, variables) = (
        of_file("--print-config=toml"),
        of_file("--print-config=env"),
    );
    let script = "set -a; eval \"$1\"; exec \"$2\" --print-config=toml";
    let mut shell = program("sh");
    shell.args(["-c", script, "sh", &variables]);
    let second = printed(shell.arg(binary().get_program()));
    for line in SEVERAL.lines().chain(of_tls.lines()) {
        assert!(first.lines().any(|printed| printed == line), "{first}");
    }
    assert_eq!(first, second);
}

fn a_flag_that_a_variable_sets_is_printed_as_a_flag() {
    for (value, is_on) in [("1", true), ("yes", true), ("off", false)] {
        let printed = |format: &str| {
            let output = binary().env("PREFORK_ECHO", value).arg(format).output();
            String::from_utf8(output.expect("it runs").stdout).expect("text")
        };
        let toml = printed("--print-config=toml");
        let line = format!("echo = {is_on}");
        assert!(toml.lines().any(|it| it == line), "{value}: {toml}");
        let arguments = printed("--print-config=args");
        assert_eq!(arguments.contains("--echo"), is_on, "{value}");
    }
}
