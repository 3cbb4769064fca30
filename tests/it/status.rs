//! The status of a server, as its handles see it.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;

use nix::sys::signal::{Signal, kill};
use prefork_server::{
    Error, Handle, Hooks, Notice, Response, Role, ServerState, TestServer, WorkerState, handler,
    role,
};
use serde_json::{Value, json};

use crate::apps::server;
use crate::client::{Client, get};
use crate::support::{Server, until};

tests! {
    a_server_in_this_process_has_one_worker_and_counts,
    a_hook_sees_each_state_of_slots_and_workers,
    totals_do_not_fall_while_workers_end,
    a_worker_has_no_status_of_the_server,
}

fn a_server_in_this_process_has_one_worker_and_counts() {
    let server = TestServer::start(async |worker| {
        Ok(handler(move |_request| {
            let worker = worker.clone();
            async move {
                let inside = worker.handle().status().expect("it runs");
                Ok(Response::new(inside.totals.requests.to_string().into()))
            }
        }))
    });
    let server = server.expect("it serves");
    let handle = server.handle().clone();
    let mut client = Client::connect(server.address());
    assert_eq!(client.get("/").body, "1");
    assert_eq!(client.get("/").body, "2");
    let counted = || handle.status().expect("it runs");
    // The client may have its response before the request has ended.
    until(|| counted().slots[0].workers[0].requests == 0);
    let status = counted();
    assert_eq!(status.state, ServerState::Serving);
    assert_eq!(status.addresses, [server.address().into()]);
    assert_eq!((status.totals.requests, status.workers), (2, 1));
    let [slot] = &status.slots[..] else {
        panic!("one slot: {status:?}")
    };
    let [worker] = &slot.workers[..] else {
        panic!("one worker: {status:?}")
    };
    assert_eq!(
        (worker.state, worker.connections),
        (WorkerState::Serving, 1)
    );
    assert_eq!(worker.worker.pid, std::process::id());
    drop(server);
    assert_eq!(handle.status(), None);
}

/// Writes the status after each notice to the announce stream.
struct Watcher(Handle);

impl Hooks for Watcher {
    fn notice(&mut self, notice: &Notice) {
        let Some(status) = self.0.status() else {
            return;
        };
        let slots = status.slots.iter().map(|slot| {
            let workers = slot.workers.iter();
            let workers = workers.map(|it| format!("{:?} {}", it.state, it.worker.generation));
            workers.collect::<Vec<_>>().join(", ")
        });
        println!(
            "{}",
            json!({
                "notice": "status",
                "after": notice.name(),
                "state": format!("{:?}", status.state),
                "generation": status.generation.0,
                "workers": status.workers,
                "slots": slots.collect::<Vec<_>>(),
                "falls": FALLS.load(Relaxed),
            })
        );
    }
}

pub(crate) fn app() -> Result<(), Error> {
    let mut server = server();
    let handle = server.handle()?;
    if role() == Role::Master {
        let handle = handle.clone();
        thread::spawn(move || watch_totals(&handle));
    }
    server.hooks(Watcher(handle)).serve(async |worker| {
        Ok(handler(move |_request| {
            let handle = worker.handle().clone();
            async move { Ok(Response::new(format!("{:?}", handle.status()).into())) }
        }))
    })
}

/// How often the count of requests was lower than before.
static FALLS: AtomicU64 = AtomicU64::new(0);

fn watch_totals(handle: &Handle) {
    let mut last = 0;
    assert!(handle.wait_serving().is_some(), "it serves");
    while let Some(status) = handle.status() {
        let now = status.totals.requests;
        FALLS.fetch_add(u64::from(now < last), Relaxed);
        last = now;
        thread::yield_now();
    }
}

fn after(server: &mut Server, name: &str) -> Value {
    server.wait_for("status", |status| status["after"] == name)
}

fn a_hook_sees_each_state_of_slots_and_workers() {
    let mut server = Server::start_app("status");
    let spawned = after(&mut server, "worker_spawned");
    assert_eq!(spawned["state"], "Starting");
    assert_eq!(spawned["slots"], json!(["Starting 1", ""]));
    let serving = after(&mut server, "serving");
    assert_eq!(serving["state"], "Serving");
    assert_eq!(serving["slots"], json!(["Serving 1", "Serving 1"]));
    server.signal(Signal::SIGHUP);
    let spawned = after(&mut server, "worker_spawned");
    assert_eq!(
        (&spawned["state"], &spawned["generation"]),
        (&json!("Reloading"), &json!(1))
    );
    assert_eq!(
        spawned["slots"],
        json!(["Serving 1, Starting 2", "Serving 1"])
    );
    let draining = after(&mut server, "worker_draining");
    assert_eq!(draining["slots"][0], "Serving 2, Draining 1");
    let finished = after(&mut server, "reload_finished");
    assert_eq!(
        (&finished["state"], &finished["generation"]),
        (&json!("Serving"), &json!(2))
    );
    server.signal(Signal::SIGTTIN);
    let resized = after(&mut server, "resized");
    assert_eq!(
        (
            &resized["workers"],
            resized["slots"].as_array().map(Vec::len)
        ),
        (&json!(3), Some(3))
    );
    server.signal(Signal::SIGTERM);
    assert_eq!(after(&mut server, "draining")["state"], "Draining");
    server.end_well();
}

fn totals_do_not_fall_while_workers_end() {
    let mut server = Server::start_app("status");
    let address = server.address();
    for _ in 0..3 {
        for _ in 0..20 {
            get(address, "/");
        }
        // The workers that drain after the reload have ended.
        until(|| server.workers().len() == 2);
        let pid = server.workers()[0];
        kill(pid, Signal::SIGKILL).expect("it lives");
        server.wait("worker_ready");
        for _ in 0..4 {
            server.reload();
        }
    }
    server.signal(Signal::SIGTERM);
    assert_eq!(after(&mut server, "finished")["falls"], 0);
    assert_eq!(server.wait("finished")["requests"], 60);
    server.end_well();
}

fn a_worker_has_no_status_of_the_server() {
    let mut server = Server::start_app("status");
    let address = server.address();
    assert_eq!(get(address, "/").body, "None");
}
