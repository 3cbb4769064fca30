//! Unix listeners (unix(7)) and their socket files.

use std::fs::{File, Permissions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;
use socket2::{Domain, SockAddr, Socket, Type};

use crate::codec::record;
use crate::sys::credentials::may_make;
use crate::sys::locks::{PathLock, is_at};
use crate::sys::{fds, listener};

/// The file of a Unix listener, which is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct UnixFile {
    path: PathBuf,
    /// The file itself (open(2), `O_PATH`), by which it is told from another with the same name.
    /// While it is open, no other file gets its inode, even after it was removed.
    file: OwnedFd,
}

record!(UnixFile { path, file });

/// The mode and group of a socket file, which decide which users may connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Access {
    pub(crate) mode: u32,
    /// `None` for the group of the process.
    pub(crate) group: Option<u32>,
}

/// Makes a listening Unix socket. Replaces the socket file of a server that has ended. Fails if a
/// process listens on the existing file, or if the file is not a socket.
pub(crate) fn listen(path: &Path, backlog: u32, access: Access) -> io::Result<(OwnedFd, UnixFile)> {
    let _lock = PathLock::acquire(path)?;
    remove_stale(path)?;
    let socket = Socket::new(Domain::UNIX, Type::STREAM.nonblocking().cloexec(), None)?;
    socket.bind(&SockAddr::unix(path)?)?;
    // Before listen(2), so that no client can connect by the permissions of the umask.
    let listening = access.apply(path).and_then(|file| {
        fds::refuse_filters(&socket);
        listener::listen(&socket, backlog).map(|()| file)
    });
    let file = listening.inspect_err(|_| drop(std::fs::remove_file(path)))?;
    let path = path.to_owned();
    Ok((socket.into(), UnixFile { path, file }))
}

/// Whether a socket file could be made at the path, or another server has one there.
pub(crate) fn check(path: &Path) -> io::Result<()> {
    SockAddr::unix(path)?;
    match path.symlink_metadata() {
        Ok(metadata) if !metadata.file_type().is_socket() => return Err(not_a_socket()),
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    Ok(may_make(path)?)
}

fn not_a_socket() -> io::Error {
    io::Error::new(
        io::ErrorKind::AlreadyExists,
        "the file exists and is not a socket; remove it or choose another path",
    )
}

impl Access {
    /// Sets mode and group of the file, and returns it. Other users may write to the directory, so
    /// this opens the file once and follows no link.
    fn apply(self, path: &Path) -> io::Result<OwnedFd> {
        let file = File::from(fds::open_path(path, OFlag::O_NOFOLLOW)?);
        if !file.metadata()?.file_type().is_socket() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        // The path by which chmod(2) and chown(2) change a file that is open with O_PATH (open(2)).
        let open = format!("/proc/self/fd/{}", file.as_raw_fd());
        if let Some(group) = self.group {
            chown(&open, None, Some(group)).map_err(|error| unchanged("group", &error))?;
        }
        let mode = Permissions::from_mode(self.mode);
        std::fs::set_permissions(open, mode).map_err(|error| unchanged("mode", &error))?;
        Ok(file.into())
    }
}

/// What is wrong if the file cannot be changed. Another address would not help.
fn unchanged(what: &str, error: &io::Error) -> io::Error {
    let why = match error.kind() {
        io::ErrorKind::NotFound => ": /proc must be mounted",
        io::ErrorKind::PermissionDenied => ": this process lacks CAP_CHOWN (capabilities(7))",
        _ => "",
    };
    io::Error::other(format!(
        "cannot set the {what} of the socket file: {error}{why}"
    ))
}

fn remove_stale(path: &Path) -> io::Result<()> {
    match path.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
        Ok(metadata) if !metadata.file_type().is_socket() => {
            return Err(not_a_socket());
        }
        Ok(_) => {}
    }
    // Non-blocking, because connect(2) blocks while the queue of the listener is full.
    let socket = Socket::new(Domain::UNIX, Type::STREAM.nonblocking().cloexec(), None)?;
    match socket.connect(&SockAddr::unix(path)?) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path)
        }
        Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
        Ok(()) | Err(_) => Err(io::ErrorKind::AddrInUse.into()),
    }
}

impl UnixFile {
    /// Whether the path leads to no file, or to that of another server.
    pub(crate) fn is_gone(&self) -> bool {
        matches!(is_at(&self.file, &self.path), Ok(false))
    }

    /// Removes the file, unless another server has replaced it.
    fn remove(&self) -> io::Result<()> {
        let _lock = PathLock::acquire(&self.path)?;
        if is_at(&self.file, &self.path)? {
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
                let path = self.path.display();
                tracing::warn!(%path, %error, "cannot remove the socket file");
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::os::unix::fs::MetadataExt;
    use std::os::unix::net::UnixListener;

    use nix::fcntl::AT_FDCWD;
    use nix::sys::stat::{UtimensatFlags, utimensat};
    use nix::sys::time::TimeSpec;
    use socket2::SockRef;

    use super::*;
    use crate::address::Address;
    use crate::sys::listener::is_shut_down;
    use crate::sys::listener::tests::until_closed;

    pub(crate) const ALL: Access = Access {
        mode: 0o666,
        group: None,
    };

    #[test]
    fn a_socket_file_is_replaced_only_if_no_process_listens_on_it() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("s");
        let (listener, file) = listen(&path, 8, ALL).expect("a new path");
        let error = listen(&path, 8, ALL).expect_err("a process listens");
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        drop(listener);
        until_closed(&Address::Unix(path.clone()));
        let (_again, new_file) = listen(&path, 8, ALL).expect("no process listens");
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
    fn a_file_whose_time_has_changed_is_removed_at_the_end() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("s");
        let (_listener, file) = listen(&path, 8, ALL).expect("a new path");
        let long_ago = TimeSpec::new(1, 0);
        let touched = utimensat(
            AT_FDCWD,
            &path,
            &long_ago,
            &long_ago,
            UtimensatFlags::NoFollowSymlink,
        );
        touched.expect("it is ours");
        assert!(!file.is_gone());
        drop(file);
        assert!(!path.exists());
    }

    /// The kernel often gives a new file the inode of the one that was removed just before.
    #[test]
    fn the_file_of_another_server_is_not_removed() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("s");
        for _ in 0..64 {
            let (listener, file) = listen(&path, 8, ALL).expect("a new path");
            std::fs::remove_file(&path).expect("it is ours");
            drop(listener);
            assert!(file.is_gone());
            let _other = UnixListener::bind(&path).expect("a new path");
            assert!(file.is_gone());
            drop(file);
            std::fs::remove_file(&path).expect("it is still there");
        }
    }

    #[test]
    fn a_path_that_another_server_has_locked_is_in_use() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("s");
        let lock = PathLock::acquire(&path).expect("a new path");
        let error = listen(&path, 8, ALL).expect_err("another server starts");
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        drop(lock);
        // The lock file of a killed server is not locked.
        std::fs::write(dir.path().join("s.lock"), "").expect("writable");
        listen(&path, 8, ALL).expect("a new path");
    }

    #[test]
    fn the_file_has_the_requested_mode_with_any_umask() {
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
    fn access_does_not_change_the_target_of_a_link() {
        let dir = tempfile::tempdir().expect("a directory");
        let precious = dir.path().join("precious");
        std::fs::write(&precious, "data").expect("writable");
        std::fs::set_permissions(&precious, Permissions::from_mode(0o600)).expect("it is ours");
        let path = dir.path().join("s");
        std::os::unix::fs::symlink(&precious, &path).expect("a new name");
        ALL.apply(&path).expect_err("it is no socket");
        let metadata = precious.metadata().expect("it is there");
        assert_eq!(metadata.mode() & 0o777, 0o600);
    }

    #[test]
    fn a_socket_that_was_shut_down_is_replaced() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("s");
        let (listener, _file) = listen(&path, 8, ALL).expect("a new path");
        assert!(!is_shut_down(&listener));
        let shutdown = SockRef::from(&listener).shutdown(std::net::Shutdown::Read);
        shutdown.expect("it listens");
        assert!(is_shut_down(&listener));
        let (_again, _file) = listen(&path, 8, ALL).expect("it refuses connections");
        std::os::unix::net::UnixStream::connect(&path).expect("it listens");
    }

    #[test]
    fn a_socket_whose_queue_is_full_is_in_use() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("s");
        let (_listener, _file) = listen(&path, 0, ALL).expect("a new path");
        let _first = std::os::unix::net::UnixStream::connect(&path).expect("room for one");
        let error = listen(&path, 8, ALL).expect_err("a process listens");
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    }

    #[test]
    fn a_file_that_is_no_socket_is_not_changed() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("precious");
        std::fs::write(&path, "data").expect("writable");
        let error = listen(&path, 8, ALL).expect_err("a plain file").to_string();
        assert!(error.contains("not a socket"), "{error}");
        assert_eq!(std::fs::read_to_string(&path).expect("still there"), "data");
    }
}
