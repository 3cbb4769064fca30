//! The process of a server: started, stopped and reaped.

use std::env;
use std::fs::File;
use std::io::{Read, Seek};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use serde_json::Value;

use crate::support::notices::Notices;

/// For a server to start, or to stop once it has no connections. Only a broken one takes as long.
const PATIENCE: Duration = Duration::from_secs(10);

/// The process of a server, in a group of its own.
pub(super) struct Process {
    child: Child,
    notices: Notices,
    /// Its standard error. Shown if the server does not do what it should.
    log: File,
}

impl Process {
    /// This executable once more, with this variable.
    pub(super) fn spawn(variable: &str, value: &str) -> Self {
        let log = tempfile::tempfile().expect("a temporary file can be made");
        let this = env::current_exe().expect("proc(5) is mounted");
        let mut child = Command::new(this)
            .env(variable, value)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log.try_clone().expect("dup(2)"))
            .process_group(0)
            .spawn()
            .expect("this executable can be started once more");
        let notices = Notices::of(child.stdout.take().expect("stdout is a pipe"));
        Self {
            child,
            notices,
            log,
        }
    }

    pub(super) fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id() as i32)
    }

    /// The first notice from now on whose name is `wanted`.
    ///
    /// # Panics
    ///
    /// If the server ends before, or takes too long: it is broken. The panic shows its log.
    pub(super) fn wait_until(&mut self, what: &str, mut wanted: impl FnMut(&str) -> bool) -> Value {
        loop {
            let next = self.notices.next(Instant::now() + PATIENCE);
            let notice = next.unwrap_or_else(|trouble| {
                let mut log = Vec::new();
                let read = self
                    .log
                    .rewind()
                    .and_then(|()| self.log.read_to_end(&mut log));
                read.expect("a file can be read again");
                let log = String::from_utf8_lossy(&log);
                panic!("waiting until a server is {what}: {trouble}\n{log}")
            });
            if wanted(notice["notice"].as_str().unwrap_or_default()) {
                return notice;
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Fails only if the server is gone already, which is what we want.
        let _ = kill(self.pid(), Signal::SIGTERM);
        // The announce stream ends when the last process that holds it is gone.
        if self.notices.end(PATIENCE).is_err() {
            eprintln!("the server ignores TERM for {PATIENCE:?}: killed");
            let _ = killpg(self.pid(), Signal::SIGKILL);
        }
        // Not yet reaped, so the wait cannot fail, and its status changes nothing here.
        let _ = self.child.wait();
    }
}
