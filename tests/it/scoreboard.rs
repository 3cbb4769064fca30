//! The totals of all workers.

use nix::sys::signal::{Signal, kill};

use crate::client::{Client, get};
use crate::support::{Server, pid_of};

tests! {
    totals_outlive_crash_and_reload,
}

fn totals_outlive_crash_and_reload() {
    let mut server = Server::start(&["--respond", "hi", "--workers", "1"]);
    let first = pid_of(&server.wait("worker_ready"));
    let address = server.address();
    let mut client = Client::connect(address);
    for _ in 0..5 {
        client.get("/");
    }
    kill(first, Signal::SIGKILL).expect("it lives");
    server.wait("worker_ready");
    for _ in 0..3 {
        get(address, "/");
    }
    server.reload();
    get(address, "/");
    let ended = server.stop();
    let finished = ended.notices.last().expect("some");
    assert_eq!(finished["requests"], 5 + 3 + 1);
    assert_eq!(finished["connections"], 1 + 3 + 1);
    assert_eq!(finished["responses_5xx"], 0);
    // "hi", and a head.
    assert!(finished["bytes_out"].as_u64() > Some(9 * 40), "{finished}");
    let line = "drained: 9 requests on 5 connections";
    assert!(ended.log.contains(line), "{}", ended.log);
}
