//! Slots whose listeners the worker of another slot accepts from.

use std::fs::File;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use prefork_server::{BoxError, Error, Limit, Request, Response, Worker, service_fn};
use serde_json::Value;

use crate::apps;
use crate::client::Client;
use crate::support::{Server, descriptors, pid_of, until};

tests! {
    a_slot_with_many_addresses_is_adopted_with_all_of_them,
    a_worker_at_its_descriptor_limit_adopts,
    a_failed_adoption_is_announced_and_another_worker_adopts,
    a_worker_without_a_free_descriptor_drains,
}

/// More addresses than one message carried in an earlier version, which lost the rest.
const ADDRESSES: usize = 70;

/// So few that a worker opens them all at once, and more than the clients of a test need.
const OPEN_FILES: u64 = 128;

/// The files that a worker has opened to reach its limit.
static OPENED: Mutex<Vec<File>> = Mutex::new(Vec::new());

/// The path tells a worker how to change its own limit on descriptors.
pub(crate) fn app() -> Result<(), Error> {
    apps::server()
        .workers(3)
        .hooks(apps::WorkersHave(Limit::OpenFiles, OPEN_FILES))
        .serve(async |worker: Worker| {
            let pid = worker.info().pid;
            Ok(service_fn(move |request: Request| async move {
                let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
                let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
                match request.uri().path() {
                    "/fill" => opened.extend(std::iter::from_fn(|| File::open("/dev/null").ok())),
                    "/empty" => opened.clear(),
                    // From now on no descriptor is free, also after others are closed.
                    "/lower" => setrlimit(Resource::RLIMIT_NOFILE, 3, hard)?,
                    "/raise" => setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?,
                    _ => {}
                }
                Ok::<Response, BoxError>(Response::new(pid.to_string().into()))
            }))
        })
}

fn a_slot_with_many_addresses_is_adopted_with_all_of_them() {
    let listen = ["--listen", "127.0.0.1:0"].repeat(ADDRESSES);
    // With balance, workers have descriptors of each other's inboxes too.
    let others = ["--workers", "2", "--respond", "hi", "--balance", "off"];
    let mut server = Server::start(&[&listen[..], &others].concat());
    let ready = [(); 2].map(|()| server.wait("worker_ready"));
    let stays = first_of(&ready);
    let last = pid_of(&ready[1]);
    let addresses = server.addresses();
    assert_eq!(addresses.len(), ADDRESSES);
    // The worker that was ready first had adopted the other slot's listeners until then.
    let alone = descriptors(last);
    until(|| descriptors(stays) == alone);
    let with_adopted = alone + ADDRESSES + 1;
    retire(&mut server, 1);
    until(|| descriptors(stays) == with_adopted);
    for address in &addresses {
        let address = address.parse().expect("a TCP address");
        // Half of the connections come to the retired slot's listener.
        let mut clients = Client::ask_many(address, 8, "/");
        for client in &mut clients {
            assert_eq!(client.response().body, "hi");
        }
    }
    server.signal(Signal::SIGTTIN);
    server.wait("released");
    until(|| descriptors(stays) == alone);
    retire(&mut server, 1);
    until(|| descriptors(stays) == with_adopted);
}

fn a_worker_at_its_descriptor_limit_adopts() {
    let mut server = Server::start_app("few_files");
    let ready = [(); 3].map(|()| server.wait("worker_ready"));
    let address = server.address();
    let mut first = client_of(address, first_of(&ready));
    first.get("/fill");
    retire(&mut server, 2);
    first.get("/empty");
    all_are_answered(address);
}

fn a_failed_adoption_is_announced_and_another_worker_adopts() {
    let mut server = Server::start_app("few_files");
    let ready = [(); 3].map(|()| server.wait("worker_ready"));
    let address = server.address();
    let mut first = client_of(address, first_of(&ready));
    first.get("/lower");
    server.signal(Signal::SIGTTOU);
    let failed = server.wait("not_adopted");
    assert_eq!((&failed["slot"], &failed["by"]), (&2.into(), &0.into()));
    let adopted = server.wait("adopted");
    assert_eq!((&adopted["slot"], &adopted["by"]), (&2.into(), &1.into()));
    first.get("/raise");
    all_are_answered(address);
}

/// Although accept(2) fails for an empty queue too.
fn a_worker_without_a_free_descriptor_drains() {
    let mut server = Server::start_app("few_files");
    let ready = [(); 3].map(|()| server.wait("worker_ready"));
    let mut first = client_of(server.address(), first_of(&ready));
    first.get("/lower");
    server.stop();
}

fn first_of(ready: &[Value]) -> Pid {
    let first = ready.iter().find(|ready| ready["slot"] == 0);
    pid_of(first.expect("slot 0 is ready"))
}

/// A connection that this worker serves.
fn client_of(address: SocketAddr, worker: Pid) -> Client {
    loop {
        let mut client = Client::connect(address);
        if client.get("/").body == worker.to_string() {
            return client;
        }
    }
}

/// Some of the connections come to the retired slot's listener.
fn all_are_answered(address: SocketAddr) {
    let mut clients = Client::ask_many(address, 40, "/");
    for client in &mut clients {
        client.response();
    }
}

fn retire(server: &mut Server, slot: u64) {
    server.signal(Signal::SIGTTOU);
    server.wait_for("adopted", |adopted| adopted["slot"] == slot);
    server.wait_for("worker_exited", |exited| exited["slot"] == slot);
}
