//! The announce stream: a JSON object on a line of its own for each notice.

use std::io::{self, ErrorKind};
use std::os::fd::{OwnedFd, RawFd};

use serde_json::Value;

use crate::sys::fds;

/// The descriptor that notices are written to.
#[derive(Debug)]
pub(crate) struct Announcer {
    fd: OwnedFd,
    lost: u64,
    last: Last,
}

/// What the reader has of the last line that was begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Last {
    All,
    Part,
}

/// If a pipe is writable, so many bytes do not block (pipe(7), `PIPE_BUF`).
const PIECE: usize = 4096;

impl Announcer {
    pub(crate) fn new(fd: RawFd) -> io::Result<Self> {
        Ok(Self {
            fd: fds::duplicate(fd)?,
            lost: 0,
            last: Last::All,
        })
    }

    /// Writes one line. If the reader does not read, notices are lost, also the end of a long one;
    /// the master never waits for it.
    pub(crate) fn announce(&mut self, notice: &Value) {
        let mut line = match self.last {
            Last::All => String::new(),
            Last::Part => "\n".to_owned(),
        };
        line += &notice.to_string();
        line.push('\n');
        let mut written = 0;
        let Err(error) = self.write(&line, &mut written) else {
            self.last = Last::All;
            return;
        };
        if written > 0 {
            self.last = Last::Part;
        }
        self.lost += 1;
        // At 1, 2, 4, 8, ... lost notices.
        if self.lost.is_power_of_two() {
            let lost = self.lost;
            tracing::warn!(lost, %error, "cannot write the announce stream: notices are lost");
        }
    }

    /// Counts the pieces that were written.
    fn write(&self, line: &str, written: &mut usize) -> io::Result<()> {
        for piece in line.as_bytes().chunks(PIECE) {
            if !fds::is_writable(&self.fd) {
                return Err(io::Error::new(ErrorKind::WouldBlock, "it is full"));
            }
            fds::write_all(&self.fd, piece)?;
            *written += 1;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;
    use crate::hooks::Notice;
    use crate::sys::fds::tests::until_other_end_closed;

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

    #[test]
    fn a_reader_that_has_left_is_told_from_one_that_does_not_read() {
        let (reader, writer) = io::pipe().expect("a pipe");
        let announcer =
            Announcer::new(std::os::fd::AsRawFd::as_raw_fd(&writer)).expect("an open descriptor");
        drop(reader);
        until_other_end_closed(&writer);
        let left = announcer.write("a", &mut 0).expect_err("nobody reads");
        assert_eq!(left.kind(), ErrorKind::BrokenPipe);

        let (_reader, writer) = io::pipe().expect("a pipe");
        let announcer =
            Announcer::new(std::os::fd::AsRawFd::as_raw_fd(&writer)).expect("an open descriptor");
        let full = announcer.write(&"a".repeat(1 << 20), &mut 0);
        assert_eq!(full.expect_err("it is full").kind(), ErrorKind::WouldBlock);
    }

    #[test]
    fn a_line_follows_a_part_of_a_longer_one_on_a_line_of_its_own() {
        let (mut reader, writer) = io::pipe().expect("a pipe");
        let mut announcer =
            Announcer::new(std::os::fd::AsRawFd::as_raw_fd(&writer)).expect("an open descriptor");
        let long = Notice::UpgradeAbandoned {
            // More than a pipe has room for.
            why: "\u{1}".repeat(64 << 10),
        };
        announcer.announce(&long.to_json());
        assert_eq!(announcer.lost, 1);
        let mut part = vec![0; 64 << 10];
        reader.read_exact(&mut part).expect("a pipe that is full");
        announcer.announce(&Notice::Draining.to_json());
        drop((writer, announcer));
        let rest = io::read_to_string(reader).expect("an end");
        let line = format!("\n{}\n", Notice::Draining.to_json());
        assert_eq!(rest, line);
    }
}
