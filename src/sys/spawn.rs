//! Starting a worker: fork(2), put its inheritance in place, execve(2).

use std::io;
use std::os::fd::{BorrowedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::libc;
use nix::sys::prctl;
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::Signal;
use nix::unistd::{Pid, getppid, setsid};

use crate::hooks::Limit;
use crate::sys::before_main::{self, Heir};
use crate::sys::credentials::Credentials;

/// The first descriptor after standard input, output and error.
const FIRST: RawFd = 3;

/// What crosses exec besides the command line and the environment.
#[derive(Debug)]
pub(crate) struct Inherit {
    /// These descriptors keep their numbers; every other one is closed, whoever opened it.
    pub(crate) fds: Vec<RawFd>,
    pub(crate) limits: Vec<(Limit, u64)>,
    /// Whom it runs as, if not as its master.
    pub(crate) credentials: Option<Credentials>,
}

/// Which session (setsid(2)) a worker is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Session {
    Masters,
    /// One without a terminal: a process may type into its controlling terminal (ioctl_tty(2),
    /// `TIOCSTI`), and what reads there may have more rights than a worker.
    Own,
}

/// Starts `command` with standard input from /dev/null, `inherit` in place, and `SIGTERM` as the
/// signal it gets when this thread ends (prctl(2), `PR_SET_PDEATHSIG`). It has no controlling
/// terminal.
pub(crate) fn spawn(command: &mut Command, inherit: Inherit) -> io::Result<Pid> {
    let master = Pid::this();
    let last = last_open()?;
    command.stdin(Stdio::null());
    let (name, inherited) = before_main::variable(Heir::ChildOf(master), &inherit.fds);
    command.env(name, inherited);
    let session = match inherit.credentials.is_some() || may_have_terminal() {
        true => Session::Own,
        false => Session::Masters,
    };
    let prepare = move || prepare(master, last, session, &inherit);
    // SAFETY: between fork and exec only async-signal-safe work is allowed. `prepare` makes system
    // calls on values made before the fork; it neither allocates nor takes a lock.
    unsafe { command.pre_exec(prepare) };
    let spawned = command.spawn()?;
    Ok(Pid::from_raw(
        spawned.id().try_into().expect("a pid is a positive i32"),
    ))
}

/// Runs in the new process before exec.
fn prepare(master: Pid, last: RawFd, session: Session, inherit: &Inherit) -> io::Result<()> {
    close_all_on_exec(last)?;
    if session == Session::Own {
        setsid()?;
    }
    for &fd in &inherit.fds {
        // SAFETY: the master holds `fd` open while it spawns, and this process has its copy.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        fcntl(fd, FcntlArg::F_SETFD(FdFlag::empty()))?;
    }
    for &(limit, value) in &inherit.limits {
        setrlimit(resource(limit), value, value)?;
    }
    // After the limits, since only root may raise one; before the line below, since the kernel
    // forgets that signal when credentials change.
    if let Some(credentials) = inherit.credentials {
        credentials.take_on()?;
    }
    prctl::set_pdeathsig(Signal::SIGTERM)?;
    // The master may have died before the line above.
    if getppid() != master {
        return Err(Errno::ESRCH.into());
    }
    Ok(())
}

/// Marks every descriptor from [`FIRST`] on close-on-exec: also those that other code in the
/// program opened without asking for it.
fn close_all_on_exec(last: RawFd) -> io::Result<()> {
    // SAFETY: close_range(2) takes three integers; with CLOSE_RANGE_CLOEXEC it closes nothing now.
    let result = unsafe {
        libc::syscall(
            libc::SYS_close_range,
            FIRST as libc::c_uint,
            libc::c_uint::MAX,
            libc::CLOSE_RANGE_CLOEXEC,
        )
    };
    if result == 0 {
        return Ok(());
    }
    // Linux 5.10 does not know the flag: one by one. Not up to the limit, which may be a thousand
    // million.
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

/// Whether this process has a controlling terminal, or it is not known: without one the kernel
/// says so (tty(4)).
fn may_have_terminal() -> bool {
    match std::fs::File::open("/dev/tty") {
        Err(error) => error.raw_os_error() != Some(Errno::ENXIO as i32),
        Ok(_) => true,
    }
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

fn resource(limit: Limit) -> Resource {
    match limit {
        Limit::OpenFiles => Resource::RLIMIT_NOFILE,
        Limit::AddressSpace => Resource::RLIMIT_AS,
        Limit::Core => Resource::RLIMIT_CORE,
        Limit::CpuTime => Resource::RLIMIT_CPU,
    }
}

/// Names this process in `/proc/PID/comm`, which ps(1) and top(1) show (prctl(2), `PR_SET_NAME`);
/// the kernel cuts it after 15 bytes.
pub(crate) fn set_name(name: &std::ffi::CStr) {
    // Fails only for an unreadable address.
    let _ = prctl::set_name(name);
}
