//! The end that was asked for.

use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};

use crate::client::Client;
use crate::support::{Server, pid_of};

pub(crate) fn term_answers_what_is_open() {
    let mut server = Server::start(&["--respond", "hi", "--delay", "500ms"]);
    let address = server.address();
    let mut clients: Vec<_> = (0..50).map(|_| Client::connect(address)).collect();
    clients.iter_mut().for_each(|client| client.ask("/"));
    server.signal(Signal::SIGTERM);
    server.wait("draining");
    for client in &mut clients {
        let answer = client.answer();
        assert_eq!(answer.body, "hi");
        assert_eq!(answer.header("connection"), Some("close"));
        client.expect_end();
    }
    let ended = server.end();
    assert_eq!(ended.code, Some(0), "{}", ended.log);
    let exits = ended
        .notices
        .iter()
        .filter(|notice| notice["notice"] == "worker_exited");
    assert!(exits.clone().count() == 2 && exits.into_iter().all(|exit| exit["cut"] == 0));
}

pub(crate) fn an_idle_connection_gets_one_more_answer() {
    // One worker, drained by a signal of its own: the master spawns another beside it.
    let mut server = Server::start(&["--workers", "1", "--respond", "hi"]);
    let pid = pid_of(&server.wait("worker_ready"));
    let address = server.address();
    let mut idle = Client::connect(address);
    assert_eq!(idle.get("/").header("connection"), None);
    // The request that keeps the worker from ending is the fact that it drains.
    let mut other = Client::connect(address);
    assert_eq!(other.get("/").body, "hi");
    kill(pid, Signal::SIGTERM).expect("it lives");
    other.expect_end();
    server.wait_for("worker_exited", |exited| pid_of(exited) == pid);
    idle.expect_end();
}

pub(crate) fn a_client_that_never_reads_is_cut_at_the_deadline() {
    let mut server = Server::start(&[
        "--workers",
        "1",
        "--echo",
        "--max-body-size",
        "64MiB",
        "--drain-timeout",
        "300ms",
    ]);
    let address = server.address();
    let mut client = Client::connect(address);
    let size = 16 << 20;
    client.send(&format!(
        "POST / HTTP/1.1\r\nHost: test\r\nContent-Length: {size}\r\n\r\n"
    ));
    client.send_until_blocked();
    let asked = Instant::now();
    server.signal(Signal::SIGTERM);
    let exited = server.wait("worker_exited");
    assert!(asked.elapsed() >= Duration::from_millis(300));
    assert_eq!(
        (&exited["cut"], &exited["status"]),
        (&1.into(), &"exit 0".into())
    );
    assert_eq!(server.end().code, Some(0));
}

pub(crate) fn a_second_signal_stops_at_once() {
    let mut server = Server::start(&["--respond", "hi", "--delay", "1h"]);
    let address = server.address();
    let mut client = Client::connect(address);
    client.ask("/");
    server.signal(Signal::SIGINT);
    server.wait("draining");
    server.signal(Signal::SIGINT);
    let ended = server.end();
    assert_eq!(ended.code, Some(0), "{}", ended.log);
    assert_eq!(ended.notices.last().expect("some")["outcome"], "stopped");
    assert!(client.try_answer().is_err());
}
