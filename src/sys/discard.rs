//! Closes descriptors whose last close may block: fork(2), so that the last close happens in the
//! new process.
//!
//! The last close of a file can block for as long as its owner wants: a TCP socket with unsent data
//! waits for `SO_LINGER` (socket(7)), a FUSE file waits for its server. To close a Unix socket also
//! closes the descriptors in its queue. A thread cannot do this instead of a process: a thread that
//! blocks in close(2) delays execve(2) and the end of the process.

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::kill;
use nix::unistd::Pid;

/// Drops `sockets`, which may have descriptors from another process in their queues. A new process
/// keeps all of them open until then, and ends at once: the kernel does not linger for a process
/// that ends. The caller reaps it as it reaps any unknown process.
///
/// Not for descriptors that this process has received: close(2) flushes a file at each close of one
/// of its descriptors.
pub(crate) fn discard<T>(sockets: T) {
    match fork_holder() {
        Ok((holder, release)) => {
            drop(sockets);
            drop(release);
            let mut holders = holders();
            holders.retain(|&holder| kill(Pid::from_raw(holder), None).is_ok());
            holders.push(holder);
        }
        Err(error) => {
            tracing::warn!(
                %error,
                "cannot fork to close descriptors from a worker; closing them here may block"
            );
            drop(sockets);
        }
    }
}

/// Waits, at most for `patience`, until every process that [`discard`] has made has ended. Then the
/// port of a listener is free that was discarded, or that was closed since: those processes have it
/// too.
pub(crate) fn until_discarded(patience: Duration) {
    let end = Instant::now() + patience;
    for holder in std::mem::take(&mut *holders()) {
        wait_for_end(holder, end.saturating_duration_since(Instant::now()));
    }
}

/// The processes that [`discard`] has made and that may not have ended.
fn holders() -> MutexGuard<'static, Vec<libc::pid_t>> {
    static HOLDERS: Mutex<Vec<libc::pid_t>> = Mutex::new(Vec::new());
    HOLDERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until a process ends that this one has started, at most for `patience`. Returns at once if
/// the process is reaped already, or if no descriptor is free.
pub(crate) fn wait_for_end(process: libc::pid_t, patience: Duration) {
    // SAFETY: pidfd_open(2) gets two numbers.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, process, 0) };
    let Ok(fd @ 0..) = libc::c_int::try_from(fd) else {
        return;
    };
    // SAFETY: the kernel has just opened it, and nothing else has it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    let timeout = PollTimeout::try_from(patience).unwrap_or(PollTimeout::MAX);
    let _ = poll(&mut [PollFd::new(fd.as_fd(), PollFlags::POLLIN)], timeout);
}

/// Forks a process that holds every descriptor of this one until the returned pipe end is dropped.
fn fork_holder() -> io::Result<(libc::pid_t, io::PipeWriter)> {
    let (end, release) = io::pipe()?;
    // SAFETY: the new process makes only async-signal-safe calls (signal-safety(7)): close(2),
    // read(2) and _exit(2), on numbers that are open there. It drops nothing. The kernel writes to
    // `byte`, which is valid for writes.
    unsafe {
        match libc::fork() {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                libc::close(release.as_raw_fd());
                let mut byte = 0u8;
                while libc::read(end.as_raw_fd(), (&raw mut byte).cast(), 1) < 0 {}
                libc::_exit(0)
            }
            holder => Ok((holder, release)),
        }
    }
}
