//! Messages of the master arrive although the worker reads its channel late, and messages to the
//! master although it may not wait for so many descriptors, or their sender has ended.

use nix::sys::signal::{Signal, kill};

use crate::admin::{Watched, ask};
use crate::support::{Server, pid_of, proc_file, until};

tests! {
    a_drain_arrives_although_the_channel_was_full,
    a_worker_still_receives_messages_after_a_hook_panicked,
    a_master_whose_limit_on_descriptors_is_lowered_goes_on,
    the_commands_of_an_admin_process_that_was_killed_are_carried_out,
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
    server.end_well();
}

fn a_worker_still_receives_messages_after_a_hook_panicked() {
    let mut server = Server::start_app("panicking_hook");
    server.address();
    server.signal(Signal::SIGUSR1);
    server.wait_for("hook", |told| told["hook"] == "reopen_logs");
    server.signal(Signal::SIGTERM);
    let exited = server.wait("worker_exited");
    assert_eq!(exited["status"], "exit 0");
    server.end_well();
}

fn a_master_whose_limit_on_descriptors_is_lowered_goes_on() {
    let mut server = Server::start(&["--respond", "hi", "--workers", "8"]);
    server.address();
    let limits = || proc_file(server.pid, "limits").expect("it lives");
    let before = limits();
    server.limit_descriptors("8:");
    // Wakes the master, and means nothing.
    server.signal(Signal::SIGWINCH);
    until(|| limits() == before);
    server.reload();
    // It cannot raise the hard limit, or start a worker.
    server.limit_descriptors("8:8");
    server.signal(Signal::SIGHUP);
    server.wait("reload_abandoned");
    // It hears of the end of its workers.
    let ended = server.stop();
    let times = ended.log.matches("poll(2) failed").count();
    assert!((2..20).contains(&times), "{}", ended.log);
}

fn the_commands_of_an_admin_process_that_was_killed_are_carried_out() {
    let mut watched = Watched::start(&["--workers", "1"]);
    watched.server.address();
    until(|| watched.get("/readyz").body == "ready\n");
    let admin = watched.admin();
    kill(watched.server.pid, Signal::SIGSTOP).expect("it lives");
    for command in ["/v1/logs/reopen", "/v1/workers/2", "/v1/slots/0/recycle"] {
        let given = ask(&watched.socket, "POST", command);
        assert_eq!(given.status(), 202, "{given:?}");
    }
    kill(admin, Signal::SIGKILL).expect("it lives");
    // It has ended, and the master has not reaped it.
    until(|| proc_file(admin, "stat").is_some_and(|stat| stat.contains(") Z ")));
    kill(watched.server.pid, Signal::SIGCONT).expect("it lives");
    watched.server.wait("resized");
    watched.server.wait("worker_draining");
}
