//! New connections that a worker gives to a sibling before it reads a byte.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use prefork_server::{Address, Balance, Error, Prefork};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;

use crate::client::Over;
use crate::support::{CEILING, Server, app_command, pid_of, proc_file, until};

tests! {
    connections_of_run_are_spread_evenly,
    connections_to_a_unix_address_are_spread_evenly,
    without_balance_connections_stay_where_they_are_accepted,
    a_stopped_worker_keeps_no_connection_waiting,
    a_stopped_worker_with_connections_keeps_no_more_waiting,
    a_crash_loses_no_connection_that_was_not_taken,
    reloads_lose_no_connection_on_the_way,
}

/// The address that the app listens on.
const ADDRESS: &str = "PREFORK_TEST_ADDRESS";

/// If it is set, connections stay where they are accepted.
const STAY: &str = "PREFORK_TEST_STAY";

/// Sends each client the pid of its worker.
pub(crate) fn app() -> Result<(), Error> {
    let address: Address = std::env::var(ADDRESS)
        .expect("the test names it")
        .parse()
        .expect("an address");
    let balance = match std::env::var_os(STAY) {
        Some(_) => Balance::Off,
        None => Balance::Even,
    };
    let server = Prefork::bind(address).workers(2).announce_fd(1);
    server.balance(balance).run(async |worker, mut incoming| {
        let pid = worker.info().pid;
        let mut open = JoinSet::new();
        while let Some(mut connection) = incoming.accept().await {
            let drain = worker.drain();
            open.spawn_local(async move {
                let sent = connection.write_all(&pid.to_le_bytes()).await;
                let mut more = [0];
                if sent.is_ok() {
                    tokio::select! {
                        () = drain => {}
                        _ = connection.read(&mut more) => {}
                    }
                }
            });
        }
        open.join_all().await;
        Ok(())
    })
}

fn start(address: &str) -> Server {
    Server::spawn(&mut command(address))
}

fn command(address: &str) -> Command {
    let mut command = app_command("placing");
    command.env(ADDRESS, address);
    command
}

/// A server at a Unix address, from which any of its workers accepts.
struct Shared {
    dir: TempDir,
    server: Server,
    workers: [Pid; 2],
}

impl Shared {
    fn start() -> Self {
        let shared = Self::spawn(|command| command);
        until_they_know_each_other(&shared.server);
        shared
    }

    fn spawn(set: impl FnOnce(&mut Command) -> &mut Command) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("socket");
        let mut server = Server::spawn(set(&mut command(&format!("unix:{}", path.display()))));
        let workers = [(); 2].map(|()| pid_of(&server.wait("worker_ready")));
        server.wait("serving");
        Self {
            dir,
            server,
            workers,
        }
    }

    fn connect(&self) -> UnixStream {
        connect_unix(&self.dir.path().join("socket"))
    }

    /// Stops a worker. The other one serves all new connections.
    fn assert_served_without(&self, stopped: Pid) {
        kill(stopped, Signal::SIGSTOP).expect("it lives");
        let mut workers = self.workers.into_iter();
        let runs = workers.find(|&pid| pid != stopped).expect("there are two");
        let open: Vec<_> = (0..8).map(|_| self.connect()).collect();
        assert!(open.iter().all(|connection| worker(connection) == runs));
    }
}

fn connect_unix(path: &Path) -> UnixStream {
    let stream = UnixStream::connect(path).expect("it listens");
    stream.set_read_timeout(Some(CEILING)).expect("a timeout");
    stream
}

/// The worker that serves a connection.
fn worker(mut connection: impl Read) -> Pid {
    let mut pid = [0; 4];
    connection.read_exact(&mut pid).expect("it is served");
    Pid::from_raw(i32::from_le_bytes(pid))
}

/// Waits until each worker knows the other one: it has the page of its counts, to be read.
pub(crate) fn until_they_know_each_other(server: &Server) {
    let knows = |worker: Pid| {
        let maps = proc_file(worker, "maps").unwrap_or_default();
        let mut lines = maps.lines();
        lines.any(|line| line.contains(" r--s ") && line.contains("prefork-stats"))
    };
    until(|| server.workers().into_iter().filter(|&it| knows(it)).count() == 2);
}

/// Two workers have these connections, and must have the same number of them. On a busy machine one
/// may run too late to take what it was given. Then the log says so.
pub(crate) fn assert_even<T: Ord>(server: &Server, workers: impl Iterator<Item = T>) {
    let mut workers: Vec<_> = workers.collect();
    workers.sort();
    let counts: Vec<_> = workers.chunk_by(T::eq).map(<[T]>::len).collect();
    let is_even = counts == [workers.len() / 2; 2];
    let log = server.log();
    assert!(is_even || log.contains("taken back"), "{counts:?}; {log}");
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(CEILING)).expect("a timeout");
    stream
}

fn connections_of_run_are_spread_evenly() {
    let mut server = start("127.0.0.1:0");
    let address = server.address();
    until_they_know_each_other(&server);
    let mut open = Vec::new();
    for count in 1..=8 {
        let connection = connect(address);
        open.push((worker(&connection), connection));
        if count % 2 == 0 {
            assert_even(&server, open.iter().map(|(worker, _)| worker));
        }
    }
    let ended = server.stop();
    // Each connection counts as accepted once.
    let finished = ended.notices.last().expect("some");
    assert_eq!(finished["connections"], 8);
    assert_eq!(finished["handed_over"], 0);
}

fn connections_to_a_unix_address_are_spread_evenly() {
    let shared = Shared::start();
    let open: Vec<_> = (0..4)
        .map(|_| {
            let connection = shared.connect();
            (worker(&connection), connection)
        })
        .collect();
    assert_even(&shared.server, open.iter().map(|(worker, _)| worker));
}

/// Only one worker accepts, because the other is stopped.
fn without_balance_connections_stay_where_they_are_accepted() {
    let shared = Shared::spawn(|command| command.env(STAY, "1"));
    shared.assert_served_without(shared.workers[0]);
}

fn a_stopped_worker_keeps_no_connection_waiting() {
    let shared = Shared::start();
    shared.assert_served_without(shared.workers[0]);
}

fn a_stopped_worker_with_connections_keeps_no_more_waiting() {
    let shared = Shared::start();
    let first = shared.connect();
    shared.assert_served_without(worker(&first));
}

fn a_crash_loses_no_connection_that_was_not_taken() {
    let mut shared = Shared::start();
    let [killed, runs] = shared.workers;
    kill(killed, Signal::SIGSTOP).expect("it lives");
    let open: Vec<_> = (0..8).map(|_| shared.connect()).collect();
    // Some of the connections are in the inbox of the other worker now.
    assert_eq!(worker(&open[0]), runs);
    kill(killed, Signal::SIGKILL).expect("it lives");
    let exited = |notice: &serde_json::Value| pid_of(notice) == killed;
    shared.server.wait_for("worker_exited", exited);
    for connection in &open[1..] {
        assert_ne!(worker(connection), killed);
    }
}

fn reloads_lose_no_connection_on_the_way() {
    let mut shared = Shared::start();
    let path = shared.dir.path().join("socket");
    let over = AtomicBool::new(false);
    let served = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let load = scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                let open: Vec<_> = (0..4).map(|_| connect_unix(&path)).collect();
                for mut connection in open {
                    worker(&connection);
                    // The worker may have closed the connection, because it drains.
                    let _ = connection.write_all(b"x");
                    served.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        let over = Over(&over);
        for _ in 0..3 {
            let wanted = served.load(Ordering::Relaxed) + 100;
            until(|| served.load(Ordering::Relaxed) >= wanted || load.is_finished());
            shared.server.reload();
        }
        drop(over);
        load.join().expect("each connection is served");
    });
}
