//! Closes descriptors whose last close may block: fork(2), so that the last close happens in the
//! new process.
//!
//! The last close of a file can block for as long as its owner wants: a TCP socket with unsent data
//! waits for `SO_LINGER` (socket(7)), a FUSE file waits for its server. To close a Unix socket also
//! closes the descriptors in its queue. A thread cannot do this instead of a process: a thread that
//! blocks in close(2) delays execve(2) and the end of the process.

use std::io;
use std::os::fd::AsRawFd;

use nix::libc;

/// Drops `sockets`, which may have descriptors from another process in their queues. A new process
/// keeps all of them open until then, and ends at once: the kernel does not linger for a process
/// that ends. The caller reaps it as it reaps any unknown process.
///
/// Not for descriptors that this process has received: close(2) flushes a file at each close of one
/// of its descriptors.
pub(crate) fn discard<T>(sockets: T) {
    match fork_holder() {
        Ok(release) => {
            drop(sockets);
            drop(release);
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

/// Forks a process that holds every descriptor of this one until the returned pipe end is dropped.
fn fork_holder() -> io::Result<io::PipeWriter> {
    let (end, release) = io::pipe()?;
    // SAFETY: the new process makes only async-signal-safe calls (signal-safety(7)): close(2),
    // read(2) and _exit(2), on numbers that are open there. It drops nothing. The kernel writes to
    // `byte`, which is valid for writes.
    unsafe {
        match libc::fork() {
            -1 => return Err(io::Error::last_os_error()),
            0 => {
                libc::close(release.as_raw_fd());
                let mut byte = 0u8;
                while libc::read(end.as_raw_fd(), (&raw mut byte).cast(), 1) < 0 {}
                libc::_exit(0)
            }
            _ => {}
        }
    }
    Ok(release)
}
