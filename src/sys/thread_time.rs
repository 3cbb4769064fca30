//! How the kernel has scheduled a thread.

use std::time::Duration;

use nix::unistd::Pid;

use crate::sys::processes;

/// Since the thread has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ThreadTime {
    /// Spent on a CPU.
    pub(crate) ran: Duration,
    /// Spent ready to run, while others had the CPU.
    pub(crate) waited: Duration,
    /// How often it got a CPU: after each sleep, and after it had to leave the CPU to others.
    pub(crate) runs: u64,
}

/// Of the first thread of a process, from `/proc/PID/schedstat` (the kernel's
/// Documentation/scheduler/sched-stats). `None` if the process has been reaped, or if the kernel
/// does not tell.
pub(crate) fn of_first_thread(pid: Pid) -> Option<ThreadTime> {
    let text = processes::read(pid, "schedstat").ok()?;
    let mut numbers = text.split_ascii_whitespace().map(str::parse);
    let mut next = || numbers.next()?.ok();
    Some(ThreadTime {
        ran: Duration::from_nanos(next()?),
        waited: Duration::from_nanos(next()?),
        runs: next()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_computes_runs_or_waits_for_its_cpu() {
        // It ends without the test, and after long enough.
        let mut child = std::process::Command::new("sh")
            .args(["-c", "i=0; while [ $i -lt 1000000 ]; do i=$((i + 1)); done"])
            .spawn()
            .expect("a shell");
        let pid = Pid::from_raw(child.id().cast_signed());
        let spent = || of_first_thread(pid).map(|time| time.ran + time.waited);
        let runs = of_first_thread(pid).map(|time| time.runs);
        assert!(runs > Some(0), "{runs:?}");
        let begun = spent();
        let mut now = begun;
        while now < begun.map(|begun| begun + Duration::from_millis(20))
            && child.try_wait().expect("a child").is_none()
        {
            now = spent();
        }
        let had_figures = now.is_some();
        child.kill().ok();
        child.wait().expect("a child");
        assert!(begun.is_some() && had_figures, "the kernel tells them");
        assert!(now > begun, "{now:?} after {begun:?}");
        assert_eq!(spent(), None, "it was reaped");
    }
}
