//! Time for connections: ticks of one coarse clock.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use crate::http::registry::wheel::Tick;

/// The coarse clock. It counts ticks of the registry, not time. While a handler blocks the worker,
/// the worker reads no bytes of any client, so that time does not count against the clients.
#[derive(Debug, Default)]
pub(crate) struct Clock(AtomicU64);

impl Clock {
    pub(crate) fn now(&self) -> Tick {
        Tick(self.0.load(Relaxed))
    }

    pub(crate) fn advance(&self) -> Tick {
        Tick(self.0.fetch_add(1, Relaxed) + 1)
    }
}

/// The tick at which a wait began, stored as tick + 1; 0 means that nothing waits.
#[derive(Debug, Default)]
pub(crate) struct Since(AtomicU64);

impl Since {
    pub(crate) fn begin(&self, now: Tick) {
        if self.0.load(Relaxed) == 0 {
            self.0.store(now.0 + 1, Relaxed);
        }
    }

    pub(crate) fn end(&self) {
        self.0.store(0, Relaxed);
    }

    pub(crate) fn get(&self) -> Option<Tick> {
        self.0.load(Relaxed).checked_sub(1).map(Tick)
    }
}

/// Number of bytes of a response that a client must take within the write timeout, if it has not
/// taken all. At the default of 30 s that is 137 bytes a second. If it could be less, a byte now
/// and then would keep a response, and what its handler holds for it, for ever.
pub(crate) const TAKEN_MIN: usize = 1 << TAKEN_BITS;

const TAKEN_BITS: u32 = 12;

/// As [`Since`], for a client that does not take what the server writes. The lowest bits are the
/// number of bytes that it has taken meanwhile, which is less than [`TAKEN_MIN`].
#[derive(Debug, Default)]
pub(crate) struct Blocked(AtomicU64);

impl Blocked {
    pub(crate) fn begin(&self, now: Tick) {
        if self.0.load(Relaxed) == 0 {
            self.0.store((now.0 + 1) << TAKEN_BITS, Relaxed);
        }
    }

    /// The client has taken this many bytes. Returns whether that is progress.
    #[inline]
    pub(crate) fn note_taken(&self, bytes: usize) -> bool {
        let blocked = self.0.load(Relaxed);
        if blocked == 0 {
            return true;
        }
        let taken = (blocked as usize % TAKEN_MIN).saturating_add(bytes);
        if taken < TAKEN_MIN {
            self.0.store(blocked + bytes as u64, Relaxed);
        }
        taken >= TAKEN_MIN
    }

    pub(crate) fn end(&self) {
        self.0.store(0, Relaxed);
    }

    pub(crate) fn get(&self) -> Option<Tick> {
        (self.0.load(Relaxed) >> TAKEN_BITS)
            .checked_sub(1)
            .map(Tick)
    }
}
