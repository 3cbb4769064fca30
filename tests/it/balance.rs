//! Busy connections that are handed over to a worker with less to do.

use std::net::SocketAddr;
use std::time::Instant;

use nix::sys::signal::Signal;

use crate::client::Client;
use crate::support::{CEILING, Server};

tests! {
    busy_connections_of_one_worker_are_spread_over_both,
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
    server.signal(Signal::SIGTERM);
    let ended = server.end();
    assert_eq!(ended.code, Some(0), "{}", ended.log);
    let finished = ended.notices.last().expect("some");
    assert!(finished["handed_over"].as_u64() >= Some(2), "{finished}");
    let cut = |notice: &serde_json::Value| notice["cut"].as_u64() > Some(0);
    assert!(!ended.notices.iter().any(cut));
}
