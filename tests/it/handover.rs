//! Connections that one worker hands over to another: their clients notice nothing.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use crate::apps;
use crate::client::{Client, Over};
use crate::support::{BINARY, Server, binary, descriptors, pid_of, this, until};
use crate::upgrade::{GATE, Installed};

tests! {
    reloads_close_no_connection,
    twenty_reloads_leave_nothing_behind,
    a_request_that_has_begun_gets_its_response_before_its_connection_moves,
    an_upgrade_closes_no_connection,
    a_failed_canary_hands_its_connections_back,
    removing_slots_closes_no_connection,
    a_worker_that_gets_a_drain_signal_hands_its_connections_over,
    recycling_closes_no_connection,
    connections_in_an_inbox_outlive_sender_and_receiver,
    a_full_worker_takes_over_connections_as_others_close,
    no_connection_is_taken_over_without_a_free_descriptor,
    another_http_server_serves_connections_that_are_handed_over,
    a_thousand_connections_move_at_once,
    connections_to_a_unix_address_move_too,
    the_end_of_the_server_hands_no_connection_over,
    a_server_can_end_while_connections_are_handed_over,
}

/// Sends a request on a connection that stays open. Returns the pid of the worker that responds.
fn ask<S: Read + Write>(client: &mut Client<S>) -> u32 {
    let response = client.get("/");
    assert_eq!(response.body, "hi");
    assert_eq!(
        response.header("connection"),
        None,
        "the connection stays open"
    );
    response.worker("pid")
}

/// Each has been answered once. The first request comes at once, because its head has a deadline.
fn connect(address: SocketAddr, count: usize) -> Vec<Client> {
    let answered = |_| {
        let mut client = Client::connect(address);
        ask(&mut client);
        client
    };
    (0..count).map(answered).collect()
}

fn pids<S: Read + Write>(clients: &mut [Client<S>]) -> BTreeSet<u32> {
    clients.iter_mut().map(ask).collect()
}

/// Sends one request after another on one connection until `over` is set. Counts the workers that
/// have answered.
fn keep_busy(address: SocketAddr, over: &AtomicBool, answered_by: &AtomicUsize) {
    let mut client = Client::connect(address);
    let mut workers = BTreeSet::new();
    while !over.load(Ordering::Relaxed) {
        workers.insert(ask(&mut client));
        answered_by.store(workers.len(), Ordering::Relaxed);
    }
}

/// Waits until this number of workers has answered each of them.
fn answered_by(loads: &[AtomicUsize], workers: usize) {
    let has_been = |load: &AtomicUsize| load.load(Ordering::Relaxed) >= workers;
    until(|| loads.iter().all(has_been));
}

/// Waits until the server has this number of workers, and returns their pids.
pub(crate) fn settled(server: &Server, count: usize) -> BTreeSet<u32> {
    until(|| server.workers().len() == count);
    let workers = server.workers().into_iter();
    workers.map(|pid| pid.as_raw().unsigned_abs()).collect()
}

fn reloads_close_no_connection() {
    let mut server = Server::start(&["--respond", "hi", "--worker-header"]);
    let address = server.address();
    let before = descriptors(server.pid);
    let mut idle = connect(address, 50);
    let mut silent = Client::connect_many(address, 10);
    let over = AtomicBool::new(false);
    let counts = [0; 4].map(AtomicUsize::new);
    std::thread::scope(|scope| {
        let over = &over;
        let busy = |count| scope.spawn(move || keep_busy(address, over, count));
        let loads: Vec<_> = counts.iter().map(busy).collect();
        let over = Over(over);
        answered_by(&counts, 1);
        for generation in 2..7 {
            let finished = server.reload();
            assert_eq!(finished["generation"], generation);
            let workers = settled(&server, 2);
            assert!(pids(&mut idle).is_subset(&workers), "{workers:?}");
            until(|| descriptors(server.pid) == before);
            answered_by(&counts, generation);
        }
        drop(over);
        for load in loads {
            load.join().expect("no request failed");
        }
    });
    let workers = settled(&server, 2);
    assert!(pids(&mut silent).is_subset(&workers));
    server.signal(Signal::SIGTERM);
    for client in idle.iter_mut().chain(&mut silent) {
        client.expect_end();
    }
    let ended = server.end_well();
    // Each connection counts as accepted once, although it has moved several times.
    let finished = ended.notices.last().expect("some");
    assert_eq!(finished["connections"], 50 + 10 + 4);
    assert!(
        finished["handed_over"].as_u64() >= Some(5 * 60),
        "{finished}"
    );
    let cut = |notice: &&serde_json::Value| notice["cut"].as_u64() > Some(0);
    assert_eq!(ended.notices.iter().find(cut), None);
}

fn twenty_reloads_leave_nothing_behind() {
    let mut server = Server::start(&["--workers", "1", "--respond", "hi", "--worker-header"]);
    let address = server.address();
    let of_worker = |server: &Server| descriptors(server.workers()[0]);
    let mut clients = connect(address, 5);
    let before = (descriptors(server.pid), of_worker(&server));
    for _ in 0..20 {
        server.reload();
        server.wait("worker_exited");
    }
    assert_eq!(pids(&mut clients).len(), 1);
    until(|| (descriptors(server.pid), of_worker(&server)) == before);
}

fn a_request_that_has_begun_gets_its_response_before_its_connection_moves() {
    let arguments = ["--workers", "1", "--respond", "hi", "--worker-header"];
    let mut server = Server::start(&[&arguments[..], &["--delay", "500ms"]].concat());
    let address = server.address();
    let old = server.workers()[0].as_raw().unsigned_abs();
    let mut busy = Client::connect(address);
    let mut half = Client::connect(address);
    let mut pipelined = Client::connect(address);
    busy.ask("/");
    // The first response shows that the worker has read the half of the second request too.
    half.send("GET / HTTP/1.1\r\nHost: test\r\n\r\nGET / HT");
    assert_eq!(half.response().worker("pid"), old);
    busy.response();
    busy.ask("/");
    pipelined.ask("/");
    pipelined.ask("/");
    server.signal(Signal::SIGHUP);
    server.wait("worker_draining");
    half.send("TP/1.1\r\nHost: test\r\n\r\n");
    for client in [&mut busy, &mut pipelined] {
        let response = client.response();
        assert_eq!(response.header("connection"), None);
        assert_eq!(response.worker("pid"), old);
    }
    let new = settled(&server, 1);
    assert!(!new.contains(&old));
    pipelined.response();
    assert_eq!(half.response().header("connection"), None);
    for client in [busy, half, pipelined] {
        assert!(pids(&mut [client]).is_subset(&new));
    }
}

fn an_upgrade_closes_no_connection() {
    let installed = Installed::new(BINARY);
    let mut server = installed.start(&["--workers", "2", "--respond", "hi", "--worker-header"]);
    let address = server.address();
    let mut idle = connect(address, 30);
    let over = AtomicBool::new(false);
    let counts = [AtomicUsize::new(0)];
    std::thread::scope(|scope| {
        let load = scope.spawn(|| keep_busy(address, &over, &counts[0]));
        let over = Over(&over);
        answered_by(&counts, 1);
        for upgrades in 1..=2 {
            installed.replace(BINARY);
            server.upgrade();
            let workers = settled(&server, 2);
            assert!(pids(&mut idle).is_subset(&workers), "{workers:?}");
            answered_by(&counts, 1 + upgrades);
        }
        drop(over);
        load.join().expect("no request failed");
    });
}

fn a_failed_canary_hands_its_connections_back() {
    fail_with_canary(&[], |address| [(); 8].map(|()| Client::connect(address)));
}

/// The canary accepts all connections while the others stand still. Then the master finds another
/// file than the canary's.
pub(crate) fn fail_with_canary<S: Read + Write>(
    variables: &[(&str, PathBuf)],
    connect: impl FnOnce(SocketAddr) -> [Client<S>; 8],
) {
    let installed = Installed::new(this());
    let gate = installed.beside("gate");
    let mut command = Command::new(installed.path());
    command.env(apps::VARIABLE, "gated").env(GATE, &gate);
    let mut server = Server::spawn(command.envs(variables.iter().cloned()));
    let address = server.address();
    let old = server.workers()[0];
    mkfifo(&gate, Mode::S_IRWXU).expect("a new name");
    server.signal(Signal::SIGUSR2);
    server.wait_for("worker_spawned", |spawned| spawned["generation"] == 2);
    for pid in [server.pid, old] {
        kill(pid, Signal::SIGSTOP).expect("it lives");
    }
    fs::write(&gate, "").expect("the canary reads it");
    let hello = |client: &mut Client<S>| {
        let response = client.get("/");
        assert_eq!(response.body, "hello");
        assert_eq!(response.header("connection"), None, "it stays open");
    };
    let mut clients = connect(address);
    clients.iter_mut().for_each(hello);
    installed.replace(this());
    for pid in [old, server.pid] {
        kill(pid, Signal::SIGCONT).expect("it lives");
    }
    server.wait("upgrade_abandoned");
    until(|| server.workers() == [old]);
    clients.iter_mut().for_each(hello);
    let finished = server.stop().notices.pop().expect("some");
    assert_eq!(finished["handed_over"], 8);
}

fn removing_slots_closes_no_connection() {
    let mut server = Server::start(&["--workers", "3", "--respond", "hi", "--worker-header"]);
    let address = server.address();
    let mut clients = Vec::new();
    // Until each slot has some connections.
    while pids(&mut clients).len() < 3 {
        clients.extend(connect(address, 20));
    }
    for workers in [2, 1] {
        server.signal(Signal::SIGTTOU);
        assert_eq!(server.wait("resized")["workers"], workers);
    }
    let last = settled(&server, 1);
    assert_eq!(pids(&mut clients), last);
}

fn a_worker_that_gets_a_drain_signal_hands_its_connections_over() {
    let mut server = Server::start(&["--workers", "1", "--respond", "hi", "--worker-header"]);
    let address = server.address();
    let mut clients = connect(address, 20);
    for signal in [Signal::SIGTERM, Signal::SIGQUIT] {
        let pid = server.workers()[0];
        kill(pid, signal).expect("it lives");
        server.wait_for("worker_exited", |exited| pid_of(exited) == pid);
        let next = settled(&server, 1);
        assert_eq!(pids(&mut clients), next);
    }
}

fn recycling_closes_no_connection() {
    let arguments = ["--max-requests", "40", "--respond", "hi", "--worker-header"];
    let mut server = Server::start(&arguments);
    let address = server.address();
    let mut idle = connect(address, 10);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let loads = [0; 2].map(|_| scope.spawn(|| keep_busy(address, &over, &AtomicUsize::new(0))));
        let over = Over(&over);
        for _ in 0..4 {
            server.wait("worker_draining");
        }
        drop(over);
        for load in loads {
            load.join().expect("no request failed");
        }
    });
    pids(&mut idle);
}

/// Connections wait in the inbox: the worker that sent them has exited, and the next worker is
/// full. Then the next worker is killed.
fn connections_in_an_inbox_outlive_sender_and_receiver() {
    let mut server = Server::start_app("patient");
    let first = pid_of(&server.wait("worker_ready"));
    let address = server.address();
    let mut clients = connect(address, 3);
    let full = descriptors(first);
    // These wait in the queue until there is another worker.
    clients.extend((0..3).map(|_| Client::connect(address)));
    server.signal(Signal::SIGHUP);
    server.wait_for("worker_exited", |exited| pid_of(exited) == first);
    let second = server.workers()[0];
    until(|| descriptors(second) == full);
    kill(second, Signal::SIGKILL).expect("it lives");
    let exited = server.wait_for("worker_exited", |exited| pid_of(exited) == second);
    assert_eq!(
        exited["cut"], 3,
        "it took over no more than its limit allows"
    );
    let third = pid_of(&server.wait("worker_ready")).as_raw().unsigned_abs();
    let mut lost = 0;
    for client in &mut clients {
        client.ask("/");
        match client.try_response() {
            Ok(response) => assert_eq!(response.worker("pid"), third),
            Err(_) => lost += 1,
        }
    }
    assert_eq!(lost, 3, "the connections of the killed worker");
}

/// Sends a request on each connection, and closes it after the response, so that the worker can
/// take over another.
fn ask_all(clients: Vec<Client>) -> BTreeSet<u32> {
    std::thread::scope(|scope| {
        let responses = clients.into_iter().map(|mut client| {
            client.ask("/");
            scope.spawn(move || {
                let response = client.response();
                assert_eq!(response.header("connection"), None);
                response.worker("pid")
            })
        });
        let responses: Vec<_> = responses.collect();
        let pids = responses.into_iter().map(|response| response.join());
        pids.map(|pid| pid.expect("a response")).collect()
    })
}

fn a_full_worker_takes_over_connections_as_others_close() {
    let mut server = Server::start_app("patient");
    let first = pid_of(&server.wait("worker_ready"));
    let address = server.address();
    let mut clients = connect(address, 3);
    clients.extend((0..3).map(|_| Client::connect(address)));
    server.signal(Signal::SIGHUP);
    server.wait_for("worker_exited", |exited| pid_of(exited) == first);
    assert_eq!(ask_all(clients), settled(&server, 1));
}

/// The kernel closes a connection that a process receives without a free descriptor for it.
fn no_connection_is_taken_over_without_a_free_descriptor() {
    // The worker has 14 connections at most, and itself more than 14 descriptors.
    let script = "ulimit -n 28; exec \"$0\" --listen 127.0.0.1:0 --workers 1 --respond hi \
                  --worker-header --announce-fd 1";
    let mut command = Command::new("sh");
    command.args(["-c", script]).arg(binary().get_program());
    let mut server = Server::spawn(&mut command);
    let first = pid_of(&server.wait("worker_ready"));
    let address = server.address();
    // Some connections are open. The others wait in the queue, also for the next worker.
    let clients = Client::connect_many(address, 60);
    until(|| descriptors(first) == 28);
    server.signal(Signal::SIGHUP);
    server.wait("worker_draining");
    assert!(!ask_all(clients).is_empty());
    assert!(server.log().contains("accepting rests"), "{}", server.log());
}

/// More connections than an inbox holds.
fn a_thousand_connections_move_at_once() {
    let mut server = Server::start(&["--workers", "1", "--respond", "hi", "--worker-header"]);
    let address = server.address();
    let mut clients = connect(address, 1000);
    for _ in 0..3 {
        server.signal(Signal::SIGHUP);
        server.wait("worker_exited");
        let worker = settled(&server, 1);
        assert_eq!(pids(&mut clients), worker);
    }
}

/// The next program serves with axum, by `run`.
fn another_http_server_serves_connections_that_are_handed_over() {
    let (installed, mut server) = Installed::app("hello");
    let address = server.address();
    let mut clients = Client::connect_many(address, 10);
    for client in &mut clients {
        assert_eq!(client.get("/").body, "hello");
    }
    let other = format!("{}=axum exec {}", apps::VARIABLE, this().display());
    installed.replace_by_script("/bin/sh", &other);
    server.signal(Signal::SIGUSR2);
    server.wait("reload_finished");
    let workers = settled(&server, 2);
    for client in &mut clients {
        let pid: u32 = client.get("/").body.parse().expect("it sends its pid");
        assert!(workers.contains(&pid), "{pid}");
    }
}

fn connections_to_a_unix_address_move_too() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("app.sock");
    let listen = format!("unix:{}", path.display());
    let mut server = Server::start(&["--listen", &listen, "--respond", "hi", "--worker-header"]);
    server.addresses();
    let mut clients: Vec<_> = (0..20).map(|_| Client::connect_unix(&path)).collect();
    pids(&mut clients);
    server.reload();
    let workers = settled(&server, 2);
    assert!(pids(&mut clients).is_subset(&workers));
    server.signal(Signal::SIGTTOU);
    server.wait("resized");
    let worker = settled(&server, 1);
    assert_eq!(pids(&mut clients), worker);
}

fn the_end_of_the_server_hands_no_connection_over() {
    let mut server = Server::start(&["--workers", "1", "--respond", "hi", "--worker-header"]);
    let address = server.address();
    let mut clients = connect(address, 10);
    let worker = server.workers()[0];
    // So that the worker gets both messages at once.
    kill(worker, Signal::SIGSTOP).expect("it lives");
    server.signal(Signal::SIGTERM);
    server.wait("worker_draining");
    clients
        .iter_mut()
        .take(5)
        .for_each(|client| client.ask("/"));
    kill(worker, Signal::SIGCONT).expect("it lives");
    for client in clients.iter_mut().take(5) {
        let pid = client.response().worker("pid");
        assert_eq!(pid, worker.as_raw().unsigned_abs());
    }
    clients.iter_mut().for_each(Client::expect_end);
    let ended = server.end();
    assert_eq!((ended.code, ended.count("worker_spawned")), (Some(0), 0));
}

/// The server ends while workers hand connections over.
fn a_server_can_end_while_connections_are_handed_over() {
    let mut server = Server::start(&["--workers", "2", "--respond", "hi", "--worker-header"]);
    let address = server.address();
    let mut clients = connect(address, 200);
    server.signal(Signal::SIGHUP);
    server.wait("worker_draining");
    server.signal(Signal::SIGTERM);
    clients.iter_mut().for_each(Client::expect_end);
    server.end_well();
}
