//! No worker outlives its master, and no program that a worker starts becomes a worker.

use std::process::Command;

use nix::sys::signal::Signal;

use crate::client::{Client, get};
use crate::support::{Server, app_after};

tests! {
    workers_finish_and_exit_when_the_master_is_killed,
    a_blocked_worker_does_not_outlive_its_master,
    a_blocked_worker_of_a_server_that_was_started_with_sigalrm_blocked_ends_too,
    a_program_that_a_worker_starts_is_not_a_worker,
}

fn workers_finish_and_exit_when_the_master_is_killed() {
    let mut server = Server::start_app("hooks");
    let hooked = server.address();
    assert_eq!(get(hooked, "/").body, "hello");
    server.signal(Signal::SIGKILL);
    let mut greetings = Vec::new();
    for _ in 0..2 {
        let told = server.wait_for("hook", |told| told["hook"] == "master_died");
        greetings.push(told["more"].as_str().expect("text").to_owned());
    }
    greetings.sort();
    assert_eq!(
        greetings,
        ["slot 0", "slot 1"],
        "the command hook gave this to each worker"
    );
    server.end();

    let mut server = Server::start(&["--respond", "hi", "--delay", "300ms"]);
    let address = server.address();
    let mut clients = Client::ask_many(address, 10, "/");
    server.signal(Signal::SIGKILL);
    for client in &mut clients {
        assert_eq!(client.response().body, "hi");
    }
    // Its standard output has ended: no process is left.
    server.end();
}

fn a_blocked_worker_does_not_outlive_its_master() {
    kill_master_of_blocked_workers(Server::start_app("blocks"));
}

/// A program inherits the signals that its parent has blocked (execve(2)).
fn a_blocked_worker_of_a_server_that_was_started_with_sigalrm_blocked_ends_too() {
    let mut command = Command::new("env");
    let command = app_after(command.arg("--block-signal=ALRM"), "blocks");
    kill_master_of_blocked_workers(Server::spawn(command));
}

fn kill_master_of_blocked_workers(mut server: Server) {
    let address = server.address();
    let mut clients = [Client::connect(address), Client::connect(address)];
    clients.iter_mut().for_each(|client| client.ask("/"));
    server.signal(Signal::SIGKILL);
    // Its standard output ends: no process is left.
    server.end();
}

fn a_program_that_a_worker_starts_is_not_a_worker() {
    let mut server = Server::start_app("starts_programs");
    let address = server.address();
    assert_eq!(get(address, "/").body, "Master");
    assert_eq!(server.workers().len(), 2);
}
