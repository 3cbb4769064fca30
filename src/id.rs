//! The numbers that name things: which seat, which round, which worker.

use std::fmt;

/// The most slots a server may have. Each costs a process, a listener per address and a channel;
/// beyond this a typing error is likelier than a machine with as many CPUs.
pub const MAX_WORKERS: usize = 1024;

/// A seat, `0..workers`. A slot keeps its listeners for the life of the server; workers come and
/// go in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub u16);

/// Which round of workers: 1 at the start, raised by each reload and each upgrade, also by one that
/// is abandoned. A worker is *current* if its generation is the newest, else *stale*.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Generation(pub u32);

/// One worker process, counted from 1 in the order of spawning and never used again. Unlike a pid
/// it cannot come to mean another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerId(pub u64);

/// One of the connections that a worker has open. When the connection is over, the number may be
/// that of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub usize);

impl Generation {
    /// The generation that the first workers belong to.
    pub const FIRST: Self = Self(1);

    /// The generation after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for WorkerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
