//! Signals find the master, whatever else the program does and whoever started it.

use std::process::Command;

use nix::sys::signal::{Signal, kill};

use crate::apps;
use crate::support::{Server, pid_of};

tests! {
    a_program_with_threads_hears_them_all,
    a_starter_that_ignored_the_end_of_processes_does_no_harm,
    a_worker_that_dies_of_a_real_time_signal_is_replaced,
    one_that_comes_at_the_very_end_does_not_change_the_outcome,
}

fn a_program_with_threads_hears_them_all() {
    let mut server = Server::start_app("threads");
    let pid = pid_of(&server.wait("worker_ready"));
    server.address();
    kill(pid, Signal::SIGKILL).expect("it lives");
    server.wait_for("worker_exited", |exited| pid_of(exited) == pid);
    server.signal(Signal::SIGHUP);
    server.wait("reload_finished");
    server.signal(Signal::SIGTERM);
    let ended = server.end();
    assert_eq!(ended.code, Some(0), "{}", ended.log);
}

/// Who ignores `SIGCHLD` hands that on to what it starts (execve(2)), and the kernel then buries
/// the dead without a word.
fn a_starter_that_ignored_the_end_of_processes_does_no_harm() {
    let mut command = Command::new("env");
    command
        .arg("--ignore-signal=CHLD")
        .arg(std::env::current_exe().expect("a path"))
        .env(apps::VARIABLE, "hello");
    let mut server = Server::spawn(&mut command);
    let pid = pid_of(&server.wait("worker_ready"));
    server.address();
    kill(pid, Signal::SIGKILL).expect("it lives");
    server.wait_for("worker_exited", |exited| pid_of(exited) == pid);
    server.signal(Signal::SIGTERM);
    let ended = server.end();
    assert_eq!(ended.code, Some(0), "{}", ended.log);
}

fn a_worker_that_dies_of_a_real_time_signal_is_replaced() {
    let mut server = Server::start_app("hello");
    let pid = pid_of(&server.wait("worker_ready"));
    server.address();
    let killed = Command::new("sh")
        .args(["-c", &format!("kill -40 {pid}")])
        .status()
        .expect("there is a shell");
    assert!(killed.success());
    let exited = server.wait_for("worker_exited", |exited| pid_of(exited) == pid);
    assert_eq!(exited["status"], "signal 40");
    server.wait("worker_ready");
}

fn one_that_comes_at_the_very_end_does_not_change_the_outcome() {
    let mut server = Server::start_app("late_signal");
    server.address();
    server.signal(Signal::SIGTERM);
    let ended = server.end();
    assert_eq!(ended.code, Some(0), "{}", ended.log);
}
