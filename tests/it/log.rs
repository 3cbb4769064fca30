//! The log: the master keeps working when the log is not read.

use std::fs::File;
use std::io::{self, ErrorKind, PipeWriter, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::process::Command;

use nix::libc::O_NONBLOCK;
use nix::sys::signal::{Signal, kill};
use prefork_server::{Error, service_fn};
use serde_json::Value;

use crate::admin::Watched;
use crate::apps;
use crate::client::get;
use crate::support::{Server, app_command, binary, pid_of, until, words};

tests! {
    the_master_keeps_working_when_the_reader_of_its_log_has_closed,
    the_master_keeps_working_when_the_reader_of_its_log_does_not_read,
    each_line_of_both_logs_is_json_if_asked_whatever_happens,
    a_logger_of_the_crate_log_gets_no_line_for_the_span_of_a_process,
}

fn command() -> Command {
    let mut command = binary();
    command
        .args(["--listen", "127.0.0.1:0", "--announce-fd", "1"])
        .args(["--workers", "1", "--respond", "hi", "--log-level", "debug"]);
    command
}

/// Checks that the master handles a signal, replaces a worker and reloads.
fn works(server: &mut Server) {
    let pid = pid_of(&server.wait("worker_ready"));
    let address = server.address();
    assert_eq!(get(address, "/").body, "hi");
    kill(pid, Signal::SIGKILL).expect("it lives");
    server.wait("worker_ready");
    assert_eq!(get(address, "/").body, "hi");
    server.reload();
}

/// Writes until the pipe is full, and returns the number of bytes. The flags of `pipe` stay.
fn fill(pipe: &PipeWriter) -> usize {
    let mut own = File::options()
        .write(true)
        .custom_flags(O_NONBLOCK)
        .open(format!("/proc/self/fd/{}", pipe.as_raw_fd()))
        .expect("a pipe can be opened by its descriptor");
    let mut filled = 0;
    loop {
        match own.write(&[b'.'; 4096]) {
            Ok(written) => filled += written,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return filled,
            Err(error) => panic!("{error}"),
        }
    }
}

fn the_master_keeps_working_when_the_reader_of_its_log_has_closed() {
    let (reader, writer) = io::pipe().expect("a pipe");
    drop(reader);
    let mut server = Server::spawn_with_log(&mut command(), writer);
    works(&mut server);
    server.stop();
}

fn the_master_keeps_working_when_the_reader_of_its_log_does_not_read() {
    let (mut reader, writer) = io::pipe().expect("a pipe");
    let filled = fill(&writer);
    let mut server = Server::spawn_with_log(&mut command(), writer);
    works(&mut server);
    let mut bytes = vec![0; filled];
    reader.read_exact(&mut bytes).expect("it was written");
    assert!(bytes.iter().all(|&byte| byte == b'.'), "it was full");
    // The number of dropped lines is written with the next line that fits.
    server.reload();
    let pid = server.pid;
    server.stop();
    let log = io::read_to_string(reader).expect("no process writes any more");
    assert!(log.contains(&format!("process {pid} dropped ")), "{log}");
    assert!(log.contains("reload finished"), "{log}");
}

/// A crash, a worker that refuses to start, a reload, a slow request and the end.
fn each_line_of_both_logs_is_json_if_asked_whatever_happens() {
    let dir = tempfile::tempdir().expect("a directory");
    let (content, access) = (dir.path().join("content"), dir.path().join("access"));
    std::fs::create_dir(&content).expect("a new name");
    std::fs::write(content.join("tea"), "green").expect("a new name");
    let mut command = binary();
    command
        .args(words("--listen 127.0.0.1:0 --announce-fd 1 --workers 2"))
        .args(words(
            "--log-format json --log-level trace --slow-request 1ms",
        ))
        .args(["--delay", "2ms", "--access-log"])
        .args([&access, &content]);
    let mut server = Server::spawn(&mut command);
    let ready = server.wait("worker_ready");
    let address = server.address();
    assert_eq!(get(address, "/tea").body, "green");
    kill(pid_of(&ready), Signal::SIGKILL).expect("it lives");
    server.wait("worker_ready");
    let moved = dir.path().join("moved");
    std::fs::rename(&content, &moved).expect("it is ours");
    server.signal(Signal::SIGHUP);
    server.wait("reload_abandoned");
    assert_eq!(get(address, "/coffee").status(), 404);
    server.signal(Signal::SIGUSR1);
    let log = server.stop().log;
    let parse = |text: &str| -> Vec<Value> {
        let lines = text.lines();
        lines
            .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("not JSON: {line}")))
            .collect()
    };
    let log = parse(&log);
    let is_slow =
        |line: &&Value| line["message"] == "slow request" && line["fields"]["status"] == 404;
    let slow = log.iter().find(is_slow).expect("the server is slow");
    assert_eq!(
        (&slow["role"], &slow["level"]),
        (&"worker".into(), &"WARN".into())
    );
    assert_eq!(slow["generation"], 1);
    let id = &slow["fields"]["request_id"];
    let access = parse(&std::fs::read_to_string(access).expect("it was written"));
    let line = access.iter().find(|line| line["request_id"] == *id);
    let line = line.expect("the log and the access log have the same id");
    assert_eq!(
        (&line["target"], &line["slot"]),
        (&slow["fields"]["uri"], &slow["slot"])
    );
}

/// Writes each record to standard error.
struct Stderr;

impl log::Log for Stderr {
    fn enabled(&self, _metadata: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        eprintln!("{} {}", record.level(), record.args());
    }

    fn flush(&self) {}
}

/// The variable that names the admin address of [`app`].
const ADMIN: &str = "PREFORK_TEST_ADMIN";

/// A program without a subscriber of tracing.
pub(crate) fn app() -> Result<(), Error> {
    log::set_logger(&Stderr).expect("there is no other logger");
    log::set_max_level(log::LevelFilter::Info);
    let admin = std::env::var(ADMIN).expect("the test says where");
    let server = apps::server().admin(admin.as_str());
    server.serve(async |_| Ok(service_fn(apps::hello)))
}

fn a_logger_of_the_crate_log_gets_no_line_for_the_span_of_a_process() {
    let mut watched =
        Watched::start_with(|admin| Server::spawn(app_command("logs").env(ADMIN, admin)));
    // Now each process has begun.
    watched.server.address();
    until(|| watched.get("/readyz").body == "ready\n");
    let log = watched.server.stop().log;
    assert!(log.contains("INFO serving "), "{log}");
    assert!(!log.contains("ERROR"), "{log}");
}
