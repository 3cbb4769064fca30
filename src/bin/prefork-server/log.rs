//! The log on standard error. It writes a line at once, or drops and counts it, so that the master
//! handles signals and replaces workers even if nothing reads the log.

use std::{
    fs::File,
    io::{self, Write},
    os::{
        fd::{AsFd, AsRawFd},
        unix::fs::{FileTypeExt, OpenOptionsExt},
    },
    sync::{Mutex, OnceLock, PoisonError},
    time::Duration,
};

use tracing::Level;

use nix::{
    fcntl::OFlag,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::socket::{MsgFlags, send},
    unistd::write,
};

pub(crate) mod line;

use self::line::Lines;
use crate::cli::LogFormat;
use crate::one_line::{escape, is_harmful};

/// `PIPE_BUF` of pipe(7): a pipe takes a write of up to this much as a whole or not at all.
const WRITE_BYTES: usize = 4096;

/// How long the last line of a process may wait for a reader. The process has nothing else to do.
const FINAL_WAIT: Duration = Duration::from_secs(1);

/// The log of this process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stderr;

impl Stderr {
    /// Writes one message, or several lines that belong together.
    pub(crate) fn tell(self, message: &str) {
        log().line(lines().plain(Level::INFO, message).as_bytes());
    }

    /// Writes why the process ends. It waits a moment for the reader.
    pub(crate) fn tell_end(self, message: &str) {
        log().final_line(lines().plain(Level::ERROR, message).as_bytes());
    }
}

/// tracing-subscriber writes each event by one call, as a whole line. It never fails.
impl Write for Stderr {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        log().line(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// How lines are written. Until it is set, they are text.
pub(crate) static LINES: OnceLock<Lines> = OnceLock::new();

fn lines() -> &'static Lines {
    LINES.get_or_init(|| Lines::of_this_process(LogFormat::Text))
}

/// Opens the log now: a worker cannot open its terminal or FIFO in the sandbox.
pub(crate) fn open() {
    log();
}

/// Opened for the first line, not before. An option may name a descriptor that is not open, and the
/// log must not take its number.
fn log() -> &'static Log<io::Stderr> {
    static LOG: OnceLock<Log<io::Stderr>> = OnceLock::new();
    LOG.get_or_init(|| Log::on(io::stderr()))
}

/// Where lines go, and which lines could not be written.
#[derive(Debug)]
struct Log<F> {
    target: Target<F>,
    gap: Mutex<Gap>,
}

/// What the descriptor is open on. The log never sets `O_NONBLOCK` on it: the flag would also
/// change for every process that shares the description, such as a shell.
#[derive(Debug)]
enum Target<F> {
    /// A regular file. It needs no reader.
    File(F),
    /// A pipe, a FIFO or a terminal, opened again with `O_NONBLOCK` for this process alone.
    Reopened(File),
    /// A socket, such as that of the systemd journal. Writes use `MSG_DONTWAIT`.
    Socket(F),
    /// One that cannot be opened again: a pipe of another user, or no descriptor is left. poll(2)
    /// says whether it has room. If another process takes that room in between, the write blocks.
    Polled(F),
}

/// The lines that were dropped since the last written line.
#[derive(Debug, Default)]
struct Gap {
    lines: u64,
    start: Start,
}

/// Where the next line begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Start {
    #[default]
    OfLine,
    /// After the first part of a line whose end was dropped.
    MidLine,
}

impl<F: AsFd> Log<F> {
    fn on(fd: F) -> Self {
        let kind = fd.as_fd().try_clone_to_owned().map(File::from);
        let kind = kind.and_then(|file| Ok(file.metadata()?.file_type()));
        let target = match kind {
            Ok(kind) if kind.is_file() => Target::File(fd),
            Ok(kind) if kind.is_socket() => Target::Socket(fd),
            _ => match reopen(&fd) {
                Ok(own) => Target::Reopened(own),
                Err(_) => Target::Polled(fd),
            },
        };
        Self {
            target,
            gap: Mutex::default(),
        }
    }

    fn line(&self, line: &[u8]) {
        // tracing-subscriber colors with the escape character, and escapes it in what it is given.
        let is_own = |letter: char| ['\n', '\x1b'].contains(&letter);
        let line = String::from_utf8_lossy(line);
        let line = escape(&line, |it| !is_own(it) && is_harmful(it));
        let line = line.as_bytes();
        let mut gap = self.gap.lock().unwrap_or_else(PoisonError::into_inner);
        if gap.lines > 0 {
            let start = match gap.start {
                Start::OfLine => "",
                Start::MidLine => "\n",
            };
            let (pid, lines) = (std::process::id(), gap.lines);
            let told = format!(
                "prefork-server: process {pid} dropped {lines} lines of this log, which was not \
                 read"
            );
            let told = start.to_owned() + &self::lines().plain(Level::WARN, &told);
            if self.write(told.as_bytes()).is_err() {
                gap.lines = gap.lines.saturating_add(1);
                return;
            }
            *gap = Gap::default();
        }
        if let Err(start) = self.write(line) {
            *gap = Gap { lines: 1, start };
        }
    }

    fn final_line(&self, line: &[u8]) {
        let fd = match &self.target {
            Target::File(fd) | Target::Socket(fd) | Target::Polled(fd) => fd.as_fd(),
            Target::Reopened(file) => file.as_fd(),
        };
        is_writable(fd, FINAL_WAIT);
        self.line(line);
    }

    fn write(&self, line: &[u8]) -> Result<(), Start> {
        let mut rest = line;
        while !rest.is_empty() {
            match self.try_write(&rest[..rest.len().min(WRITE_BYTES)]) {
                Ok(written @ 1..) => rest = &rest[written..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(0) | Err(_) if rest.len() < line.len() => return Err(Start::MidLine),
                Ok(0) | Err(_) => return Err(Start::OfLine),
            }
        }
        Ok(())
    }

    fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match &self.target {
            Target::File(fd) => Ok(write(fd, bytes)?),
            Target::Reopened(file) => Ok(write(file, bytes)?),
            Target::Socket(socket) => {
                let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
                Ok(send(socket.as_fd().as_raw_fd(), bytes, flags)?)
            }
            Target::Polled(fd) if is_writable(fd, Duration::ZERO) => Ok(write(fd, bytes)?),
            Target::Polled(_) => Err(io::ErrorKind::WouldBlock.into()),
        }
    }
}

/// Opens the file of `fd` again, so that the new description has flags of its own (proc(5)).
fn reopen(fd: impl AsFd) -> io::Result<File> {
    File::options()
        .write(true)
        .custom_flags((OFlag::O_NONBLOCK | OFlag::O_NOCTTY).bits())
        .open(format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd()))
}

fn is_writable(fd: impl AsFd, timeout: Duration) -> bool {
    let mut fds = [PollFd::new(fd.as_fd(), PollFlags::POLLOUT)];
    let timeout = PollTimeout::try_from(timeout).unwrap_or(PollTimeout::MAX);
    matches!(poll(&mut fds, timeout), Ok(1..))
}

#[cfg(test)]
mod tests {
    use std::{
        io::Read,
        os::{fd::OwnedFd, unix::net::UnixStream},
    };

    use super::*;

    const LINE: &[u8] = b"a line of the log that says nothing\n";

    /// More lines than any target can hold.
    const MANY: usize = 50_000;

    /// Writes until lines are dropped, reads them, writes again, and returns what it reads then.
    fn stall(log: &Log<OwnedFd>, reader: &mut impl Read) -> String {
        for _ in 0..MANY {
            log.line(LINE);
        }
        let dropped = log.gap.lock().expect("nobody panics").lines;
        assert!(dropped > 0, "{log:?} holds everything");
        let kept = (MANY - usize::try_from(dropped).expect("few")) * LINE.len();
        let mut bytes = vec![0; kept];
        reader.read_exact(&mut bytes).expect("it was written");
        assert!(bytes.chunks(LINE.len()).all(|line| line == LINE));
        log.line(LINE);
        log.final_line(b"the end\n");
        let mut rest = vec![0; 1 << 16];
        let length = reader.read(&mut rest).expect("it was written");
        let told = String::from_utf8(rest[..length].to_vec()).expect("text");
        let expected = format!("dropped {dropped} lines");
        assert!(told.contains(&expected), "{told}");
        assert!(told.ends_with("nothing\nthe end\n"), "{told}");
        told
    }

    #[test]
    fn a_pipe_that_is_not_read_drops_lines_and_its_flags_stay() {
        let (mut reader, writer) = io::pipe().expect("a pipe");
        let shared = writer.try_clone().expect("a descriptor");
        let log = Log::on(OwnedFd::from(writer));
        assert!(matches!(log.target, Target::Reopened(_)), "{log:?}");
        stall(&log, &mut reader);
        let flags = nix::fcntl::fcntl(&shared, nix::fcntl::FcntlArg::F_GETFL).expect("it is open");
        assert!(!OFlag::from_bits_retain(flags).contains(OFlag::O_NONBLOCK));
    }

    #[test]
    fn a_pipe_that_cannot_be_opened_again_drops_lines_too() {
        let (mut reader, writer) = io::pipe().expect("a pipe");
        let log = Log {
            target: Target::Polled(OwnedFd::from(writer)),
            gap: Mutex::default(),
        };
        stall(&log, &mut reader);
    }

    #[test]
    fn a_socket_that_is_not_read_drops_lines() {
        let (mut reader, writer) = UnixStream::pair().expect("a pair");
        let log = Log::on(OwnedFd::from(writer));
        assert!(matches!(log.target, Target::Socket(_)), "{log:?}");
        stall(&log, &mut reader);
    }

    #[test]
    fn lines_for_a_reader_that_has_closed_are_dropped() {
        let (reader, writer) = io::pipe().expect("a pipe");
        let (other, socket) = UnixStream::pair().expect("a pair");
        let logs = [
            Log::on(OwnedFd::from(writer)),
            Log::on(OwnedFd::from(socket)),
        ];
        drop((reader, other));
        for log in logs {
            log.line(LINE);
            log.final_line(LINE);
            assert_eq!(log.gap.lock().expect("nobody panics").lines, 2, "{log:?}");
        }
    }

    #[test]
    fn a_line_that_was_cut_ends_before_the_next_line() {
        let (mut reader, writer) = io::pipe().expect("a pipe");
        let log = Log::on(OwnedFd::from(writer));
        let long = vec![b'x'; 1 << 20];
        log.line(&long);
        let mut bytes = vec![0; 1 << 16];
        reader.read_exact(&mut bytes).expect("a pipe holds 64 KiB");
        log.line(LINE);
        let length = reader.read(&mut bytes).expect("it was written");
        let told = String::from_utf8_lossy(&bytes[..length]);
        assert!(told.starts_with("\nprefork-server: process "), "{told}");
    }

    /// The file is one hole, which uses no disk. Opened again it would be written from its start.
    #[test]
    fn a_large_file_is_not_opened_again() {
        let file = tempfile::tempfile().expect("a file");
        file.set_len(3 << 30).expect("a hole");
        let log = Log::on(file);
        assert!(matches!(log.target, Target::File(_)), "{log:?}");
    }

    #[test]
    fn a_file_has_every_line() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("log");
        let log = Log::on(File::create(&path).expect("a new name"));
        for _ in 0..100 {
            log.line(LINE);
        }
        assert_eq!(std::fs::read(path).expect("it is there"), LINE.repeat(100));
    }
}
