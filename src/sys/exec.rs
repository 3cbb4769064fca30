//! Replaces the program of this process (execve(2)). The process keeps its pid, its children and
//! the chosen descriptors. The state is passed in a memfd_create(2) file.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::ffi::{CString, OsString};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::libc;
use nix::sys::uio::pread;
use nix::unistd::{Pid, execve};

use crate::sys::before_main::{self, Owner};
use crate::sys::{fds, memory};

/// Makes a sealed memory file with these bytes.
pub(crate) fn state_file(bytes: &[u8]) -> io::Result<OwnedFd> {
    memory::sealed(c"prefork-server state", bytes)
}

/// Reads the first bytes of the file `fd` into `bytes`, and returns their number; `None` if the
/// file was not made by [`state_file`].
pub(crate) fn state_head(fd: RawFd, bytes: &mut [u8]) -> Option<usize> {
    // SAFETY: the borrow ends within this function, in which nothing closes a descriptor. If `fd`
    // is not open, the calls fail with EBADF, and the result is `None`.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    let seals = fcntl(fd, FcntlArg::F_GET_SEALS).ok()?;
    // Linux 6.3 and newer add F_SEAL_EXEC to a file that was made with MFD_NOEXEC_SEAL.
    (seals & !libc::F_SEAL_EXEC == memory::SEALS.bits())
        .then(|| pread(fd, bytes, 0).ok())
        .flatten()
}

/// Returns the bytes of an inherited file of [`state_file`], and closes it. Call it once.
pub(crate) fn take_state(fd: RawFd) -> io::Result<Vec<u8>> {
    memory::contents(&fds::adopt(fd)?.into())
}

/// Makes this process run `program`, with the same arguments, the same environment and `variables`.
/// Of the close-on-exec descriptors, only those in `crossing` stay open. Returns only on failure,
/// and then nothing has changed.
pub(crate) fn exec(
    program: &Path,
    variables: Vec<(OsString, OsString)>,
    crossing: &[RawFd],
) -> io::Result<Infallible> {
    let path = c_string(program.as_os_str().to_owned())?;
    let arguments = std::env::args_os()
        .map(c_string)
        .collect::<Result<Vec<_>, _>>()?;
    let (inherited, fds) = before_main::variable(Owner::Image(Pid::this()), crossing);
    let environment: BTreeMap<_, _> = std::env::vars_os()
        .chain(variables)
        .chain([(inherited.into(), fds.into())])
        .collect();
    let environment = environment
        .into_iter()
        .map(|(name, value)| c_string([name, value].join("=".as_ref())))
        .collect::<Result<Vec<_>, _>>()?;
    let _crossing = Crossing::open(crossing)?;
    Ok(execve(&path, &arguments, &environment)?)
}

fn c_string(text: OsString) -> io::Result<CString> {
    Ok(CString::new(text.into_vec())?)
}

/// Descriptors that are not close-on-exec until this is dropped.
struct Crossing<'a>(&'a [RawFd]);

impl<'a> Crossing<'a> {
    fn open(fds: &'a [RawFd]) -> io::Result<Self> {
        let crossing = Self(fds);
        fds.iter().try_for_each(|&fd| mark(fd, FdFlag::empty()))?;
        Ok(crossing)
    }
}

fn mark(fd: RawFd, flag: FdFlag) -> io::Result<()> {
    // SAFETY: the borrow is used for one fcntl(2); a number that is not open gives EBADF.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    fcntl(fd, FcntlArg::F_SETFD(flag))?;
    Ok(())
}

impl Drop for Crossing<'_> {
    fn drop(&mut self) {
        for &fd in self.0 {
            // It fails for a number that is not open, which needs no flag.
            let _ = mark(fd, FdFlag::FD_CLOEXEC);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, AsRawFd, IntoRawFd};

    use super::*;

    #[test]
    fn a_state_is_read_once_and_cannot_be_changed() {
        let state = state_file(b"all of it").expect("a memory file");
        let error = nix::unistd::write(&state, b"more").expect_err("it is sealed");
        assert_eq!(error, nix::errno::Errno::EPERM);
        let mut head = [0; 3];
        assert_eq!(state_head(state.as_raw_fd(), &mut head), Some(3));
        assert_eq!(&head, b"all");
        assert_eq!(
            take_state(state.into_raw_fd()).expect("whole"),
            b"all of it"
        );
    }

    #[test]
    fn another_file_has_no_state_head() {
        let (reader, _writer) = io::pipe().expect("a pipe");
        assert_eq!(state_head(reader.as_raw_fd(), &mut [0; 3]), None);
        assert_eq!(state_head(1_000_000, &mut [0; 3]), None);
        let file = tempfile::tempfile().expect("a file");
        assert_eq!(state_head(file.as_raw_fd(), &mut [0; 3]), None);
    }

    #[test]
    fn an_exec_that_fails_leaves_descriptors_as_they_were() {
        let (reader, writer) = io::pipe().expect("a pipe");
        let crossing = [reader.as_raw_fd(), writer.as_raw_fd()];
        let error = exec(
            Path::new("/no/such/program"),
            vec![("A".into(), "b".into())],
            &crossing,
        );
        let error = error.expect_err("there is no such program");
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        for fd in [reader.as_fd(), writer.as_fd()] {
            let flags = fcntl(fd, FcntlArg::F_GETFD).expect("it is open");
            assert_eq!(FdFlag::from_bits_truncate(flags), FdFlag::FD_CLOEXEC);
        }
    }
}
