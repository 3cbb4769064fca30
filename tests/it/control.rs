//! Messages of the master arrive although the worker reads its channel late.

use nix::sys::signal::{Signal, kill};

use crate::support::{Server, pid_of};

tests! {
    a_drain_arrives_although_the_channel_was_full,
    a_worker_still_receives_messages_after_a_hook_panicked,
}

fn a_drain_arrives_although_the_channel_was_full() {
    let mut server = Server::start_app("hooks");
    let pid = pid_of(&server.wait("worker_ready"));
    server.address();
    kill(pid, Signal::SIGSTOP).expect("it lives");
    let in_master = |told: &serde_json::Value| {
        told["hook"] == "reopen_logs" && told["more"].as_str() == Some("Master")
    };
    // A channel takes about 280 messages (unix(7), `SO_SNDBUF`).
    for _ in 0..600 {
        server.signal(Signal::SIGUSR1);
        server.wait_for("hook", in_master);
    }
    server.signal(Signal::SIGTERM);
    server.wait("draining");
    kill(pid, Signal::SIGCONT).expect("it lives");
    let exited = server.wait_for("worker_exited", |exited| pid_of(exited) == pid);
    assert_eq!(exited["status"], "exit 0");
    assert_eq!(server.end().code, Some(0));
}

fn a_worker_still_receives_messages_after_a_hook_panicked() {
    let mut server = Server::start_app("panicking_hook");
    server.address();
    server.signal(Signal::SIGUSR1);
    server.wait_for("hook", |told| told["hook"] == "reopen_logs");
    server.signal(Signal::SIGTERM);
    let exited = server.wait("worker_exited");
    assert_eq!(exited["status"], "exit 0");
    assert_eq!(server.end().code, Some(0));
}
