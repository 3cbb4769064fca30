//! The announce stream: a JSON object on a line of its own for each notice.

use std::io;
use std::os::fd::{OwnedFd, RawFd};

use serde_json::Value;

use crate::sys::fds;

/// The descriptor that notices are written to.
#[derive(Debug)]
pub(crate) struct Announcer {
    fd: OwnedFd,
    lost: u64,
}

impl Announcer {
    pub(crate) fn new(fd: RawFd) -> io::Result<Self> {
        Ok(Self {
            fd: fds::duplicate(fd)?,
            lost: 0,
        })
    }

    /// Writes one line. If the reader does not read, notices are lost; the master never waits for
    /// it.
    pub(crate) fn announce(&mut self, notice: &Value) {
        let mut line = notice.to_string();
        line.push('\n');
        if fds::is_writable(&self.fd) && fds::write_all(&self.fd, line.as_bytes()).is_ok() {
            return;
        }
        self.lost += 1;
        // At 1, 2, 4, 8, ... lost notices.
        if self.lost.is_power_of_two() {
            tracing::warn!(
                lost = self.lost,
                "the announce stream is full: notices are lost"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hooks::Notice;

    #[test]
    fn a_reader_that_does_not_read_does_not_stop_the_master() {
        let (_reader, writer) = io::pipe().expect("a pipe");
        let mut announcer =
            Announcer::new(std::os::fd::AsRawFd::as_raw_fd(&writer)).expect("an open descriptor");
        for _ in 0..10_000 {
            announcer.announce(&Notice::Draining.to_json());
        }
        assert!(announcer.lost > 0);
    }
}
