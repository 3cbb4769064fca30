//! The process of a server: started, listened to, stopped and reaped.

use std::env;
use std::fs::File;
use std::io::{Read, Seek};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Command, Stdio};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use serde_json::Value;

/// For a server to start, or to stop once it has no connections. Only a broken one takes as long.
const PATIENCE_MS: u16 = 10_000;

/// The process of a server, in a group of its own.
pub(super) struct Process {
    child: Child,
    announced: ChildStdout,
    /// What it says on its standard error. Looked at if it does not do what it should.
    log: File,
    unread: Vec<u8>,
}

impl Process {
    /// This executable once more, with these variables.
    pub(super) fn spawn(variables: &[(&str, &str)]) -> Self {
        let log = tempfile::tempfile().expect("a temporary file can be made");
        let this = env::current_exe().expect("proc(5) is mounted");
        let mut child = Command::new(this)
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log.try_clone().expect("dup(2)"))
            .process_group(0)
            .spawn()
            .expect("this executable can be started once more");
        let announced = child.stdout.take().expect("stdout is a pipe");
        Self {
            child,
            announced,
            log,
            unread: Vec::new(),
        }
    }

    pub(super) fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id() as i32)
    }

    /// The first notice from now on that is `wanted`.
    ///
    /// # Panics
    ///
    /// If the server ends before, or takes too long: it is broken. Its log says how.
    pub(super) fn wait_until(&mut self, what: &str, mut wanted: impl FnMut(&str) -> bool) -> Value {
        loop {
            while let Some(end) = self.unread.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.unread.drain(..=end).collect();
                let notice: Value = serde_json::from_slice(&line).unwrap_or_else(|error| {
                    panic!("\"{}\" is no notice: {error}", line.escape_ascii());
                });
                if wanted(notice["notice"].as_str().unwrap_or_default()) {
                    return notice;
                }
            }
            match self.read() {
                Announced::Bytes => {}
                Announced::End => panic!("a server ended before it was {what}:\n{}", self.log()),
                Announced::Silence => {
                    panic!("not {what} in {PATIENCE_MS} ms:\n{}", self.log())
                }
            }
        }
    }

    fn log(&mut self) -> String {
        let mut text = Vec::new();
        self.log.rewind().expect("a file can be read again");
        self.log.read_to_end(&mut text).expect("it is a small file");
        String::from_utf8_lossy(&text).into_owned()
    }

    fn read(&mut self) -> Announced {
        let mut ready = [PollFd::new(self.announced.as_fd(), PollFlags::POLLIN)];
        let ready = poll(&mut ready, PollTimeout::from(PATIENCE_MS)).expect("poll(2)");
        if ready == 0 {
            return Announced::Silence;
        }
        let mut bytes = [0; 4096];
        match self.announced.read(&mut bytes).expect("a pipe can be read") {
            0 => Announced::End,
            count => {
                self.unread.extend_from_slice(&bytes[..count]);
                Announced::Bytes
            }
        }
    }
}

enum Announced {
    Bytes,
    /// Nobody is left who could announce anything.
    End,
    Silence,
}

impl Drop for Process {
    /// Waits for the end of the announce stream, which comes when the last process holding it is
    /// gone; kills the group if that takes too long.
    fn drop(&mut self) {
        // Fails only if the server is gone already, which is what we want.
        let _ = kill(self.pid(), Signal::SIGTERM);
        loop {
            match self.read() {
                Announced::Bytes => {}
                Announced::End => break,
                Announced::Silence => {
                    eprintln!("the server ignores TERM for {PATIENCE_MS} ms: killed");
                    let _ = killpg(self.pid(), Signal::SIGKILL);
                    break;
                }
            }
        }
        // Not yet reaped, so the wait cannot fail, and its status changes nothing here.
        let _ = self.child.wait();
    }
}
