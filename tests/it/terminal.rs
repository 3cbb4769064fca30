//! A server that was started from a terminal. script(1) opens one and closes it.

use std::io::{PipeWriter, Write};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::apps;
use crate::support::{BINARY, Ended, Server, descendants, pid_of, proc_file, program, this};

tests! {
    workers_have_no_terminal_and_the_master_gets_its_signals,
    the_server_ends_when_its_terminal_closes,
    a_program_with_threads_ends_when_its_terminal_closes,
    a_server_in_nohup_outlives_its_terminal,
    another_hangup_is_a_reload,
}

/// What a shell in a terminal runs. `SERVER` stands for the server, and `THREADS` for an app with
/// another thread.
struct Terminal {
    server: Server,
    keyboard: PipeWriter,
    master: Master,
}

/// It is in a session of its own, which does not end with the test.
struct Master(Pid);

impl Drop for Master {
    fn drop(&mut self) {
        let command = proc_file(self.0, "cmdline").unwrap_or_default();
        let this = this().display().to_string();
        if command.starts_with(BINARY) || command.starts_with(&this) {
            let _ = kill(self.0, Signal::SIGKILL);
        }
    }
}

impl Terminal {
    fn run(line: &str) -> Self {
        let (input, keyboard) = std::io::pipe().expect("a pipe");
        let server = format!("{BINARY} --listen 127.0.0.1:0 --workers 2 --announce-fd 9");
        let mut command = program("sh");
        command.env("SHELL", "/bin/sh");
        let threads = format!("env {}=threads {}", apps::VARIABLE, this().display());
        let line = line.replace("SERVER", &server);
        command.env("LINE", line.replace("THREADS", &threads));
        // The notices do not go through the terminal.
        let script = "exec script --quiet --return --command \"$LINE\" /dev/null 9>&1 >&2";
        let command = command.args(["-c", script]);
        let mut server = Server::spawn_with_input(command, input.into());
        let master = Master(pid_of(&server.wait("serving")));
        Self {
            server,
            keyboard,
            master,
        }
    }

    fn signal(&self, signal: Signal) {
        kill(self.master.0, signal).expect("it lives");
    }

    fn upgrade(&mut self) {
        self.signal(Signal::SIGUSR2);
        self.server.wait("upgrade_finished");
        self.server.wait("reload_finished");
    }

    /// What holds the terminal ends.
    fn close(&self) {
        self.server.signal(Signal::SIGKILL);
    }
}

fn assert_drained(Ended { notices, log, .. }: Ended) {
    let names: Vec<_> = notices.iter().map(|it| &it["notice"]).collect();
    assert!(!names.contains(&&"reload_started".into()), "{names:?}");
    let finished = notices.last().expect("some");
    assert_eq!(finished["outcome"], "drained", "{names:?} {log}");
}

fn workers_have_no_terminal_and_the_master_gets_its_signals() {
    let mut shell = Terminal::run("exec SERVER");
    let (_, terminal) = session(shell.master.0);
    assert_ne!(terminal, 0, "script(1) gives it one");
    let workers = descendants(shell.master.0);
    assert_eq!(workers.len(), 2);
    for worker in workers {
        assert_eq!(session(worker), (worker.as_raw(), 0));
    }
    // Ctrl-C.
    shell.keyboard.write_all(b"\x03").expect("script(1) reads");
    assert_drained(shell.server.end_well());
}

fn the_server_ends_when_its_terminal_closes() {
    for line in [
        "exec SERVER",
        // The kernel sends the signal when the shell has ended.
        "SERVER; true",
        // A shell such as bash sends it.
        "trap 'kill -HUP $!' HUP; SERVER & wait; wait",
    ] {
        let mut shell = Terminal::run(line);
        // The next image knows it too.
        shell.upgrade();
        shell.close();
        assert_drained(shell.server.end());
    }
}

/// The kernel gives the signal to a thread that does not block it.
fn a_program_with_threads_ends_when_its_terminal_closes() {
    for line in [
        "exec THREADS >&9",
        "trap 'kill -HUP $!' HUP; THREADS >&9 & wait; wait",
    ] {
        let shell = Terminal::run(line);
        shell.close();
        assert_drained(shell.server.end());
    }
}

fn a_server_in_nohup_outlives_its_terminal() {
    let mut shell = Terminal::run("nohup SERVER >&9; true");
    shell.upgrade();
    shell.close();
    shell.server.wait("reload_finished");
    shell.signal(Signal::SIGTERM);
    assert_drained(shell.server.end());
}

fn another_hangup_is_a_reload() {
    let mut shell = Terminal::run("SERVER & read line; kill -HUP $!; wait");
    // The shell of the terminal sends it.
    shell.keyboard.write_all(b"\n").expect("script(1) reads");
    shell.server.wait("reload_finished");
    shell.signal(Signal::SIGHUP);
    shell.server.wait("reload_finished");
    shell.signal(Signal::SIGTERM);
    assert_drained(shell.server.end_well());
}

/// A process's session and its controlling terminal, 0 if it has none (proc_pid_stat(5)).
pub(crate) fn session(pid: Pid) -> (i32, i32) {
    let stat = proc_file(pid, "stat").expect("it lives");
    let (_, rest) = stat.rsplit_once(')').expect("its name");
    let fields: Vec<_> = rest.split_whitespace().collect();
    let number = |at: usize| fields[at].parse().expect("a number");
    (number(3), number(4))
}
