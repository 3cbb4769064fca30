//! What a server announces: a notice in JSON on each line.

use std::io::Read;
use std::os::fd::AsFd;
use std::process::ChildStdout;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde_json::Value;

use super::process::Trouble;

/// The announce stream of a server.
pub(crate) struct Notices {
    stream: ChildStdout,
    unread: Vec<u8>,
}

impl Notices {
    pub(crate) fn of(stream: ChildStdout) -> Self {
        let unread = Vec::new();
        Self { stream, unread }
    }

    /// The next notice if it comes in time. An error says that none came, or that no process has
    /// the stream any more.
    pub(crate) fn next(&mut self, deadline: Instant) -> Result<Value, Trouble> {
        loop {
            if let Some(end) = self.unread.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.unread.drain(..=end).collect();
                return serde_json::from_slice(&line).map_err(|error| {
                    let line = line.escape_ascii();
                    Trouble::Stuck(format!("\"{line}\" is no notice: {error}"))
                });
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let millis = PollTimeout::try_from(left.as_millis()).unwrap_or(PollTimeout::MAX);
            let mut ready = [PollFd::new(self.stream.as_fd(), PollFlags::POLLIN)];
            match poll(&mut ready, millis) {
                Ok(0) => return Err(Trouble::Stuck("no notice came in time".into())),
                Ok(_) => {}
                Err(Errno::EINTR) => continue,
                Err(error) => return Err(error.into()),
            }
            let mut bytes = [0; 4096];
            match self.stream.read(&mut bytes)? {
                0 => return Err(Trouble::Stuck("the server ended".into())),
                count => self.unread.extend_from_slice(&bytes[..count]),
            }
        }
    }

    /// Waits until no process has the stream any more. An error says that this took too long.
    pub(crate) fn end(&mut self, longest: Duration) -> Result<(), Trouble> {
        let deadline = Instant::now() + longest;
        loop {
            match self.next(deadline) {
                Ok(_) => {}
                Err(_) if Instant::now() >= deadline => {
                    return Err(Trouble::Stuck(format!("not gone in {longest:?}")));
                }
                Err(_) => return Ok(()),
            }
        }
    }
}
