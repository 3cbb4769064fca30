//! Locks of files: flock(2).

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::libc;
use nix::sys::stat::fstat;

/// How often to try the lock of a path, if another server removes the lock file meanwhile. That
/// server has just finished its start, so a second attempt is rare.
const LOCK_ATTEMPTS: u32 = 16;

/// A lock on a file beside the file at a path, which is removed afterwards. A server holds it while
/// it checks and makes what is at the path, and while it removes its socket file.
#[derive(Debug)]
pub(crate) struct PathLock {
    path: PathBuf,
    _file: Flock<File>,
}

impl PathLock {
    /// Fails at once if another server holds the lock: it will have the path soon, or is ending.
    pub(crate) fn acquire(path: &Path) -> io::Result<Self> {
        let mut name = path.as_os_str().to_owned();
        name.push(".lock");
        let path = PathBuf::from(name);
        for _ in 0..LOCK_ATTEMPTS {
            let file = OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
                .open(&path)?;
            let file = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                Ok(file) => file,
                Err((_, Errno::EWOULDBLOCK)) => break,
                Err((_, error)) => return Err(error.into()),
            };
            if is_at(&*file, &path)? {
                return Ok(Self { path, _file: file });
            }
        }
        Err(io::Error::new(
            io::ErrorKind::AddrInUse,
            "another server is starting or ending at this path",
        ))
    }
}

impl Drop for PathLock {
    fn drop(&mut self) {
        // Removes the file before the lock is released. If this fails, the next lock uses the file.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Whether `file` is still the file at `path`.
pub(crate) fn is_at(file: impl AsFd, path: &Path) -> io::Result<bool> {
    let open = fstat(file)?;
    match path.symlink_metadata() {
        Ok(there) => Ok((open.st_dev, open.st_ino) == (there.dev(), there.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}
