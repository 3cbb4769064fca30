//! Signals as data: blocked, and read from a signalfd(2) when the master is ready for them.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use nix::libc;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::{getpid, gettid};

use crate::codec::record;

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

/// The thread that reads the signals; 0 while there is none.
static READER: AtomicI32 = AtomicI32::new(0);

/// The master's signals, blocked until this is dropped.
///
/// A mask belongs to a thread. The program may have others, which block nothing; there a signal
/// would do what it does by default: end the master, or vanish if it is `SIGCHLD`. So each signal
/// has a handler too, which passes it on to the thread that reads them. The handler also takes the
/// place of an inherited "ignore", with which the kernel would reap the workers itself (wait(2)).
#[derive(Debug)]
pub(crate) struct Signals {
    fd: SignalFd,
    mask: SigSet,
    actions: Vec<(Signal, SigAction)>,
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
        let mut signals = Self {
            fd: SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?,
            mask: before,
            actions: Vec::new(),
        };
        READER.store(gettid().as_raw(), Ordering::Relaxed);
        let handler = SigHandler::Handler(pass_on);
        let flags = SaFlags::SA_RESTART | SaFlags::SA_NOCLDSTOP;
        let action = SigAction::new(handler, flags, SigSet::empty());
        for signal in MASTER {
            // SAFETY: `pass_on` makes one system call on numbers, which is async-signal-safe.
            let before = unsafe { sigaction(signal, &action) }?;
            signals.actions.push((signal, before));
        }
        Ok(signals)
    }

    /// What was blocked before.
    pub(crate) fn before(&self) -> Before {
        Before(self.mask.iter().map(|signal| signal as i32).collect())
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
        // What came too late would end the process as soon as it is no longer blocked.
        while self.next().is_some() {}
        for (signal, before) in self.actions.drain(..) {
            // SAFETY: this is what was there before, and whoever put it there vouched for it.
            // Fails only for signals that cannot be caught, which are not among ours.
            let _ = unsafe { sigaction(signal, &before) };
        }
        READER.store(0, Ordering::Relaxed);
        // Fails only for an invalid `how`, which nix does not let one write.
        let _ = self.mask.thread_set_mask();
    }
}

/// Runs in a thread that does not block the signal: sends it to the one that waits for it. There
/// it is blocked, so the signalfd(2) has it.
extern "C" fn pass_on(signal: libc::c_int) {
    let reader = READER.load(Ordering::Relaxed);
    // SAFETY: tgkill(2) takes three integers. It fails only if the reader is gone, and a handler
    // has nobody to tell.
    unsafe { libc::syscall(libc::SYS_tgkill, getpid().as_raw(), reader, signal) };
}

/// Has this process end by `SIGALRM` so long after a `SIGTERM`, whatever it is doing then: a worker
/// whose handler blocks hears neither its drain nor the end of its master, and the master that
/// would kill it may be the one that has died.
pub(crate) fn end_after_term(delay: Duration) -> io::Result<()> {
    let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
    // SAFETY: the default action runs no code of ours.
    unsafe { sigaction(Signal::SIGALRM, &default) }?;
    let seconds = u32::try_from(delay.as_secs().saturating_add(1)).unwrap_or(u32::MAX);
    let alarm = move || {
        // SAFETY: alarm(2) takes an integer; it is async-signal-safe.
        unsafe { libc::alarm(seconds) };
    };
    // SAFETY: `alarm` makes one async-signal-safe call and touches no memory.
    unsafe { signal_hook_registry::register(libc::SIGTERM, alarm) }?;
    Ok(())
}

/// Takes the inherited block off, in a worker whose handlers stand. `SIGABRT`, by which the master
/// asks a worker that hangs for a core, the one who started the master may have blocked.
pub(crate) fn unblock() -> io::Result<()> {
    let set: SigSet = MASTER.into_iter().chain([Signal::SIGABRT]).collect();
    Ok(set.thread_unblock()?)
}
