//! Signals as data: blocked, and read from a signalfd(2) when the master is ready for them.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

/// The signals that mean something to the master. All are blocked in a worker too until it has
/// its own handlers, so that none can end it half-way.
const MASTER: [Signal; 10] = [
    Signal::SIGTERM,
    Signal::SIGQUIT,
    Signal::SIGINT,
    Signal::SIGHUP,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGTTIN,
    Signal::SIGTTOU,
    Signal::SIGWINCH,
    Signal::SIGCHLD,
];

/// The master's signals, blocked until this is dropped.
#[derive(Debug)]
pub(crate) struct Signals {
    fd: SignalFd,
    before: SigSet,
}

impl Signals {
    pub(crate) fn block() -> io::Result<Self> {
        let before = SigSet::thread_get_mask()?;
        let set: SigSet = MASTER.into_iter().collect();
        set.thread_block()?;
        let fd = SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
        Ok(Self { fd, before })
    }

    /// The next signal that has arrived.
    pub(crate) fn next(&mut self) -> Option<Signal> {
        let info = self.fd.read_signal().ok().flatten()?;
        Signal::try_from(i32::try_from(info.ssi_signo).ok()?).ok()
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        // Fails only for an invalid `how`, which nix does not let one write.
        let _ = self.before.thread_set_mask();
    }
}

/// Takes the inherited block off, in a worker whose handlers stand. `SIGABRT`, by which the master
/// asks a worker that hangs for a core, the one who started the master may have blocked.
pub(crate) fn unblock() -> io::Result<()> {
    let set: SigSet = MASTER.into_iter().chain([Signal::SIGABRT]).collect();
    Ok(set.thread_unblock()?)
}
