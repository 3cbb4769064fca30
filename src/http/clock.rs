//! Time as connections know it: ticks of one coarse clock.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use super::wheel::Tick;

/// The coarse clock. It counts ticks of the registry, not time: while a worker is stuck in a
/// handler it reads nobody's bytes, and no client is to be blamed for that.
#[derive(Debug, Default)]
pub(super) struct Clock(AtomicU64);

impl Clock {
    pub(super) fn now(&self) -> Tick {
        Tick(self.0.load(Relaxed))
    }

    pub(super) fn advance(&self) -> Tick {
        Tick(self.0.fetch_add(1, Relaxed) + 1)
    }
}

/// The tick at which something began to be in the way, kept as tick + 1; 0 is "nothing is".
#[derive(Debug, Default)]
pub(super) struct Since(AtomicU64);

impl Since {
    pub(super) fn begin(&self, now: Tick) {
        if self.0.load(Relaxed) == 0 {
            self.0.store(now.0 + 1, Relaxed);
        }
    }

    pub(super) fn end(&self) {
        self.0.store(0, Relaxed);
    }

    pub(super) fn get(&self) -> Option<Tick> {
        self.0.load(Relaxed).checked_sub(1).map(Tick)
    }
}
