//! Ended processes (wait(2)).

use nix::errno::Errno;
use nix::libc;
use nix::unistd::Pid;

use crate::hooks::{Core, WorkerExit};

/// A process that has ended, whoever it was: as PID 1 strangers become ours too. `None` if none
/// has. Until it is [taken](take) its pid means nobody else, and it is what this tells of.
pub(crate) fn ended() -> Option<Pid> {
    // SAFETY: a `siginfo_t` is integers and addresses, for which zero is a value.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    loop {
        // SAFETY: `info` is for the kernel to write to.
        let result = unsafe { libc::waitid(libc::P_ALL, 0, &raw mut info, flags) };
        match Errno::result(result) {
            Err(Errno::EINTR) => {}
            // There is nobody (`ECHILD`).
            Err(_) => return None,
            Ok(_) => break,
        }
    }
    // SAFETY: waitid(2) has succeeded, so this is what it fills in; 0 says that nobody has ended.
    let pid = unsafe { info.si_pid() };
    (pid > 0).then(|| Pid::from_raw(pid))
}

/// Reaps a process that has [`ended`].
///
/// Not by nix's `waitpid`: it reaps a process that a real-time signal ended and then returns an
/// error, so that nobody learns how it ended.
pub(crate) fn take(pid: Pid) -> Option<WorkerExit> {
    let mut status = 0;
    loop {
        // SAFETY: `status` is an integer for the kernel to write to.
        let taken = unsafe { libc::waitpid(pid.as_raw(), &raw mut status, libc::WNOHANG) };
        match Errno::result(taken) {
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
