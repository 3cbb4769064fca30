//! The monotonic clock, as all processes of a machine see it. `Instant` is the same clock, but one
//! process cannot tell another what it reads there.

use std::time::Duration;

use nix::libc;

/// clock_gettime(2), `CLOCK_MONOTONIC`: it stands still while the machine is suspended.
pub(crate) fn monotonic() -> Duration {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `now` is valid for the write; the clock always exists, so there is no error.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    let seconds = u64::try_from(now.tv_sec).expect("the monotonic clock starts at 0");
    let nanos = u32::try_from(now.tv_nsec).expect("less than a second");
    Duration::new(seconds, nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_on_as_instant_does() {
        let (instant, before) = (std::time::Instant::now(), monotonic());
        while instant.elapsed() < Duration::from_millis(3) {}
        let passed = monotonic() - before;
        assert!(passed >= Duration::from_millis(2), "{passed:?}");
    }
}
