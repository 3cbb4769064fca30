//! How the kernel chooses when this thread runs: see sched(7).

use std::io;

use nix::libc;

/// Makes this thread, and those it starts from now on, one that does not preempt others when it
/// wakes up (`SCHED_BATCH`). A policy that somebody has chosen stays.
pub(crate) fn become_batch() -> io::Result<()> {
    // SAFETY: it takes a number and returns one.
    let policy = unsafe { libc::sched_getscheduler(0) };
    match policy {
        -1 => return Err(io::Error::last_os_error()),
        libc::SCHED_OTHER => {}
        _ => return Ok(()),
    }
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: the kernel reads the parameters, which live until it has returned.
    match unsafe { libc::sched_setscheduler(0, libc::SCHED_BATCH, &raw const parameters) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    fn policy() -> i32 {
        // SAFETY: it takes a number and returns one.
        unsafe { libc::sched_getscheduler(0) }
    }

    #[test]
    fn a_thread_becomes_batch_and_stays_what_somebody_made_it() {
        let of_threads = thread::spawn(|| {
            become_batch().expect("no privilege is needed");
            let heir = thread::spawn(policy).join().expect("no panic");
            (policy(), heir)
        });
        let expected = (libc::SCHED_BATCH, libc::SCHED_BATCH);
        assert_eq!(of_threads.join().expect("no panic"), expected);
        let of_idle = thread::spawn(|| {
            let parameters = libc::sched_param { sched_priority: 0 };
            // SAFETY: the kernel reads the parameters, which live until it has returned.
            unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const parameters) };
            become_batch().expect("nothing is done");
            policy()
        });
        assert_eq!(of_idle.join().expect("no panic"), libc::SCHED_IDLE);
    }
}
