//! Listeners on a path (unix(7)), and the files that they leave there.

use std::fs::{File, OpenOptions, Permissions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use nix::libc;
use socket2::{Domain, SockAddr, Socket, Type};

use crate::codec::record;

/// How often a lock is tried for whose file another server removes meanwhile. Each time that server
/// has come to an end with its start, so a second attempt is rare.
const LOCK_ATTEMPTS: u32 = 16;

/// The file of a Unix listener, removed when the master lets go of it.
#[derive(Debug)]
pub(crate) struct UnixFile {
    path: PathBuf,
    identity: Identity,
}

/// Tells a file from another of the same name. The time of binding is part of it, since a new file
/// often gets the inode of the one that was just removed.
#[derive(Debug, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
    bound: (i64, i64),
}

record!(UnixFile { path, identity });
record!(Identity {
    device,
    inode,
    bound
});

/// Who may connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Access {
    pub(crate) mode: u32,
    /// `None`: the process's own.
    pub(crate) group: Option<u32>,
}

/// Held while a server finds out whether a path is free and takes it, or gives it back: a file
/// beside the socket's, locked (flock(2)) and removed afterwards.
#[derive(Debug)]
struct PathLock {
    path: PathBuf,
    _file: File,
}

/// A listening Unix socket. A socket file left over by a server that is gone is replaced; one that
/// is answered, or that is not a socket, is not.
pub(crate) fn listen(path: &Path, backlog: u32, access: Access) -> io::Result<(OwnedFd, UnixFile)> {
    let _lock = PathLock::take(path)?;
    remove_stale(path)?;
    let socket = Socket::new(Domain::UNIX, Type::STREAM.nonblocking().cloexec(), None)?;
    socket.bind(&SockAddr::unix(path)?)?;
    // Before it listens: until then nobody can connect, whatever the umask lets them.
    access.give(path)?;
    socket.listen(i32::try_from(backlog).unwrap_or(i32::MAX))?;
    let identity = Identity::of(path)?;
    Ok((
        socket.into(),
        UnixFile {
            path: path.to_owned(),
            identity,
        },
    ))
}

impl Access {
    /// Others may write to the directory, so the file is opened once and no link is followed.
    fn give(self, path: &Path) -> io::Result<()> {
        let mut options = OpenOptions::new();
        let options = options
            .read(true)
            .custom_flags(libc::O_PATH | libc::O_NOFOLLOW);
        let file = options.open(path)?;
        if !file.metadata()?.file_type().is_socket() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        // What chmod(2) and chown(2) do to a descriptor of O_PATH (open(2)).
        let file = format!("/proc/self/fd/{}", file.as_raw_fd());
        if self.group.is_some() {
            chown(&file, None, self.group)?;
        }
        std::fs::set_permissions(file, Permissions::from_mode(self.mode))
    }
}

fn remove_stale(path: &Path) -> io::Result<()> {
    match path.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
        Ok(metadata) if !metadata.file_type().is_socket() => {
            return Err(io::Error::new(
                io::ErrorKind::AlreadyExists,
                "the file exists and is not a socket; remove it or choose another path",
            ));
        }
        Ok(_) => {}
    }
    // Non-blocking: one whose queue is full would keep us waiting until it accepts.
    let socket = Socket::new(Domain::UNIX, Type::STREAM.nonblocking().cloexec(), None)?;
    match socket.connect(&SockAddr::unix(path)?) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path)
        }
        Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
        Ok(()) | Err(_) => Err(io::ErrorKind::AddrInUse.into()),
    }
}

impl Identity {
    fn of(path: &Path) -> io::Result<Self> {
        let metadata = path.symlink_metadata()?;
        Ok(Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            bound: (metadata.mtime(), metadata.mtime_nsec()),
        })
    }
}

impl UnixFile {
    /// Another server may have replaced the file; then it is not ours to remove.
    fn remove(&self) -> io::Result<()> {
        let _lock = PathLock::take(&self.path)?;
        if Identity::of(&self.path)? == self.identity {
            std::fs::remove_file(&self.path)?;
        }
        Ok(())
    }
}

impl Drop for UnixFile {
    fn drop(&mut self) {
        match self.remove() {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                tracing::warn!(path = %self.path.display(), %error, "the socket file stays");
            }
        }
    }
}

impl PathLock {
    /// Does not wait: a server that holds the lock is about to listen there, or has just ended.
    fn take(socket: &Path) -> io::Result<Self> {
        let mut name = socket.as_os_str().to_owned();
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
            match file.try_lock() {
                Ok(()) => {}
                Err(std::fs::TryLockError::WouldBlock) => break,
                Err(std::fs::TryLockError::Error(error)) => return Err(error),
            }
            if is_at(&file, &path)? {
                return Ok(Self { path, _file: file });
            }
        }
        Err(io::Error::new(
            io::ErrorKind::AddrInUse,
            "another server starts or ends at this path just now",
        ))
    }
}

impl Drop for PathLock {
    fn drop(&mut self) {
        // Before the lock itself goes. A file that stays is the next lock's.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Whether this is the file at `path`, and not one that was there when it was opened.
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let open = file.metadata()?;
    match path.symlink_metadata() {
        Ok(there) => Ok((open.dev(), open.ino()) == (there.dev(), there.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use socket2::SockRef;

    use super::*;
    use crate::sys::listener::is_shut_down;

    pub(crate) const ALL: Access = Access {
        mode: 0o666,
        group: None,
    };

    #[test]
    fn a_socket_file_is_replaced_only_if_nobody_answers() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("s");
        let (listener, file) = listen(&path, 8, ALL).expect("a new path");
        let error = listen(&path, 8, ALL).expect_err("somebody answers");
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        drop(listener);
        let (_again, new_file) = listen(&path, 8, ALL).expect("nobody answers now");
        drop(file);
        assert!(
            path.exists(),
            "the old owner must not remove the new one's file"
        );
        drop(new_file);
        let left = std::fs::read_dir(dir.path()).expect("a directory");
        assert_eq!(left.count(), 0, "no socket and no lock");
    }

    #[test]
    fn a_path_is_one_servers_while_it_starts_there() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("s");
        let lock = PathLock::take(&path).expect("a new path");
        let error = listen(&path, 8, ALL).expect_err("another server starts");
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        drop(lock);
        // A lock that a server has left over which was killed is nobody's.
        std::fs::write(dir.path().join("s.lock"), "").expect("writable");
        listen(&path, 8, ALL).expect("a new path");
    }

    #[test]
    fn the_file_has_the_mode_that_was_asked_for_whatever_the_umask() {
        let dir = tempfile::tempdir().expect("a directory");
        for mode in [0o666, 0o660, 0o600, 0o777] {
            let path = dir.path().join("s");
            let access = Access { mode, ..ALL };
            let (_listener, _file) = listen(&path, 8, access).expect("a new path");
            let metadata = path.symlink_metadata().expect("it is there");
            assert_eq!(metadata.mode() & 0o7777, mode);
        }
    }

    #[test]
    fn a_link_is_not_followed_to_the_file_of_another() {
        let dir = tempfile::tempdir().expect("a directory");
        let precious = dir.path().join("precious");
        std::fs::write(&precious, "data").expect("writable");
        std::fs::set_permissions(&precious, Permissions::from_mode(0o600)).expect("it is ours");
        let path = dir.path().join("s");
        std::os::unix::fs::symlink(&precious, &path).expect("a new name");
        ALL.give(&path).expect_err("it is no socket");
        let metadata = precious.metadata().expect("it is there");
        assert_eq!(metadata.mode() & 0o777, 0o600);
    }

    #[test]
    fn one_that_was_shut_down_is_replaced() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("s");
        let (listener, _file) = listen(&path, 8, ALL).expect("a new path");
        assert!(!is_shut_down(&listener));
        let shutdown = SockRef::from(&listener).shutdown(std::net::Shutdown::Read);
        shutdown.expect("it listens");
        assert!(is_shut_down(&listener));
        let (_again, _file) = listen(&path, 8, ALL).expect("nobody answers");
        std::os::unix::net::UnixStream::connect(&path).expect("it listens");
    }

    #[test]
    fn a_socket_whose_queue_is_full_is_in_use() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("s");
        let (_listener, _file) = listen(&path, 0, ALL).expect("a new path");
        let _first = std::os::unix::net::UnixStream::connect(&path).expect("room for one");
        let error = listen(&path, 8, ALL).expect_err("somebody has it, and is slow");
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    }

    #[test]
    fn a_file_that_is_no_socket_is_left_alone() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("precious");
        std::fs::write(&path, "data").expect("writable");
        let error = listen(&path, 8, ALL).expect_err("a plain file").to_string();
        assert!(error.contains("not a socket"), "{error}");
        assert_eq!(std::fs::read_to_string(&path).expect("still there"), "data");
    }
}
