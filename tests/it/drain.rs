//! Drains: a signal asks the server, or one worker, to end.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::fcntl::OFlag;
use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use prefork_server::{Address, Backoff, Error, Http, Prefork, service_fn};
use serde_json::Value;
use tempfile::tempdir;
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;

use crate::apps;
use crate::client::{Client, Over, get};
use crate::support::{Server, app_command, binary, pid_of, status_field, until, words};

tests! {
    term_finishes_open_requests,
    a_worker_that_gets_sigterm_is_replaced_at_once,
    an_idle_connection_gets_one_more_response,
    a_client_that_never_reads_is_cut_at_the_deadline,
    the_connections_cut_with_a_killed_worker_are_announced,
    a_worker_that_was_stopped_with_its_master_is_not_killed,
    two_drain_signals_at_once_do_not_stop_the_server,
    a_full_access_log_does_not_delay_the_end,
    infinite_timeouts_end_no_process,
    a_start_that_waits_does_not_delay_the_end,
    a_start_goes_on_while_a_connection_waits,
    a_second_signal_stops_at_once,
    a_drain_accepts_queued_connections_as_descriptors_become_free,
    a_full_worker_leaves_its_queue_to_the_next_worker,
}

fn term_finishes_open_requests() {
    let mut server = Server::start(&["--respond", "hi", "--delay", "500ms"]);
    let address = server.address();
    let mut clients = Client::ask_many(address, 50, "/");
    server.signal(Signal::SIGTERM);
    server.wait("draining");
    for client in &mut clients {
        let response = client.response();
        assert_eq!(response.body, "hi");
        assert_eq!(response.header("connection"), Some("close"));
        client.expect_end();
    }
    let ended = server.end_well();
    let exits = ended
        .notices
        .iter()
        .filter(|notice| notice["notice"] == "worker_exited");
    assert!(exits.clone().count() == 2 && exits.into_iter().all(|exit| exit["cut"] == 0));
}

fn an_idle_connection_gets_one_more_response() {
    let mut server = Server::start(&["--workers", "1", "--respond", "hi"]);
    let pid = pid_of(&server.wait("worker_ready"));
    let address = server.address();
    let [mut asking, mut idle] = [Client::connect(address), Client::connect(address)];
    for client in [&mut asking, &mut idle] {
        assert_eq!(client.get("/").header("connection"), None);
    }
    // The request is on its way while the worker is told to drain.
    kill(pid, Signal::SIGSTOP).expect("it lives");
    server.signal(Signal::SIGTERM);
    server.wait("worker_draining");
    asking.ask("/");
    kill(pid, Signal::SIGCONT).expect("it lives");
    assert_eq!(asking.response().body, "hi");
    asking.expect_end();
    idle.expect_end();
    server.end_well();
}

fn a_worker_that_gets_sigterm_is_replaced_at_once() {
    let mut server = Server::start(&["--workers", "1", "--echo"]);
    let pid = pid_of(&server.wait("worker_ready"));
    let address = server.address();
    let mut client = Client::connect(address);
    client.send("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 2\r\n\r\nh");
    kill(pid, Signal::SIGTERM).expect("it lives");
    // Until the rest of the body has come, the worker cannot exit.
    server.wait("worker_ready");
    client.send("i");
    assert_eq!(client.response().body, "hi");
    server.wait_for("worker_exited", |exited| pid_of(exited) == pid);
}

fn a_client_that_never_reads_is_cut_at_the_deadline() {
    let mut server = Server::start(&words(
        "--workers 1 --echo --max-body-size 64MiB --drain-timeout 300ms",
    ));
    let address = server.address();
    let mut client = Client::connect(address);
    let size = 16 << 20;
    client.send(&format!(
        "POST / HTTP/1.1\r\nHost: test\r\nContent-Length: {size}\r\n\r\n"
    ));
    client.send_until_blocked(&[b'x'; 65536]);
    let asked = Instant::now();
    server.signal(Signal::SIGTERM);
    let exited = server.wait("worker_exited");
    assert!(asked.elapsed() >= Duration::from_millis(300));
    assert_eq!(
        (&exited["cut"], &exited["status"]),
        (&1.into(), &"exit 0".into())
    );
    server.end_well();
}

/// The worker is stopped by SIGSTOP, so it reacts neither to its drain nor to its deadline.
fn the_connections_cut_with_a_killed_worker_are_announced() {
    let mut server = Server::start(&words("--workers 1 --respond hi --drain-timeout 100ms"));
    let pid = pid_of(&server.wait("worker_ready"));
    let address = server.address();
    let mut clients = Client::connect_many(address, 3);
    for client in &mut clients {
        assert_eq!(client.get("/").body, "hi");
    }
    kill(pid, Signal::SIGSTOP).expect("it lives");
    server.signal(Signal::SIGTERM);
    let exited = server.wait("worker_exited");
    assert_eq!(
        (&exited["status"], &exited["cut"]),
        (&"signal 9".into(), &3.into())
    );
    server.end_well();
}

/// The master and its worker are stopped until the worker's deadline has passed, as by
/// `docker pause`. The master goes on first.
fn a_worker_that_was_stopped_with_its_master_is_not_killed() {
    let mut server = Server::start(&words("--workers 1 --respond hi --drain-timeout 2s"));
    let worker = pid_of(&server.wait("worker_ready"));
    let mut client = Client::connect(server.address());
    assert_eq!(client.get("/").body, "hi");
    kill(worker, Signal::SIGSTOP).expect("it lives");
    server.signal(Signal::SIGTERM);
    server.wait("worker_draining");
    server.signal(Signal::SIGSTOP);
    let stopped = Instant::now();
    until(|| stopped.elapsed() > Duration::from_secs(4));
    server.signal(Signal::SIGCONT);
    // Then it has acted on each deadline that it believes has passed.
    until(|| status_field(server.pid, "State").starts_with('S'));
    kill(worker, Signal::SIGCONT).expect("it lives");
    assert_eq!(server.wait("worker_exited")["status"], "exit 0");
    server.end_well();
}

/// The access log is a full pipe that no process reads.
fn a_full_access_log_does_not_delay_the_end() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("log");
    mkfifo(&path, Mode::S_IRUSR | Mode::S_IWUSR).expect("a new path");
    let mut both_ends = File::options();
    both_ends.read(true).write(true);
    let mut pipe = both_ends
        .custom_flags(OFlag::O_NONBLOCK.bits())
        .open(&path)
        .expect("a pipe");
    while pipe.write(&[b'x'; 4096]).is_ok() {}
    let log = path.to_str().expect("text");
    let mut server = Server::start(&[
        "--workers",
        "1",
        "--drain-timeout",
        "5s",
        "--respond",
        "hi",
        "--access-log",
        log,
    ]);
    let address = server.address();
    assert_eq!(get(address, "/").body, "hi");
    server.signal(Signal::SIGTERM);
    let exited = server.wait("worker_exited");
    assert_eq!(
        exited["status"],
        "exit 0",
        "it was killed: {}",
        server.log()
    );
    let ended = server.end();
    assert!(
        ended.log.contains("its last lines are lost lost=1"),
        "{}",
        ended.log
    );
}

fn a_second_signal_stops_at_once() {
    let mut server = Server::start(&["--respond", "hi", "--delay", "1h"]);
    let address = server.address();
    let mut client = Client::connect(address);
    client.ask("/");
    server.signal(Signal::SIGINT);
    server.wait("draining");
    server.signal(Signal::SIGINT);
    let ended = server.end_well();
    assert_eq!(ended.notices.last().expect("some")["outcome"], "stopped");
    assert!(client.try_response().is_err());
}

fn a_drain_accepts_queued_connections_as_descriptors_become_free() {
    // The worker has 14 connections at most, and itself more than 14 descriptors.
    let script = "ulimit -n 28; exec \"$0\" --listen 127.0.0.1:0 --workers 1 --respond hi \
                  --delay 100ms --announce-fd 1";
    let binary = binary();
    let mut command = Command::new("sh");
    let mut server = Server::spawn(command.args(["-c", script]).arg(binary.get_program()));
    let address = server.address();
    let mut clients = Client::ask_many(address, 60, "/");
    server.signal(Signal::SIGTERM);
    for client in &mut clients {
        assert_eq!(client.response().body, "hi");
    }
    let ended = server.end_well();
    assert!(ended.log.contains("accepting rests"), "{}", ended.log);
}

fn a_full_worker_leaves_its_queue_to_the_next_worker() {
    let mut server = Server::start(&words(
        "--workers 1 --max-connections 1 --respond hi --delay 20ms --drain-timeout 1h",
    ));
    let pid = pid_of(&server.wait("worker_ready"));
    let address = server.address();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _over = Over(&over);
        for _ in 0..8 {
            scope.spawn(|| {
                // The queue is never empty.
                while !over.load(Ordering::Relaxed) {
                    let mut client = Client::connect(address);
                    client.send("GET / HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
                    // `cut` below counts the connections that fail.
                    let _ = client.try_response();
                }
            });
        }
        server.signal(Signal::SIGHUP);
        let draining = server.wait("worker_draining");
        // It does not wait for its drain timeout.
        let exited = server.wait_for("worker_exited", |exited| pid_of(exited) == pid);
        assert_eq!((pid_of(&draining), &exited["cut"]), (pid, &0.into()));
    });
}

/// As timeout(1) does, which signals the process and its group: the second signal is pending before
/// the master has read the first.
fn two_drain_signals_at_once_do_not_stop_the_server() {
    let mut server = Server::start(&["--workers", "1", "--respond", "hi", "--delay", "300ms"]);
    let address = server.address();
    let mut client = Client::connect(address);
    client.ask("/");
    server.signal(Signal::SIGSTOP);
    for signal in [Signal::SIGTERM, Signal::SIGQUIT, Signal::SIGCONT] {
        server.signal(signal);
    }
    assert_eq!(client.response().body, "hi");
    let ended = server.end_well();
    assert_eq!(ended.notices.last().expect("some")["outcome"], "drained");
}

fn infinite_timeouts_end_no_process() {
    let mut server = Server::start_app("endless");
    let first = pid_of(&server.wait("worker_ready"));
    let address = server.address();
    let mut client = Client::connect(address);
    assert_eq!(client.get("/").body, "hello");
    server.reload();
    let exited = server.wait_for("worker_exited", |exited| pid_of(exited) == first);
    assert_eq!(
        (&exited["status"], &exited["cut"]),
        (&"exit 0".into(), &0.into())
    );
    // The next worker has the connection.
    assert_eq!(client.get("/").body, "hello");
    drop(client);
    let ended = server.stop();
    let exits = |exit: &&Value| exit["notice"] == "worker_exited";
    assert!(
        ended
            .notices
            .iter()
            .filter(exits)
            .all(|exit| exit["status"] == "exit 0")
    );
}

pub(crate) fn app(name: &str) -> Result<(), Error> {
    match name {
        "endless" => endless(),
        _ => waits_for_database(),
    }
}

/// Each of its timeouts is infinite.
fn endless() -> Result<(), Error> {
    let backoff = Backoff::new()
        .first(Duration::MAX)
        .max(Duration::MAX)
        .reset_after(Duration::MAX);
    let http = Http::new()
        .header_timeout(Duration::MAX)
        .body_timeout(Duration::MAX)
        .write_timeout(Duration::MAX)
        .idle_timeout(Duration::MAX)
        .linger(Duration::MAX)
        .upgrade_grace(Duration::MAX)
        .max_connection_age(Duration::MAX);
    apps::server()
        .workers(1)
        .http(http)
        .drain_timeout(Duration::MAX)
        .ready_timeout(Duration::MAX)
        .hang_timeout(Duration::MAX)
        .max_worker_age(Duration::MAX)
        .backoff(backoff)
        .serve(async |_| Ok(service_fn(apps::hello)))
}

/// The folder with the sockets of the app and of its database.
const SOCKETS: &str = "PREFORK_TEST_SOCKETS";

/// Its start waits for the database, and its drain timeout is infinite.
fn waits_for_database() -> Result<(), Error> {
    let sockets = PathBuf::from(std::env::var_os(SOCKETS).expect("the test says where"));
    Prefork::bind(Address::Unix(sockets.join("app")))
        .workers(1)
        .announce_fd(1)
        .drain_timeout(Duration::MAX)
        .serve(async |_| {
            let mut database = UnixStream::connect(sockets.join("database")).await?;
            database.read_u8().await?;
            Ok(service_fn(apps::hello))
        })
}

/// A server whose worker waits for its database, with the database's end of their connection.
fn waiting_for_database(sockets: &Path) -> (Server, net::UnixStream) {
    let database = net::UnixListener::bind(sockets.join("database")).expect("the name is free");
    let server = Server::spawn(app_command("waits_for_database").env(SOCKETS, sockets));
    let (worker, _) = database.accept().expect("the worker connects");
    (server, worker)
}

fn a_start_that_waits_does_not_delay_the_end() {
    let sockets = tempdir().expect("a temporary folder");
    let (server, _database) = waiting_for_database(sockets.path());
    server.signal(Signal::SIGTERM);
    let ended = server.end_well();
    let exited = |notice: &&Value| notice["notice"] == "worker_exited";
    let exited = ended.notices.iter().find(exited).expect("it has ended");
    assert_eq!(exited["status"], "exit 0");
}

fn a_start_goes_on_while_a_connection_waits() {
    let sockets = tempdir().expect("a temporary folder");
    let (mut server, mut database) = waiting_for_database(sockets.path());
    let mut client = net::UnixStream::connect(sockets.path().join("app")).expect("it listens");
    client
        .write_all(b"GET / HTTP/1.1\r\nHost: test\r\n\r\n")
        .expect("it waits");
    server.signal(Signal::SIGTERM);
    server.wait("worker_draining");
    database.write_all(b"!").expect("the worker waits");
    let response = io::read_to_string(client).expect("a response, then the end");
    assert!(response.ends_with("\r\n\r\nhello"), "{response}");
    server.end_well();
}
