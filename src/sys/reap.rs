//! Finds and reaps ended processes (wait(2)).

use nix::errno::Errno;
use nix::libc;
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::{Pid, getpid, gettid};

use crate::hooks::{Core, WorkerExit};

/// Returns a process that has ended and was started by this thread; `None` without one. As PID 1 it
/// also gets those that others have started. Until the process is [reaped](take), its pid
/// is not reused, and this function may return it again.
pub(crate) fn ended() -> Option<Pid> {
    // SAFETY: a `siginfo_t` is integers and addresses, for which zero is a value.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT | of_this_thread();
    loop {
        // SAFETY: the kernel writes to `info`, which is valid for writes.
        let result = unsafe { libc::waitid(libc::P_ALL, 0, &raw mut info, flags) };
        match Errno::result(result) {
            Err(Errno::EINTR) => {}
            // There are no children (`ECHILD`).
            Err(_) => return None,
            Ok(_) => break,
        }
    }
    // SAFETY: waitid(2) has succeeded, so it has set this field. 0 means that no child has ended.
    let pid = unsafe { info.si_pid() };
    (pid > 0).then(|| Pid::from_raw(pid))
}

/// Fails if a filter of system calls hides processes that have ended: the master would wait for
/// them without end.
pub(crate) fn check() -> nix::Result<()> {
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    match waitid(Id::All, flags) {
        Err(Errno::ECHILD) => Ok(()),
        result => result.map(drop),
    }
}

/// The flag that leaves processes that other threads have started to those threads, which wait for
/// them (wait(2)). The main thread of PID 1 gets the orphans; another thread that serves as PID 1
/// must look at all processes.
fn of_this_thread() -> libc::c_int {
    let (process, thread) = (getpid(), gettid());
    match process == Pid::from_raw(1) && thread != process {
        true => 0,
        false => libc::__WNOTHREAD,
    }
}

/// Whether a process that this one has started is reaped already: by another thread, because this
/// one has not done it.
pub(crate) fn is_gone(pid: Pid) -> bool {
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    waitid(Id::Pid(pid), flags) == Err(Errno::ECHILD)
}

/// Reaps a process that has [`ended`], and returns how it ended; `None` if another thread has
/// reaped it meanwhile.
///
/// This does not use nix's `waitpid`: if a real-time signal ended the process, nix reaps it and
/// returns an error, so the signal is lost.
pub(crate) fn take(pid: Pid) -> Option<WorkerExit> {
    let mut status = 0;
    loop {
        // SAFETY: the kernel writes to `status`, which is valid for writes.
        let reaped = unsafe { libc::waitpid(pid.as_raw(), &raw mut status, libc::WNOHANG) };
        match Errno::result(reaped) {
            Err(Errno::EINTR) => {}
            Ok(1..) => return parse(status),
            Ok(_) | Err(_) => return None,
        }
    }
}

fn parse(status: libc::c_int) -> Option<WorkerExit> {
    if libc::WIFEXITED(status) {
        return Some(WorkerExit::Code(libc::WEXITSTATUS(status)));
    }
    let core = if libc::WCOREDUMP(status) {
        Core::Dumped
    } else {
        Core::None
    };
    let signal = libc::WTERMSIG(status);
    libc::WIFSIGNALED(status).then_some(WorkerExit::Signal { signal, core })
}
