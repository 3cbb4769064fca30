//! Runs before `main`: makes the descriptors close-on-exec that the process inherits from its
//! master, or from the program that it ran before.
//!
//! A descriptor stays open over execve(2) only if it is not close-on-exec. `main` may start other
//! programs before it starts the server. They would inherit listeners, control channel and private
//! keys, and keep the port bound after the end of the server. So the caller of execve(2) lists the
//! descriptors in an environment variable, and the new program marks them before `main` runs: the
//! loader calls the functions in the section `.init_array` (elf(5)) first.

use std::ffi::{CStr, OsStr};
use std::os::fd::{BorrowedFd, RawFd};
use std::os::unix::ffi::OsStrExt;

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::libc;
use nix::unistd::{Pid, getppid};

/// Environment variable that lists the descriptors and their owner.
const VARIABLE: &CStr = c"PREFORK_SERVER_INHERITED";

/// The first descriptor after standard input, output and error.
const FIRST: RawFd = 3;

/// The highest possible number of a descriptor, plus 1 (proc_sys_fs(5), the default of `nr_open`).
/// A variable with a higher number is invalid.
const END: RawFd = 1 << 20;

/// The process that owns the descriptors. Programs that it starts inherit the variable too, but do
/// not match it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// A child of this process.
    ChildOf(Pid),
    /// This process after execve(2).
    Image(Pid),
}

// SAFETY: `.init_array` holds pointers to functions of the C calling convention, which the loader
// calls once on the only thread. glibc passes arguments and musl none; a function without
// parameters ignores them. It does not unwind, allocates nothing and needs nothing that Rust's
// runtime sets up.
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
    // SAFETY: the result of getenv(3) is not null, so it ends with NUL. Nothing changes it while it
    // is used here.
    let text = unsafe { CStr::from_ptr(text) };
    for fd in text.to_str().map(descriptors).into_iter().flatten() {
        // SAFETY: the borrow is used for one fcntl(2); a number that is not open gives EBADF.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        // It fails for a number that is not open, which needs no flag. No log exists yet.
        let _ = fcntl(fd, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC));
    }
}

/// Name and value of the variable that lists the descriptors of `owner`.
pub(super) fn variable(owner: Owner, fds: &[RawFd]) -> (&'static OsStr, String) {
    let (kind, pid) = match owner {
        Owner::ChildOf(master) => ('c', master),
        Owner::Image(this) => ('i', this),
    };
    let mut text = format!("{kind} {pid}");
    let mut fds = fds.to_vec();
    fds.sort_unstable();
    // Ranges keep the value short: there may be thousands, and most have consecutive numbers.
    for run in fds.chunk_by(|before, after| after - before <= 1) {
        text.push_str(&format!(" {} {}", run[0], run[run.len() - 1]));
    }
    (OsStr::from_bytes(VARIABLE.to_bytes()), text)
}

/// The descriptors in the variable, if this process is their owner.
fn descriptors(text: &str) -> impl Iterator<Item = RawFd> {
    let mut words = text.split(' ');
    let kind = words.next();
    let pid = words.next().and_then(|pid| pid.parse().ok());
    let is_owner = match (kind, pid.map(Pid::from_raw)) {
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
    std::iter::from_fn(run)
        .take_while(move |_| is_owner)
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(text: &str) -> Vec<RawFd> {
        descriptors(text).collect()
    }

    #[test]
    fn only_the_owner_gets_the_descriptors() {
        let fds = [9, 3, 4, 5, 12, 11];
        let sorted = [3, 4, 5, 9, 11, 12];
        for owner in [Owner::Image(Pid::this()), Owner::ChildOf(getppid())] {
            let (name, text) = variable(owner, &fds);
            assert_eq!(name, "PREFORK_SERVER_INHERITED");
            assert_eq!(named(&text), sorted, "{text}");
        }
        for other in [Owner::Image(getppid()), Owner::ChildOf(Pid::this())] {
            let (_, text) = variable(other, &fds);
            assert!(named(&text).is_empty(), "{text}");
        }
        let (_, none) = variable(Owner::Image(Pid::this()), &[]);
        assert!(named(&none).is_empty());
    }

    #[test]
    fn an_invalid_list_ends_at_its_first_error() {
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
