//! Ended processes (wait(2)).

use nix::errno::Errno;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::hooks::{Core, ExitStatus};

/// The next process that has ended, whoever it was: as PID 1 strangers become ours too. `None` if
/// none is waiting to be reaped.
pub(crate) fn next() -> Option<(Pid, ExitStatus)> {
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(pid, code)) => return Some((pid, ExitStatus::Code(code))),
            Ok(WaitStatus::Signaled(pid, signal, dumped)) => {
                let core = if dumped { Core::Dumped } else { Core::None };
                return Some((
                    pid,
                    ExitStatus::Signal {
                        signal: signal as i32,
                        core,
                    },
                ));
            }
            Ok(WaitStatus::StillAlive) | Err(Errno::ECHILD) => return None,
            // Stopped and continued processes are not asked for.
            Ok(_) | Err(_) => {}
        }
    }
}
