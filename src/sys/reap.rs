//! Ended processes (wait(2)).

use nix::errno::Errno;
use nix::libc;
use nix::unistd::Pid;

use crate::hooks::{Core, ExitStatus};

/// The next process that has ended, whoever it was: as PID 1 strangers become ours too. `None` if
/// none is waiting to be reaped.
///
/// Not by nix's `waitpid`: it reaps a process that a real-time signal ended and then returns an
/// error, so that nobody learns who it was.
pub(crate) fn next() -> Option<(Pid, ExitStatus)> {
    loop {
        let mut status = 0;
        // SAFETY: `status` is an integer for the kernel to write to.
        let pid = unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) };
        match Errno::result(pid) {
            Ok(1..) => {}
            Err(Errno::EINTR) => continue,
            // Nobody has ended, or there is nobody (`ECHILD`).
            Ok(_) | Err(_) => return None,
        }
        // Stopped and continued processes are not asked for.
        if let Some(status) = parse(status) {
            return Some((Pid::from_raw(pid), status));
        }
    }
}

fn parse(status: libc::c_int) -> Option<ExitStatus> {
    if libc::WIFEXITED(status) {
        return Some(ExitStatus::Code(libc::WEXITSTATUS(status)));
    }
    let core = if libc::WCOREDUMP(status) {
        Core::Dumped
    } else {
        Core::None
    };
    let signal = libc::WTERMSIG(status);
    libc::WIFSIGNALED(status).then_some(ExitStatus::Signal { signal, core })
}
