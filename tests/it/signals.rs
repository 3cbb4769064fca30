//! Signals reach the master in a program with threads, and with signals that its parent ignored.

use std::process::Command;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use prefork_server::{BoxError, Error, Hooks, Notice, WorkerInfo, service_fn};

use crate::apps;
use crate::support::{Server, app_after, pid_of};

tests! {
    a_program_with_threads_receives_all_signals,
    workers_are_reaped_when_the_server_was_started_with_sigchld_ignored,
    a_worker_that_dies_of_a_real_time_signal_is_replaced,
    a_signal_is_received_before_all_workers_are_spawned,
    a_signal_at_the_very_end_does_not_change_the_outcome,
}

fn a_program_with_threads_receives_all_signals() {
    let mut server = Server::start_app("threads");
    let pid = pid_of(&server.wait("worker_ready"));
    server.address();
    kill(pid, Signal::SIGKILL).expect("it lives");
    server.wait_for("worker_exited", |exited| pid_of(exited) == pid);
    server.reload();
    server.stop();
}

/// A program inherits an ignored `SIGCHLD` (execve(2)). Then the kernel reaps the program's
/// processes, and the program gets neither a signal nor a status.
fn workers_are_reaped_when_the_server_was_started_with_sigchld_ignored() {
    let mut command = Command::new("env");
    let command = app_after(command.arg("--ignore-signal=CHLD"), "hello");
    let mut server = Server::spawn(command);
    let pid = pid_of(&server.wait("worker_ready"));
    server.address();
    kill(pid, Signal::SIGKILL).expect("it lives");
    server.wait_for("worker_exited", |exited| pid_of(exited) == pid);
    server.stop();
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

/// A signal that comes when the first worker has been spawned.
struct Early;

impl Hooks for Early {
    fn worker_spawned(&mut self, _worker: &WorkerInfo) -> Result<(), BoxError> {
        kill(Pid::this(), Signal::SIGTERM)?;
        Ok(())
    }
}

/// A signal that comes after the last worker has exited.
struct Late;

impl Hooks for Late {
    fn notice(&mut self, notice: &Notice) {
        if let Notice::Finished { .. } = notice {
            kill(Pid::this(), Signal::SIGHUP).expect("it is this process");
        }
    }
}

pub(crate) fn app(name: &str) -> Result<(), Error> {
    let server = apps::server().workers(3);
    let server = match name {
        "early_signal" => server.hooks(Early),
        _ => server.hooks(Late),
    };
    server.serve(async |_| Ok(service_fn(apps::hello)))
}

fn a_signal_is_received_before_all_workers_are_spawned() {
    let ended = Server::start_app("early_signal").end_well();
    let notices = ended.notices.iter();
    let spawned = notices.filter(|it| it["notice"] == "worker_spawned");
    assert_eq!(spawned.count(), 1);
}

fn a_signal_at_the_very_end_does_not_change_the_outcome() {
    let mut server = Server::start_app("late_signal");
    server.address();
    server.stop();
}
