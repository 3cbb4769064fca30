//! Locks of files: flock(2), and fcntl(2) for a lock that only those who may write can hinder.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;

use crate::sys::file_status;

/// How often to try the lock of a path, if another server removes the lock file meanwhile. That
/// server has just finished its start, so a second attempt is rare.
const LOCK_ATTEMPTS: u32 = 16;

/// A lock on a file beside the file at a path, which is removed afterwards. A server holds it while
/// it checks and makes what is at the path, and while it removes its socket file.
#[derive(Debug)]
pub(crate) struct PathLock {
    path: PathBuf,
    _file: File,
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
            match lock(&file) {
                Ok(()) => {}
                Err(Errno::EWOULDBLOCK) => break,
                Err(error) => return Err(error.into()),
            }
            if is_at(&file, &path)? {
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

/// Locks the file until it is closed; does not wait. It is not unlocked before, because the file
/// system may fail to do that, as one in a network can: for nix's `Flock` that is a panic.
fn lock(file: &File) -> nix::Result<()> {
    // SAFETY: flock(2) takes two integers.
    let result = unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) };
    Errno::result(result).map(drop)
}

/// Whether `file` is still the file at `path`.
pub(crate) fn is_at(file: impl AsFd, path: &Path) -> io::Result<bool> {
    let open = file_status::of(file, c"")?;
    match path.symlink_metadata() {
        Ok(there) => Ok((open.device, open.inode) == (there.dev(), there.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Holds the file for as long as this description of it is open (`F_OFD_SETLK`): over an exec too,
/// and in no process that has opened the file itself.
pub(crate) fn hold(file: impl AsFd) -> io::Result<()> {
    fcntl(file, FcntlArg::F_OFD_SETLK(&whole_file(libc::F_WRLCK)))?;
    Ok(())
}

/// Whether a process [holds](hold) the file. Users who may only read the file cannot hold it: they
/// can lock it for reading, which is not looked for here.
pub(crate) fn is_held(file: impl AsFd) -> io::Result<bool> {
    let mut lock = whole_file(libc::F_RDLCK);
    fcntl(file, FcntlArg::F_OFD_GETLK(&mut lock))?;
    Ok(lock.l_type == kind(libc::F_WRLCK))
}

fn whole_file(lock: libc::c_int) -> libc::flock {
    libc::flock {
        l_type: kind(lock),
        l_whence: kind(libc::SEEK_SET),
        l_start: 0,
        l_len: 0,
        // A lock of a description has none.
        l_pid: 0,
    }
}

fn kind(constant: libc::c_int) -> libc::c_short {
    libc::c_short::try_from(constant).expect("the fields of a lock are so short")
}

/// A lease on a file, for tests (fcntl(2), `F_SETLEASE`): who opens the file waits until it is
/// given back.
#[cfg(test)]
pub(crate) struct Lease<'a>(&'a File);

/// libc does not have it.
#[cfg(test)]
const F_SETSIG: libc::c_int = 10;

#[cfg(test)]
impl<'a> Lease<'a> {
    /// This descriptor must be the only one of the file.
    pub(crate) fn take(file: &'a File) -> io::Result<Self> {
        let lease = Self(file);
        // The kernel asks for it by a signal. This one does nothing (signal(7)).
        lease.fcntl(F_SETSIG, libc::SIGURG)?;
        lease.fcntl(libc::F_SETLEASE, libc::F_WRLCK)?;
        Ok(lease)
    }

    /// Whether an open of the file waits for it.
    pub(crate) fn is_wanted(&self) -> io::Result<bool> {
        Ok(self.fcntl(libc::F_GETLEASE, 0)? != libc::F_WRLCK)
    }

    pub(crate) fn give_back(self) -> io::Result<()> {
        self.fcntl(libc::F_SETLEASE, libc::F_UNLCK).map(drop)
    }

    fn fcntl(&self, command: libc::c_int, argument: libc::c_int) -> io::Result<libc::c_int> {
        // SAFETY: these commands take an integer, and the descriptor is open.
        let result = unsafe { libc::fcntl(self.0.as_raw_fd(), command, argument) };
        Ok(Errno::result(result)?)
    }
}
