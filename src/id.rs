//! The numbers of slots, generations, workers and connections.

use std::fmt;

/// The most slots that a server may have. Each needs a process, a listener for each address and a
/// channel. A larger number is more likely a typing error than a machine with so many CPUs.
///
/// ```
/// use prefork_server::{MAX_WORKERS, Prefork, usable_cpus};
///
/// // Handlers that wait for the disk: more workers than CPUs.
/// let workers = (4 * usable_cpus().usable).min(MAX_WORKERS);
/// let server = Prefork::bind("127.0.0.1:8080").workers(workers);
/// ```
pub const MAX_WORKERS: usize = 1024;

/// A slot, `0..workers`. It keeps its listeners as long as the server runs, and one worker after
/// the other serves it. With the feature `serde` it can be serialized, as a number.
///
/// ```
/// use prefork_server::Slot;
///
/// /// The queues that a worker reads, of twelve. Each queue belongs to one slot.
/// fn queues(slot: Slot, workers: u16) -> impl Iterator<Item = u16> {
///     (0..12).filter(move |queue| queue % workers == slot.0)
/// }
///
/// // In the app: `queues(worker.slot(), worker.workers())`.
/// assert!(queues(Slot(1), 4).eq([1, 5, 9]));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Slot(pub u16);

/// A generation of workers: 1 at the start, and one more with each reload and each upgrade, also
/// with one that is abandoned. A worker is *current* if its generation is the newest, else *stale*.
/// With the feature `serde` it can be serialized, as a number.
///
/// ```
/// use prefork_server::{Generation, Status};
///
/// /// How many workers a reload to `newest` has still to replace.
/// fn stale(status: &Status, newest: Generation) -> usize {
///     let workers = status.slots.iter().flat_map(|slot| &slot.workers);
///     workers.filter(|it| it.worker.generation < newest).count()
/// }
///
/// assert_eq!(Generation::FIRST.next(), Generation(2));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Generation(pub u32);

/// A worker process, counted from 1 in the order of spawning. Unlike a pid, the number is never
/// used for another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct WorkerId(pub(crate) u64);

/// An open connection of a worker. After the end of the connection, another one may get the number.
///
/// ```
/// use prefork_server::{BoxError, Request, Response};
///
/// async fn respond(request: Request) -> Result<Response, BoxError> {
///     // The lines of one connection have the same number.
///     let connection = request.body().connection_id();
///     eprintln!("{:x} {} {}", connection.0, request.method(), request.uri());
///     Ok(Response::default())
/// }
/// ```
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
