//! Busy connections that are handed over to a worker with less to do.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use prefork_server::{Error, Request, Response, Worker, service_fn};

use crate::apps;
use crate::client::{Client, Over};
use crate::support::{CEILING, Server};

tests! {
    busy_connections_of_one_worker_are_spread_over_both,
    connections_leave_a_worker_that_one_client_keeps_busy,
}

/// Tells the worker. One path takes long.
pub(crate) fn app() -> Result<(), Error> {
    apps::server().serve(async |worker: Worker| {
        let slot = worker.slot().0.to_string();
        Ok(service_fn(move |request: Request| {
            let slot = slot.clone();
            async move {
                let begun = Instant::now();
                let is_long = request.uri().path() == "/long";
                while is_long && begun.elapsed() < Duration::from_millis(50) {}
                Ok::<Response, Infallible>(Response::new(slot.into()))
            }
        }))
    })
}

/// Connections that one worker has accepted. With few clients this happens by chance.
fn of_one_worker(address: SocketAddr, count: usize) -> Vec<Client> {
    let mut clients = Vec::new();
    while clients.len() < count {
        let mut client = Client::connect(address);
        if client.get("/").worker("slot") == 0 {
            clients.push(client);
        }
    }
    clients
}

/// How many of the clients each of two slots serves.
fn spread(clients: &mut [Client]) -> [usize; 2] {
    let mut spread = [0; 2];
    for client in clients {
        let response = client.get("/");
        assert!(response.body == "hi", "{}", response.body);
        spread[response.worker("slot") as usize] += 1;
    }
    spread
}

fn busy_connections_of_one_worker_are_spread_over_both() {
    let mut server = Server::start(&["--respond", "hi", "--worker-header"]);
    let address = server.address();
    let idle = of_one_worker(address, 3);
    let mut clients = of_one_worker(address, 4);
    let begun = Instant::now();
    while spread(&mut clients) != [2, 2] {
        assert!(begun.elapsed() < CEILING, "no connection is handed over");
    }
    drop(idle);
    let ended = server.stop();
    let finished = ended.notices.last().expect("some");
    assert!(finished["handed_over"].as_u64() >= Some(2), "{finished}");
    let cut = |notice: &serde_json::Value| notice["cut"].as_u64() > Some(0);
    assert!(!ended.notices.iter().any(cut));
}

/// Numbers are nearly even, and one of the workers has no time for its clients.
fn connections_leave_a_worker_that_one_client_keeps_busy() {
    let mut server = Server::start_app("computes");
    let address = server.address();
    let mut greedy = Client::connect(address);
    let mut clients = Client::connect_many(address, 6);
    let is_over = AtomicBool::new(false);
    let busy = Mutex::new(String::new());
    thread::scope(|scope| {
        scope.spawn(|| {
            greedy.ask("/long");
            while !is_over.load(Ordering::Relaxed) {
                // The worker has one request more before its response is read.
                greedy.ask("/long");
                *busy.lock().expect("a slot") = greedy.response().body;
            }
        });
        let _over = Over(&is_over);
        let begun = Instant::now();
        let mut are_away = || {
            let slots = clients.iter_mut().map(|client| client.get("/").body);
            let slots: Vec<_> = slots.collect();
            let busy = busy.lock().expect("a slot");
            !busy.is_empty() && slots.iter().all(|slot| *slot != *busy)
        };
        while !are_away() && begun.elapsed() < CEILING {}
        assert!(
            begun.elapsed() < CEILING,
            "clients stay beside the busy one"
        );
    });
    server.stop();
}
