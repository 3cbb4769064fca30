//! The admin process: what it tells, and that it costs the server nothing if it ends.

use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;

use crate::cap::connect_from;
use crate::client::{Client, Response, get, parse_response};
use crate::support::{BINARY, CEILING, Server, binary, descendants, output, pid_of, until, words};
use crate::upgrade::Installed;

tests! {
    it_tells_the_state_and_the_counts_of_the_server,
    only_the_user_of_the_master_connects_and_unknown_requests_are_refused,
    a_wrong_argument_or_method_is_told,
    it_responds_while_every_worker_stands_still,
    it_comes_back_when_it_is_killed_and_no_request_is_lost,
    it_is_replaced_when_it_stands_still,
    it_is_told_late_of_a_command_if_the_master_has_no_free_descriptor,
    counts_do_not_fall_over_crashes_reloads_upgrades_and_resizes,
    a_reload_and_an_upgrade_replace_it,
    it_is_not_ready_from_the_first_moment_of_a_drain,
    it_is_not_ready_before_the_drain_and_the_server_still_serves,
    it_has_a_socket_in_the_runtime_directory_by_default,
    no_socket_in_the_runtime_directory_does_not_stop_the_start,
    a_start_that_fails_leaves_the_pid_file_of_the_server_that_runs,
    one_client_with_many_connections_leaves_some_to_others,
}

/// A server with an admin address.
pub(crate) struct Watched {
    pub(crate) server: Server,
    pub(crate) socket: PathBuf,
    _dir: TempDir,
}

impl Watched {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        Self::start_with(|socket| {
            let admin = ["--admin", socket];
            Server::start(&[&admin, arguments].concat())
        })
    }

    pub(crate) fn start_with(start: impl FnOnce(&str) -> Server) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let socket = dir.path().join("admin");
        let server = start(&format!("unix:{}", socket.display()));
        Self {
            server,
            socket,
            _dir: dir,
        }
    }

    pub(crate) fn get(&self, path: &str) -> Response {
        ask(&self.socket, "GET", path)
    }

    pub(crate) fn status(&self) -> Value {
        serde_json::from_str(&self.get("/status").body).expect("JSON")
    }

    pub(crate) fn metric(&self, name: &str) -> u64 {
        metric(&self.socket, name)
    }

    /// The admin process.
    pub(crate) fn admin(&self) -> Pid {
        admin_of(&self.server)
    }
}

pub(crate) fn admin_of(server: &Server) -> Pid {
    let found = descendants(server.pid).into_iter().find(is_admin);
    found.expect("it runs")
}

pub(crate) fn is_admin(pid: &Pid) -> bool {
    let arguments = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    arguments.starts_with(b"prefork-server: admin") || arguments.starts_with(b"server: admin")
}

/// The sum of the samples of this name.
pub(crate) fn metric(socket: &Path, name: &str) -> u64 {
    let page = ask(socket, "GET", "/metrics").body;
    let samples = page.lines().filter(|line| {
        let end = line.strip_prefix(name).unwrap_or("no");
        end.starts_with([' ', '{'])
    });
    let values = samples.map(|line| line.rsplit(' ').next().expect("a value"));
    values
        .map(|value| value.parse::<u64>().expect("a number"))
        .sum()
}

pub(crate) fn ask(socket: &Path, method: &str, path: &str) -> Response {
    let mut stream = UnixStream::connect(socket).expect("it listens");
    let limited = stream.set_read_timeout(Some(CEILING));
    limited.expect("a timeout");
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nhost: admin\r\nconnection: close\r\n\r\n"
    )
    .expect("it reads");
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).expect("it responds");
    parse_response(&mut bytes).expect("a whole response")
}

/// The admin address of a server that serves which has a port.
pub(crate) fn admin_port(server: &Server) -> SocketAddr {
    let log = server.log();
    let mut named = log.split("address=").skip(1);
    let address = named.find_map(|rest| rest.split_whitespace().next()?.parse().ok());
    address.unwrap_or_else(|| panic!("it is in the log: {log}"))
}

fn it_tells_the_state_and_the_counts_of_the_server() {
    let mut watched = Watched::start(&["--respond", "hi"]);
    // The notice has come that it serves.
    let address = watched.server.address();
    assert_eq!(watched.get("/readyz").body, "ready\n");
    assert_eq!(watched.get("/livez").body, "live\n");
    for _ in 0..5 {
        assert_eq!(get(address, "/").body, "hi");
    }
    // The client may have its response before the worker has counted it.
    until(|| watched.metric("prefork_http_requests_total") == 5);
    assert_eq!(watched.metric("prefork_http_responses_total"), 5);
    assert_eq!(
        watched.metric("http_server_request_duration_seconds_count"),
        5
    );
    assert_eq!(watched.metric("prefork_worker_up"), 2);
    let status = watched.status();
    assert_eq!(status["version"], 1);
    assert_eq!(status["state"], "serving");
    assert_eq!(
        status["addresses"],
        serde_json::json!([address.to_string()])
    );
    assert_eq!(status["pid"], watched.server.pid.as_raw());
    assert_eq!(status["totals"]["requests"], 5);
    let slots = status["slots"].as_array().expect("a list");
    assert_eq!(slots.len(), 2);
    let of_workers = slots
        .iter()
        .map(|slot| slot["workers"][0]["requests_so_far"].as_u64());
    assert_eq!(of_workers.sum::<Option<u64>>(), Some(5));
    assert_eq!(status["history"]["worker_starts"], 2);
    let page = watched.get("/metrics");
    let media_type = page.header("content-type");
    assert_eq!(media_type, Some("text/plain; version=0.0.4; charset=utf-8"));
    watched.server.signal(Signal::SIGTERM);
    let (server, socket) = (watched.server, watched.socket);
    server.end_well();
    assert!(!socket.exists(), "the socket file is left");
}

fn only_the_user_of_the_master_connects_and_unknown_requests_are_refused() {
    let mut watched = Watched::start(&[]);
    watched.server.address();
    let mode = fs::metadata(&watched.socket)
        .expect("it is there")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    for (method, path, status) in [
        ("PUT", "/nothing", 404),
        ("POST", "/v1/slots/7/recycle", 409),
        ("GET", "/v1/operations/1", 404),
    ] {
        let response = ask(&watched.socket, method, path);
        assert_eq!(response.status(), status, "{method} {path}: {response:?}");
    }
    assert_eq!(watched.get("/nothing").status(), 404);
}

/// On a Unix address. On one with a port no method is allowed for commands.
fn a_wrong_argument_or_method_is_told() {
    let options = ["--workers", "1", "--admin", "127.0.0.1:0"];
    let (mut watched, mut port) = (Watched::start(&options[..2]), Server::start(&options));
    watched.server.address();
    port.address();
    let port_address = admin_port(&port);
    let slots = "a server has 1 to 1024 slots\n";
    for (path, why) in [
        ("/v1/workers/0", slots),
        ("/v1/workers/2000", slots),
        ("/v1/workers/many", slots),
        ("/v1/workers/+1", slots),
        (
            "/v1/slots/first/recycle",
            "first is not the number of a slot\n",
        ),
        ("/v1/upgrade?dryrun", "wrong parameter dryrun: "),
        ("/v1/stop?now&wait=1m", "wrong parameter wait=1m: "),
    ] {
        let response = ask(&watched.socket, "POST", path);
        assert_eq!(response.status(), 400, "{response:?}");
        assert!(response.body.starts_with(why), "{response:?}");
    }
    let response = ask(&watched.socket, "GET", "/v1/operations/1?wait=1m");
    assert_eq!(response.status(), 400, "{response:?}");
    let (of_read, of_command) = (Some("GET, HEAD"), Some("POST"));
    for (method, path, on_unix, on_port) in [
        ("POST", "/status", of_read, of_read),
        ("PUT", "/v1/operations/1", of_read, of_read),
        ("GET", "/v1/reload", of_command, Some("")),
        ("PUT", "/v1/workers/2000", of_command, Some("")),
    ] {
        let mut client = Client::connect(port_address);
        client.send(&format!("{method} {path} HTTP/1.1\r\nhost: test\r\n\r\n"));
        let of_unix = ask(&watched.socket, method, path);
        for (response, allow) in [(of_unix, on_unix), (client.response(), on_port)] {
            assert_eq!(response.status(), 405, "{response:?}");
            assert_eq!(response.header("allow"), allow, "{method} {path}");
        }
    }
}

fn it_responds_while_every_worker_stands_still() {
    let mut watched = Watched::start(&[]);
    let address = watched.server.address();
    until(|| watched.get("/readyz").body == "ready\n");
    let admin = watched.admin();
    let workers = watched
        .server
        .workers()
        .into_iter()
        .filter(|&pid| pid != admin);
    let workers: Vec<_> = workers.collect();
    assert_eq!(workers.len(), 2);
    for &worker in &workers {
        kill(worker, Signal::SIGSTOP).expect("it lives");
    }
    assert_eq!(watched.metric("prefork_worker_up"), 2);
    assert_eq!(watched.status()["state"], "serving");
    let waiting = [(); 3].map(|()| Client::connect(address));
    until(|| watched.metric("prefork_accept_queue_connections") == 3);
    for worker in workers {
        kill(worker, Signal::SIGCONT).expect("it lives");
    }
    drop(waiting);
}

fn it_comes_back_when_it_is_killed_and_no_request_is_lost() {
    let mut watched = Watched::start(&["--respond", "hi"]);
    let address = watched.server.address();
    let mut client = Client::connect(address);
    until(|| watched.get("/readyz").body == "ready\n");
    for round in 1..=3 {
        let admin = watched.admin();
        kill(admin, Signal::SIGKILL).expect("it lives");
        assert_eq!(client.get("/").body, "hi");
        // The listener stays open, so a request waits for the next process.
        until(|| watched.metric("prefork_http_requests_total") == round);
        assert_eq!(watched.status()["history"]["worker_exits"]["signal"], 0);
    }
    let ended = watched.server.stop();
    // Not the process that left at the end.
    let told = ended.log.matches("an admin process has ended").count();
    assert_eq!(told, 3, "{}", ended.log);
}

fn it_is_told_late_of_a_command_if_the_master_has_no_free_descriptor() {
    let mut watched = Watched::start(&["--workers", "1", "--respond", "hi"]);
    watched.server.address();
    until(|| watched.get("/readyz").body == "ready\n");
    // Enough to poll those that it has.
    watched.server.limit_descriptors("8:");
    let given = ask(&watched.socket, "POST", "/v1/logs/reopen");
    assert_eq!(given.status(), 202, "{given:?}");
    let operation = given.header("location").expect("its path");
    let state = |path: &str| {
        let response = watched.get(path);
        let object: Value = serde_json::from_str(&response.body).expect("JSON");
        object["state"].clone()
    };
    assert_eq!(state(operation), "running");
    watched.server.limit_descriptors("1024:");
    assert_eq!(state(&format!("{operation}?wait=20")), "done");
}

fn it_is_replaced_when_it_stands_still() {
    let mut watched = Watched::start(&[]);
    watched.server.address();
    until(|| watched.get("/readyz").body == "ready\n");
    let admin = watched.admin();
    kill(admin, Signal::SIGSTOP).expect("it lives");
    // The request waits in the queue of the listener for the next process.
    assert_eq!(watched.get("/livez").body, "live\n");
    assert_ne!(watched.admin(), admin);
    let log = watched.server.log();
    let hangs = log
        .lines()
        .find(|line| line.contains("hangs and is killed"));
    let address = format!("address=unix:{}", watched.socket.display());
    assert!(hangs.is_some_and(|line| line.contains(&address)), "{log}");
}

fn counts_do_not_fall_over_crashes_reloads_upgrades_and_resizes() {
    let installed = Installed::new(BINARY);
    let mut watched = Watched::start_with(|socket| {
        installed.start(&["--workers", "2", "--respond", "hi", "--admin", socket])
    });
    let address = watched.server.address();
    let mut sent = 0;
    for round in 0..4 {
        for _ in 0..10 {
            assert_eq!(get(address, "/").body, "hi");
        }
        sent += 10;
        let counted = |watched: &Watched| watched.metric("prefork_http_requests_total");
        until(|| counted(&watched) == sent);
        match round {
            0 => {
                let pid = pid_of(&watched.status()["slots"][0]["workers"][0]);
                kill(pid, Signal::SIGKILL).expect("it lives");
                watched
                    .server
                    .wait_for("worker_exited", |exited| pid_of(exited) == pid);
            }
            1 => {
                watched.server.reload();
            }
            2 => {
                watched.server.signal(Signal::SIGUSR2);
                watched.server.wait("upgrade_finished");
            }
            _ => {
                watched.server.signal(Signal::SIGTTOU);
                watched.server.wait("resized");
            }
        }
        assert_eq!(counted(&watched), sent, "after round {round}");
    }
    // The admin process learns of a change some milliseconds after the notice.
    until(|| watched.status()["history"]["resizes"] == 1);
    let history = &watched.status()["history"];
    assert_eq!(history["reloads"]["finished"], 2);
    assert_eq!(history["upgrades"]["finished"], 1);
    assert_eq!(history["worker_exits"]["signal"], 1);
    assert_eq!(history["last_operation"]["operation"], "reload");
}

fn a_reload_and_an_upgrade_replace_it() {
    let installed = Installed::new(BINARY);
    let mut watched =
        Watched::start_with(|socket| installed.start(&["--workers", "1", "--admin", socket]));
    watched.server.address();
    for signal in [Signal::SIGHUP, Signal::SIGUSR2] {
        until(|| watched.get("/readyz").body == "ready\n");
        let before = watched.admin();
        watched.server.signal(signal);
        watched.server.wait("reload_finished");
        until(|| !descendants(watched.server.pid).contains(&before));
        assert_eq!(watched.get("/readyz").body, "ready\n");
    }
    watched.server.stop();
}

fn it_is_not_ready_from_the_first_moment_of_a_drain() {
    let mut watched = Watched::start(&["--echo"]);
    let mut client = Client::connect(watched.server.address());
    until(|| watched.get("/readyz").body == "ready\n");
    // Half of a request, which keeps the drain open.
    client.send("POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 2\r\n\r\nh");
    until(|| watched.metric("http_server_active_requests") == 1);
    watched.server.signal(Signal::SIGTERM);
    watched.server.wait("draining");
    until(|| watched.get("/readyz").status() == 503);
    assert_eq!(
        watched.get("/readyz").body,
        "not ready: the server drains\n"
    );
    assert_eq!(watched.get("/livez").body, "live\n");
    client.send("i");
    assert_eq!(client.response().body, "hi");
    assert_eq!(watched.server.end().code, Some(0));
}

fn it_is_not_ready_before_the_drain_and_the_server_still_serves() {
    let options = words("--respond hi --pre-stop-delay 10m --health-path /healthz");
    let mut watched = Watched::start(&options);
    let address = watched.server.address();
    let health = || get(address, "/healthz").status();
    assert_eq!(health(), 200);
    until(|| watched.get("/readyz").body == "ready\n");
    watched.server.signal(Signal::SIGTERM);
    watched.server.wait("stopping");
    let readiness = || watched.get("/readyz").body;
    until(|| readiness() == "not ready: the server will drain\n");
    assert_eq!(watched.status()["state"], "stopping");
    until(|| health() == 503);
    // New connections too.
    assert_eq!(get(address, "/").body, "hi");
    // It crosses an upgrade.
    watched.server.signal(Signal::SIGUSR2);
    watched.server.wait("reload_finished");
    until(|| watched.status()["state"] == "stopping");
    assert_eq!(get(address, "/").body, "hi");
    until(|| health() == 503);
    watched.server.signal(Signal::SIGINT);
    watched.server.wait("draining");
    assert_eq!(watched.server.end().code, Some(0));
}

fn it_has_a_socket_in_the_runtime_directory_by_default() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut command = binary();
    command.args(["--listen", "127.0.0.1:0", "--announce-fd", "1"]);
    command
        .env_remove("PREFORK_ADMIN")
        .env("RUNTIME_DIRECTORY", dir.path());
    let mut server = Server::spawn(&mut command);
    server.address();
    let socket = dir.path().join(format!("{}.sock", server.pid));
    assert_eq!(ask(&socket, "GET", "/livez").body, "live\n");
    server.stop();
    assert!(!socket.exists(), "the socket file is left");
}

fn no_socket_in_the_runtime_directory_does_not_stop_the_start() {
    let dir = tempfile::tempdir().expect("a directory");
    let long = dir.path().join("a".repeat(100));
    let mut command = binary();
    command
        .env_remove("PREFORK_ADMIN")
        .env("RUNTIME_DIRECTORY", &long);
    let arguments = ["--listen", "127.0.0.1:0", "--announce-fd", "1"];
    let mut server = Server::spawn(command.args(arguments).args(["--respond", "hi"]));
    assert_eq!(get(server.address(), "/").body, "hi");
    let log = server.log();
    assert!(log.contains("no admin address: "), "{log}");
}

fn a_start_that_fails_leaves_the_pid_file_of_the_server_that_runs() {
    let dir = tempfile::tempdir().expect("a directory");
    let pid_file = dir.path().join("pid");
    let mut watched = Watched::start(&["--pid-file", &pid_file.display().to_string()]);
    watched.server.wait("serving");
    let mut second = binary();
    second.args(["--listen", "127.0.0.1:0", "--pid-file"]);
    second.arg(&pid_file).arg("--admin");
    let ended = output(second.arg(format!("unix:{}", watched.socket.display())));
    assert_eq!(ended.status.code(), Some(5), "{ended:?}");
    let pid = fs::read_to_string(&pid_file).expect("it is there");
    assert_eq!(pid.trim(), watched.server.pid.to_string());
}

/// Each connection has half of a head. Those beyond the share of a client are closed at once.
fn one_client_with_many_connections_leaves_some_to_others() {
    let mut server = Server::start(&["--respond", "hi", "--admin", "127.0.0.1:0"]);
    server.address();
    let admin = admin_port(&server);
    let mut flood: Vec<_> = (0..64)
        .map(|_| {
            let mut stream = TcpStream::connect(admin).expect("it listens");
            // It fails if the server has closed the connection already.
            let _: io::Result<()> = stream.write_all(b"GET /livez HT");
            stream
        })
        .collect();
    let is_closed = |stream: &mut TcpStream| match stream.read(&mut [0]) {
        Ok(len) => len == 0,
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    };
    assert!(flood[16..].iter_mut().all(is_closed));
    assert_eq!(
        connect_from("127.0.0.2:0", admin).get("/livez").body,
        "live\n"
    );
}
