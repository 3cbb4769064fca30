//! Starts a worker: fork(2), then descriptors, limits and credentials, then execve(2).

use std::io;
use std::os::fd::{BorrowedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::libc;
use nix::sys::prctl;
use nix::sys::resource::{Resource, getrlimit, rlim_t, setrlimit};
use nix::sys::signal::Signal;
use nix::unistd::{Pid, getppid, setsid};

use crate::hooks::Limit;
use crate::sys::before_main::{self, Owner};
use crate::sys::credentials::Credentials;
use crate::sys::terminal;

/// The first descriptor after standard input, output and error.
const FIRST: RawFd = 3;

/// What a worker inherits besides its command line and environment.
#[derive(Debug)]
pub(crate) struct Inherit {
    /// These descriptors keep their numbers. All others from 3 on are closed, also those that the
    /// program itself has opened.
    pub(crate) fds: Vec<RawFd>,
    pub(crate) limits: Vec<(Limit, u64)>,
    /// User and group of the worker; `None` for those of the master.
    pub(crate) credentials: Option<Credentials>,
}

/// Which session (setsid(2)) a worker is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Session {
    Master,
    /// A new session without a controlling terminal. A process may write input into its controlling
    /// terminal (ioctl_tty(2), `TIOCSTI`), and the program that reads this input may have more
    /// rights than a worker.
    New,
}

/// Starts `command` with `inherit` and with standard input from /dev/null. The new process has no
/// controlling terminal, and gets `SIGTERM` when this thread ends (prctl(2), `PR_SET_PDEATHSIG`).
///
/// The error has a number, but if a limit cannot be raised.
pub(crate) fn spawn(command: &mut Command, inherit: Inherit) -> io::Result<Pid> {
    let master = Pid::this();
    let last = match knows_close_on_exec() {
        true => None,
        false => Some(last_open()?),
    };
    command.stdin(Stdio::null());
    let (name, inherited) = before_main::variable(Owner::ChildOf(master), &inherit.fds);
    command.env(name, inherited);
    // With any other error the process may have a terminal.
    let may_have_terminal = !matches!(terminal::open(), Err(Errno::ENXIO));
    let session = match inherit.credentials.is_some() || may_have_terminal {
        true => Session::New,
        false => Session::Master,
    };
    let raised = inherit.limits.iter().find_map(raised);
    let prepare = move || prepare(master, last, session, &inherit);
    // SAFETY: between fork and exec only async-signal-safe work is allowed. `prepare` makes system
    // calls on values made before the fork; it neither allocates nor takes a lock.
    unsafe { command.pre_exec(prepare) };
    let spawned = command.spawn().map_err(|error| match raised {
        Some(why) if error.raw_os_error() == Some(Errno::EPERM as i32) => {
            io::Error::new(error.kind(), why)
        }
        _ => error,
    })?;
    Ok(Pid::from_raw(
        spawned.id().try_into().expect("a pid is a positive i32"),
    ))
}

/// Runs in the new process before exec.
fn prepare(
    master: Pid,
    last: Option<RawFd>,
    session: Session,
    inherit: &Inherit,
) -> io::Result<()> {
    close_all_on_exec(last)?;
    if session == Session::New {
        setsid()?;
    }
    for &fd in &inherit.fds {
        // SAFETY: the master holds `fd` open while it spawns, and this process has its copy.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        fcntl(fd, FcntlArg::F_SETFD(FdFlag::empty()))?;
    }
    for &(limit, value) in &inherit.limits {
        // Limits may have 32 bits. A value that does not fit means no limit.
        let value = rlim_t::try_from(value).unwrap_or(libc::RLIM_INFINITY);
        setrlimit(resource(limit), value, value)?;
    }
    // After the limits, because only root may raise one. Before the line below, because the kernel
    // clears that signal when credentials change.
    if let Some(credentials) = inherit.credentials {
        credentials.apply()?;
    }
    prctl::set_pdeathsig(Signal::SIGTERM)?;
    // The master may have died before the line above.
    if getppid() != master {
        return Err(Errno::ESRCH.into());
    }
    Ok(())
}

/// Marks every descriptor from [`FIRST`] on as close-on-exec, also those that other code of the
/// program opened without that flag.
///
/// Linux 5.10 does not know the flag. There this marks them one by one: up to `last`, the highest
/// that is open, not up to the limit, which may be 1,000,000,000.
fn close_all_on_exec(last: Option<RawFd>) -> io::Result<()> {
    let Some(last) = last else {
        return close_range_on_exec(FIRST.unsigned_abs()).map_err(io::Error::from);
    };
    for fd in FIRST..=last {
        // SAFETY: the borrow is used for one fcntl(2); a number that is not open gives EBADF.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        match fcntl(fd, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)) {
            Ok(_) | Err(Errno::EBADF) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Whether the kernel can mark descriptors as close-on-exec in one call. To find the highest one
/// takes long if there are many.
fn knows_close_on_exec() -> bool {
    // No descriptor has so high a number.
    close_range_on_exec(libc::c_uint::MAX).is_ok()
}

/// Marks the descriptors from this number on as close-on-exec.
fn close_range_on_exec(first: libc::c_uint) -> nix::Result<()> {
    // SAFETY: close_range(2) takes three integers; with CLOSE_RANGE_CLOEXEC it closes nothing now.
    let result = unsafe {
        libc::syscall(
            libc::SYS_close_range,
            first,
            libc::c_uint::MAX,
            libc::CLOSE_RANGE_CLOEXEC,
        )
    };
    Errno::result(result).map(drop)
}

/// The highest descriptor that is open (proc(5)).
fn last_open() -> io::Result<RawFd> {
    let mut last = FIRST;
    for entry in std::fs::read_dir("/proc/self/fd")? {
        let number = entry?.file_name();
        last = last.max(
            number
                .to_str()
                .and_then(|text| text.parse().ok())
                .unwrap_or(0),
        );
    }
    Ok(last)
}

/// What is wrong with a limit if this process may not raise it (setrlimit(2)). Then the error is
/// `EPERM`, as that of a change of the user.
fn raised(&(limit, value): &(Limit, u64)) -> Option<String> {
    let (_, hard) = getrlimit(resource(limit)).ok()?;
    let value = rlim_t::try_from(value).unwrap_or(libc::RLIM_INFINITY);
    let why = || format!("{limit:?} {value} is above the hard limit of the master, {hard}");
    (value > hard).then(why)
}

fn resource(limit: Limit) -> Resource {
    match limit {
        Limit::OpenFiles => Resource::RLIMIT_NOFILE,
        Limit::AddressSpace => Resource::RLIMIT_AS,
        Limit::Core => Resource::RLIMIT_CORE,
        Limit::CpuTime => Resource::RLIMIT_CPU,
    }
}

/// Sets the name of this process in `/proc/PID/comm`, which ps(1) and top(1) show (prctl(2),
/// `PR_SET_NAME`). The kernel cuts it after 15 bytes.
pub(crate) fn set_name(name: &std::ffi::CStr) {
    // Fails only for an unreadable address.
    let _ = prctl::set_name(name);
}
