//! What happens in a process before its `main`: the descriptors that it inherits from its master,
//! or from the image before it, become close-on-exec.
//!
//! To cross execve(2) a descriptor must not be close-on-exec. `main` may start programs long before
//! it comes to the server, and these would inherit listeners, control channel and private keys, and
//! keep the port bound when the server has ended. So the one who calls execve(2) names them in a
//! variable, and the new image closes the door before `main` runs: the loader calls what is in the
//! section `.init_array` (elf(5)) first.

use std::ffi::{CStr, OsStr};
use std::os::fd::{BorrowedFd, RawFd};
use std::os::unix::ffi::OsStrExt;

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::libc;
use nix::unistd::{Pid, getppid};

/// Names the descriptors, and whose they are.
const VARIABLE: &CStr = c"PREFORK_SERVER_INHERITED";

/// The first descriptor after standard input, output and error.
const FIRST: RawFd = 3;

/// No process has more descriptors than this (proc_sys_fs(5), the default of `nr_open`), so a
/// variable that names more is nonsense.
const END: RawFd = 1 << 20;

/// Whose the descriptors are. A variable stays in the environment of what a process starts; there
/// neither is true.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heir {
    /// A direct descendant of this process.
    ChildOf(Pid),
    /// The next image of this process.
    Image(Pid),
}

// SAFETY: `.init_array` holds pointers to functions of the C calling convention, which the loader
// calls once on the only thread. glibc passes arguments and musl none; a function without
// parameters takes no notice of them. It does not unwind, allocates nothing and relies on nothing
// that Rust's runtime sets up.
#[cfg(not(miri))]
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = close_on_exec;

extern "C" fn close_on_exec() {
    // SAFETY: the name ends with NUL, and no other thread exists that could change the environment.
    let text = unsafe { libc::getenv(VARIABLE.as_ptr()) };
    if text.is_null() {
        return;
    }
    // SAFETY: what getenv(3) returns, and is not null, ends with NUL; nothing changes it while it
    // is used here.
    let text = unsafe { CStr::from_ptr(text) };
    for fd in text.to_str().map(descriptors).into_iter().flatten() {
        // SAFETY: the borrow is used for one fcntl(2); a number that is not open gives EBADF.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        // What is not open needs no flag, and there is nobody to tell yet.
        let _ = fcntl(fd, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC));
    }
}

/// The variable that names the descriptors of `heir`, by name and content.
pub(super) fn variable(heir: Heir, fds: &[RawFd]) -> (&'static OsStr, String) {
    let (kind, pid) = match heir {
        Heir::ChildOf(master) => ('c', master),
        Heir::Image(this) => ('i', this),
    };
    let mut text = format!("{kind} {pid}");
    let mut fds = fds.to_vec();
    fds.sort_unstable();
    // They are mostly neighbours, and there may be thousands.
    for run in fds.chunk_by(|before, after| after - before <= 1) {
        text.push_str(&format!(" {} {}", run[0], run[run.len() - 1]));
    }
    (OsStr::from_bytes(VARIABLE.to_bytes()), text)
}

/// The descriptors that the variable names, if this process is the one that is meant.
fn descriptors(text: &str) -> impl Iterator<Item = RawFd> {
    let mut words = text.split(' ');
    let kind = words.next();
    let pid = words.next().and_then(|pid| pid.parse().ok());
    let meant = match (kind, pid.map(Pid::from_raw)) {
        (Some("c"), Some(master)) => getppid() == master,
        (Some("i"), Some(this)) => Pid::this() == this,
        _ => false,
    };
    let run = move || {
        let mut number = || {
            words
                .next()?
                .parse()
                .ok()
                .filter(|fd| (FIRST..END).contains(fd))
        };
        Some(number()?..=number()?)
    };
    std::iter::from_fn(run).take_while(move |_| meant).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(text: &str) -> Vec<RawFd> {
        descriptors(text).collect()
    }

    #[test]
    fn descriptors_are_named_to_the_process_that_is_meant() {
        let fds = [9, 3, 4, 5, 12, 11];
        let sorted = [3, 4, 5, 9, 11, 12];
        for heir in [Heir::Image(Pid::this()), Heir::ChildOf(getppid())] {
            let (name, text) = variable(heir, &fds);
            assert_eq!(name, "PREFORK_SERVER_INHERITED");
            assert_eq!(named(&text), sorted, "{text}");
        }
        for heir in [Heir::Image(getppid()), Heir::ChildOf(Pid::this())] {
            let (_, text) = variable(heir, &fds);
            assert!(named(&text).is_empty(), "{text}");
        }
        let (_, none) = variable(Heir::Image(Pid::this()), &[]);
        assert!(named(&none).is_empty());
    }

    #[test]
    fn what_is_no_list_names_nothing_more() {
        let this = Pid::this();
        for text in ["", "i", "x 1 3 4", "i x 3 4"] {
            assert!(named(text).is_empty(), "{text}");
        }
        for rest in [
            "2 4",
            "3",
            "-1 4",
            "3 1048576",
            "3 2147483647",
            "x 4",
            "5 3",
        ] {
            assert!(named(&format!("i {this} {rest}")).is_empty(), "{rest}");
        }
        assert_eq!(named(&format!("i {this} 7 8 x 9")), [7, 8]);
    }
}
