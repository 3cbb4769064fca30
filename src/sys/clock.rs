//! Clocks: of the machine, and of a thread. The monotonic clock is the same for all processes of a
//! machine. `Instant` is the same clock, but its value cannot be sent to another process.

use std::time::Duration;

use nix::time::ClockId;

/// clock_gettime(2), `CLOCK_MONOTONIC`. The clock stops while the machine is suspended.
pub(crate) fn monotonic() -> Duration {
    let now = ClockId::CLOCK_MONOTONIC.now();
    now.expect("the clock always exists").into()
}

/// clock_gettime(2), `CLOCK_THREAD_CPUTIME_ID`: the CPU time of the thread that calls this.
pub(crate) fn of_this_thread() -> Duration {
    let spent = ClockId::CLOCK_THREAD_CPUTIME_ID.now();
    spent.expect("the clock always exists").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_advances_like_instant() {
        let (instant, before) = (std::time::Instant::now(), monotonic());
        while instant.elapsed() < Duration::from_millis(3) {}
        let passed = monotonic() - before;
        assert!(passed >= Duration::from_millis(2), "{passed:?}");
    }
}
