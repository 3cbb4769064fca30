//! For how long a worker believes what it has seen of a file.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use nix::time::ClockId;

/// So a change is seen within a second.
const FRESH_FOR: Duration = Duration::from_millis(900);

/// When something was last seen, in milliseconds since the machine started.
#[derive(Debug)]
pub(super) struct Seen(AtomicU64);

impl Seen {
    pub(super) fn now() -> Self {
        Self(AtomicU64::new(now()))
    }

    pub(super) fn again(&self) {
        self.0.store(now(), Relaxed);
    }

    /// Whether a new look at the file system is not yet due.
    pub(super) fn is_fresh(&self) -> bool {
        self.is_within(FRESH_FOR)
    }

    pub(super) fn is_within(&self, time: Duration) -> bool {
        let age = now().saturating_sub(self.0.load(Relaxed));
        u128::from(age) < time.as_millis()
    }

    /// As if it were long ago.
    #[cfg(test)]
    pub(super) fn expire(&self) {
        self.0.store(0, Relaxed);
    }
}

/// The time of the kernel's last tick, which costs less to read than the exact time.
fn now() -> u64 {
    let now = ClockId::CLOCK_MONOTONIC_COARSE.now();
    let millis = now.map_or(Duration::ZERO, Duration::from).as_millis();
    u64::try_from(millis).unwrap_or(u64::MAX)
}
