//! Signals of the master: blocked, and read from a signalfd(2) in the master's loop.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::time::Duration;

use nix::errno::Errno;
use nix::libc;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use nix::sys::signalfd::{SfdFlags, SignalFd, siginfo};
use nix::unistd::{Pid, getpid, getsid, gettid};

use crate::codec::record;
use crate::sys::terminal;

/// The signals that the master handles. A worker starts with all of them blocked until it has its
/// own handlers, so that no signal ends it during its start.
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

/// Id of the thread that reads the signals; 0 without such a thread.
static READER: AtomicI32 = AtomicI32::new(0);

/// Where the latest `SIGHUP` came from that another thread got: an [`Origin`].
static FORWARDED: AtomicU64 = AtomicU64::new(0);

/// The master's signals, blocked until this is dropped.
///
/// `SIGXFSZ` is ignored from then on, in workers too: a write beyond the limit on the length of
/// files (`ulimit -f`) fails as one to a full disk does, and ends no process. It stays ignored,
/// because the log may get its last lines, and the error, when the server has ended.
///
/// A signal mask belongs to a thread. The program may have other threads, which do not block the
/// signals. There a signal would have its default effect: end the master, or nothing for `SIGCHLD`.
/// So each signal also has a handler, which forwards it to the thread that reads signals. The
/// handler also replaces an inherited `SIG_IGN` for `SIGCHLD`, with which the kernel would reap the
/// workers itself (wait(2)).
#[derive(Debug)]
pub(crate) struct Signals {
    fd: SignalFd,
    mask: SigSet,
    actions: Vec<(Signal, SigAction)>,
    /// Whether the terminal that the master was started from is still to close. nohup(1) makes a
    /// process ignore `SIGHUP`, so that it outlives its terminal.
    ends_with_terminal: bool,
}

/// What the next image must know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Before {
    /// The numbers of the signals that were blocked when the master started.
    blocked: Vec<i32>,
    ends_with_terminal: bool,
}

record!(Before {
    blocked,
    ends_with_terminal,
});

/// What a signal says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    Signal(Signal),
    /// The terminal has closed, and the kernel or the terminal's shell has sent `SIGHUP`. It is
    /// received once.
    TerminalClosed,
}

impl fmt::Display for Received {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Signal(signal) => signal.fmt(f),
            Self::TerminalClosed => f.write_str("SIGHUP of the closed terminal"),
        }
    }
}

impl Signals {
    pub(crate) fn block() -> io::Result<Self> {
        let mut signals = Self::block_after(SigSet::thread_get_mask()?)?;
        let is_ignored = |(signal, before): &(Signal, SigAction)| {
            *signal == Signal::SIGHUP && matches!(before.handler(), SigHandler::SigIgn)
        };
        signals.ends_with_terminal =
            terminal::open().is_ok() && !signals.actions.iter().any(is_ignored);
        Ok(signals)
    }

    /// Continues after an upgrade. The signals stayed blocked during execve(2), so no signal that
    /// arrived is lost.
    pub(crate) fn resume(before: &Before) -> io::Result<Self> {
        let blocked = before
            .blocked
            .iter()
            .map(|&signal| Signal::try_from(signal));
        let mut signals = Self::block_after(blocked.collect::<Result<_, _>>()?)?;
        signals.ends_with_terminal = before.ends_with_terminal;
        Ok(signals)
    }

    fn block_after(before: SigSet) -> io::Result<Self> {
        let set: SigSet = MASTER.into_iter().collect();
        set.thread_block()?;
        let mut signals = Self {
            fd: SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?,
            mask: before,
            actions: Vec::new(),
            ends_with_terminal: false,
        };
        READER.store(gettid().as_raw(), Ordering::Relaxed);
        let handler = SigHandler::SigAction(forward);
        let flags = SaFlags::SA_RESTART | SaFlags::SA_NOCLDSTOP | SaFlags::SA_SIGINFO;
        let action = SigAction::new(handler, flags, SigSet::empty());
        let ignored = SigAction::new(SigHandler::SigIgn, SaFlags::empty(), SigSet::empty());
        // SAFETY: a signal that is ignored runs no code.
        unsafe { sigaction(Signal::SIGXFSZ, &ignored) }?;
        for signal in MASTER {
            // SAFETY: `forward` stores a number and makes one system call on numbers, which is
            // async-signal-safe.
            let before = unsafe { sigaction(signal, &action) }?;
            signals.actions.push((signal, before));
        }
        Ok(signals)
    }

    pub(crate) fn before(&self) -> Before {
        Before {
            blocked: self.mask.iter().map(|signal| signal as i32).collect(),
            ends_with_terminal: self.ends_with_terminal,
        }
    }

    /// The next signal that has arrived.
    pub(crate) fn next(&mut self) -> Option<Received> {
        let info = self.fd.read_signal().ok().flatten()?;
        let signal = Signal::try_from(i32::try_from(info.ssi_signo).ok()?).ok()?;
        let is_end = self.ends_with_terminal && signal == Signal::SIGHUP && is_of_terminal(&info);
        if is_end {
            self.ends_with_terminal = false;
            return Some(Received::TerminalClosed);
        }
        Some(Received::Signal(signal))
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        // A signal that is still pending would end the process when it is unblocked.
        while self.next().is_some() {}
        for (signal, before) in self.actions.drain(..) {
            // SAFETY: this restores the earlier action, which the code that set it had to make
            // sound. It fails only for signals that cannot be caught; `MASTER` has none of those.
            let _ = unsafe { sigaction(signal, &before) };
        }
        READER.store(0, Ordering::Relaxed);
        // Fails only for an invalid `how`, which nix cannot pass.
        let _ = self.mask.thread_set_mask();
    }
}

/// Who has sent a signal, and how (sigaction(2), `si_code`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Origin {
    code: i32,
    pid: i32,
}

impl Origin {
    /// That of a signal which [`forward`] has sent is what it was before.
    fn of(info: &siginfo) -> Self {
        let origin = Self {
            code: info.ssi_code,
            pid: info.ssi_pid.cast_signed(),
        };
        let forwarded = Self {
            code: libc::SI_TKILL,
            pid: getpid().as_raw(),
        };
        match origin == forwarded {
            true => Self::from_word(FORWARDED.load(Ordering::Acquire)),
            false => origin,
        }
    }

    fn to_word(self) -> u64 {
        u64::from(self.code.cast_unsigned()) << 32 | u64::from(self.pid.cast_unsigned())
    }

    fn from_word(word: u64) -> Self {
        let [code, pid] = [word >> 32, word].map(|half| (half as u32).cast_signed());
        Self { code, pid }
    }
}

/// Whether a `SIGHUP` comes from the end of the terminal: the kernel sends it, or the shell that
/// the terminal was opened for, to its jobs. While the terminal is there, a user of that shell may
/// have sent it.
fn is_of_terminal(info: &siginfo) -> bool {
    let Origin { code, pid } = Origin::of(info);
    let is_of_leader = || {
        let leader = getsid(None).map_or(0, Pid::as_raw);
        code == libc::SI_USER && pid == leader && leader != 0
    };
    (code == libc::SI_KERNEL || is_of_leader())
        // The second one if the other end has closed, and the kernel is about to take it away.
        && matches!(terminal::open(), Err(Errno::ENXIO | Errno::EIO))
}

/// Runs in a thread that does not block the signal, and sends the signal to the thread that reads
/// signals. That thread blocks it, so the signalfd(2) receives it.
extern "C" fn forward(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    _context: *mut libc::c_void,
) {
    // The thread may be between a system call that has failed and the look at its error number.
    let error = Errno::last_raw();
    if signal == libc::SIGHUP {
        // SAFETY: the kernel passes the address of what it knows of the signal (`SA_SIGINFO`). All
        // who send this one leave a pid there, or zero.
        let (code, pid) = unsafe { ((*info).si_code, (*info).si_pid()) };
        FORWARDED.store(Origin { code, pid }.to_word(), Ordering::Release);
    }
    let reader = READER.load(Ordering::Relaxed);
    // SAFETY: tgkill(2) takes three integers. It fails only if the reading thread has ended, and a
    // handler cannot report an error.
    unsafe { libc::syscall(libc::SYS_tgkill, getpid().as_raw(), reader, signal) };
    Errno::set_raw(error);
}

/// Makes `SIGALRM` end this process when `delay` has passed after a `SIGTERM`, even if its thread
/// is blocked. A worker whose handler blocks notices neither its drain nor the end of its master,
/// and a master that has died cannot kill it.
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

/// Unblocks the signals in a worker, after it has set its handlers. Also unblocks those that the
/// process that started the master may have blocked: `SIGABRT`, with which the master makes a hung
/// worker dump core, and `SIGALRM` of [`end_after_term`].
pub(crate) fn unblock() -> io::Result<()> {
    let others = [Signal::SIGABRT, Signal::SIGALRM];
    let set: SigSet = MASTER.into_iter().chain(others).collect();
    Ok(set.thread_unblock()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forwarded_signal_leaves_the_error_number_as_it_was() {
        Errno::ENOENT.set();
        // No signal has the number 0, and no thread the id 0.
        forward(0, std::ptr::null_mut(), std::ptr::null_mut());
        assert_eq!(Errno::last(), Errno::ENOENT);
    }
}
