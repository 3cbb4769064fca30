//! Signals as data: blocked, and read from a signalfd(2) when the master is ready for them.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use crate::record::record;

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

/// The numbers of the signals that were blocked when the master began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Before(Vec<i32>);

record!(Before { 0 });

impl Signals {
    pub(crate) fn block() -> io::Result<Self> {
        Self::block_after(SigSet::thread_get_mask()?)
    }

    /// In the next image: they have been blocked all the time, and what has arrived is not lost.
    pub(crate) fn resume(Before(before): &Before) -> io::Result<Self> {
        let signals = before.iter().map(|&signal| Signal::try_from(signal));
        Self::block_after(signals.collect::<Result<_, _>>()?)
    }

    fn block_after(before: SigSet) -> io::Result<Self> {
        let set: SigSet = MASTER.into_iter().collect();
        set.thread_block()?;
        let fd = SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
        Ok(Self { fd, before })
    }

    /// What was blocked before.
    pub(crate) fn before(&self) -> Before {
        Before(self.before.iter().map(|signal| signal as i32).collect())
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

/// Takes the inherited block off, in a worker whose handlers stand.
pub(crate) fn unblock() -> io::Result<()> {
    let set: SigSet = MASTER.into_iter().collect();
    Ok(set.thread_unblock()?)
}
