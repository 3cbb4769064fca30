//! Slots that are added and removed while clients connect. The kernel gives each listener its share
//! of the new connections, so each listener must have a worker that accepts from it.

use std::net::SocketAddr;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use prefork_server::{Backoff, CrashLimit, Error, Slot, Worker, service_fn};

use crate::apps;
use crate::client::Client;
use crate::support::{Server, pid_of};

tests! {
    clients_are_served_while_the_worker_of_a_new_slot_starts,
    clients_are_served_after_a_slot_was_added_and_removed_at_once,
    clients_are_served_while_the_worker_of_a_new_slot_keeps_crashing,
    the_last_worker_that_serves_is_retired_when_another_is_ready,
}

/// Connects 80 clients at once. With two listeners each gets about 40 of them.
fn all_are_answered(address: SocketAddr) {
    let mut clients = Client::ask_many(address, 80, "/");
    for client in &mut clients {
        assert_eq!(client.response().body, "hello");
    }
}

fn clients_are_served_while_the_worker_of_a_new_slot_starts() {
    let mut server = Server::start_app("slow_slots");
    let address = server.address();
    server.signal(Signal::SIGTTIN);
    server.wait_for("worker_spawned", |spawned| spawned["slot"] == 1);
    all_are_answered(address);
    let ended = server.stop();
    assert_eq!(ended.count("worker_ready"), 0, "{}", ended.log);
}

fn clients_are_served_after_a_slot_was_added_and_removed_at_once() {
    let mut server = Server::start_app("slow_slots");
    let address = server.address();
    server.signal(Signal::SIGTTIN);
    server.signal(Signal::SIGTTOU);
    assert_eq!(server.wait("resized")["workers"], 2);
    assert_eq!(server.wait("resized")["workers"], 1);
    server.wait_for("worker_exited", |exited| exited["slot"] == 1);
    all_are_answered(address);
    server.stop();
}

fn clients_are_served_while_the_worker_of_a_new_slot_keeps_crashing() {
    let mut server = Server::start_app("crashing_slots");
    let address = server.address();
    server.signal(Signal::SIGTTIN);
    server.wait_for("backing_off", |rests| rests["slot"] == 1);
    all_are_answered(address);
    server.stop();
}

fn the_last_worker_that_serves_is_retired_when_another_is_ready() {
    let mut server = Server::start_app("long_pauses");
    let mut first = pid_of(&server.wait_for("worker_spawned", |spawned| spawned["slot"] == 0));
    let address = server.address();
    kill(first, Signal::SIGKILL).expect("it lives");
    first = pid_of(&server.wait_for("worker_ready", |ready| ready["slot"] == 0));
    kill(first, Signal::SIGKILL).expect("it lives");
    server.wait_for("backing_off", |rests| rests["slot"] == 0);
    server.signal(Signal::SIGTTOU);
    all_are_answered(address);
    server.wait_for("worker_ready", |ready| ready["slot"] == 0);
    server.wait_for("worker_draining", |draining| draining["slot"] == 1);
    all_are_answered(address);
    server.stop();
}

/// Only the first slot's worker becomes ready.
pub(crate) fn slow_slots() -> Result<(), Error> {
    apps::server().workers(1).serve(async |worker: Worker| {
        if worker.slot() != Slot(0) {
            worker.drain().await;
        }
        Ok(service_fn(apps::hello))
    })
}

/// The workers of all slots but the first fail before they are ready.
pub(crate) fn crashing_slots() -> Result<(), Error> {
    let limit = CrashLimit::new(1000, Duration::from_secs(60));
    let server = apps::server().workers(1).crash_limit(limit);
    server.serve(async |worker: Worker| match worker.slot() {
        Slot(0) => Ok(service_fn(apps::hello)),
        _ => Err("this slot has no database".into()),
    })
}

/// A slot's second crash makes it rest for half an hour or more.
pub(crate) fn long_pauses() -> Result<(), Error> {
    let pause = Duration::from_secs(3600);
    let backoff = Backoff::new().first(pause).max(pause).reset_after(pause);
    let server = apps::server().backoff(backoff);
    server.serve(async |_| Ok(service_fn(apps::hello)))
}
