//! Closing what may not close at once: fork(2), and the last close happens in the new process.
//!
//! The last close of a file can block for as long as its owner likes: a TCP socket with unsent data
//! waits for `SO_LINGER` (socket(7)), a FUSE file for its server. Closing a Unix socket closes the
//! descriptors that wait in it. A thread would not do: one that blocks in close(2) holds up
//! execve(2) and the end of the process.

use std::io;
use std::os::fd::AsRawFd;

use nix::libc;

/// Drops `held`, whose descriptors have others in their queues that another process has sent. A
/// process that does nothing else keeps them open until then, and ends: the kernel lets nothing
/// linger in a process that ends. The caller reaps it as any stranger.
///
/// What was received already, and has a number here, is not for this: close(2) flushes a file with
/// each of its numbers.
pub(crate) fn discard<T>(held: T) {
    match keeper() {
        Ok(release) => {
            drop(held);
            drop(release);
        }
        Err(error) => {
            tracing::warn!(%error, "what a worker has sent is closed here, which may take long");
            drop(held);
        }
    }
}

/// A process that has every descriptor of this one, until what is returned is dropped.
fn keeper() -> io::Result<io::PipeWriter> {
    let (end, release) = io::pipe()?;
    // SAFETY: in the new process only async-signal-safe calls follow (signal-safety(7)): close(2),
    // read(2) and _exit(2), on numbers that are open there; nothing is dropped there. The byte is
    // for the kernel to write to.
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
