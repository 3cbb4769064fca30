//! The monotonic clock, as all processes of a machine see it. `Instant` is the same clock, but one
//! process cannot tell another what it reads there.

use std::time::Duration;

use nix::time::ClockId;

/// clock_gettime(2), `CLOCK_MONOTONIC`: it stands still while the machine is suspended.
pub(crate) fn monotonic() -> Duration {
    let now = ClockId::CLOCK_MONOTONIC.now();
    now.expect("the clock always exists").into()
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
