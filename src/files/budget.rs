//! Limits what responses hold while their clients read slowly: the memory of a connection and of a
//! worker, and the number of responses of a connection at a time.
//!
//! An HTTP/2 client may ask for 128 files in one packet and grant no window. A connection with one
//! response reads its file in pieces of 60 KiB; one with many responses reads smaller pieces of
//! each file, and the requests beyond [`RESPONSES_MAX`] wait.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::id::ConnectionId;
use crate::sys::socket::PORTION;

/// The largest piece. It is so large that the cost of the blocking pool is small beside the read.
pub(super) const PIECE_MAX: usize = PORTION;

/// The smallest piece, so that every response makes progress: a page.
const PIECE_MIN: usize = 4 * 1024;

/// How much one connection may hold in larger pieces. With the smallest pieces of 16 responses it
/// is at most 273 KiB.
const CONNECTION_BYTES: usize = 4 * PIECE_MAX;

/// How much all connections may hold before each gets the smallest pieces: 32 KiB for each of a
/// thousand clients.
const WORKER_BYTES: usize = 32 * 1024 * 1024;

/// How many responses of one connection may have a piece, an open file or the page of a directory,
/// which may have some megabytes. Browsers ask for fewer large files at a time, and a small file is
/// one piece.
pub(super) const RESPONSES_MAX: usize = 16;

/// The budget of a worker.
#[derive(Debug, Default)]
pub(super) struct Budget {
    worker: Arc<AtomicUsize>,
    connections: Mutex<HashMap<ConnectionId, Weak<Share>>>,
}

/// Of the bodies that handlers make themselves.
static HANDLERS: LazyLock<Budget> = LazyLock::new(Budget::default);

/// The share of one connection.
#[derive(Debug)]
struct Share {
    responses: Arc<Semaphore>,
    held: AtomicUsize,
    worker: Arc<AtomicUsize>,
}

/// Allows one response, until its last clone is dropped.
#[derive(Clone, Debug)]
pub(super) struct Permit {
    share: Arc<Share>,
    _response: Arc<OwnedSemaphorePermit>,
}

/// The memory of one piece, which goes back to the budget when it is dropped. Its response counts
/// until HTTP has dropped the last piece, which may be after the end of the body.
#[derive(Debug)]
pub(super) struct Memory {
    pub(super) bytes: Vec<u8>,
    permit: Permit,
}

/// The bytes of a response that were made for it.
struct Held {
    bytes: Bytes,
    _permit: Permit,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Budget {
    /// Waits while the connection has [`RESPONSES_MAX`] responses. A response whose connection is
    /// not known never waits.
    pub(super) async fn permit(&self, connection: Option<ConnectionId>) -> Permit {
        let share = self.share(connection);
        let response = Arc::clone(&share.responses).acquire_owned().await;
        Permit {
            share,
            _response: Arc::new(response.expect("nothing closes the semaphore")),
        }
    }

    /// `None` if the connection has [`RESPONSES_MAX`] responses.
    pub(super) fn try_permit(&self, connection: Option<ConnectionId>) -> Option<Permit> {
        let share = self.share(connection);
        let response = Arc::clone(&share.responses).try_acquire_owned().ok()?;
        Some(Permit {
            share,
            _response: Arc::new(response),
        })
    }

    fn share(&self, connection: Option<ConnectionId>) -> Arc<Share> {
        let share = || {
            Arc::new(Share {
                responses: Arc::new(Semaphore::new(RESPONSES_MAX)),
                held: AtomicUsize::new(0),
                worker: Arc::clone(&self.worker),
            })
        };
        let Some(connection) = connection else {
            return share();
        };
        let connections = self.connections.lock();
        // Nothing panics while it holds the lock.
        let mut connections = connections.unwrap_or_else(PoisonError::into_inner);
        if let Some(share) = connections.get(&connection).and_then(Weak::upgrade) {
            return share;
        }
        if connections.len() == connections.capacity() {
            connections.retain(|_, share| share.strong_count() > 0);
        }
        let share = share();
        connections.insert(connection, Arc::downgrade(&share));
        share
    }
}

impl Permit {
    /// For a body that a handler makes itself. Its connection is not known.
    pub(super) fn of_handler() -> Self {
        let permit = HANDLERS.try_permit(None);
        permit.expect("its share is new")
    }

    /// The response counts until HTTP has dropped these bytes.
    pub(super) fn hold(self, bytes: Bytes) -> Bytes {
        Bytes::from_owner(Held {
            bytes,
            _permit: self,
        })
    }

    /// Memory for the next piece, if `left` bytes are left: at most half of what the connection may
    /// still hold, so that its other responses get memory too.
    pub(super) fn memory(&self, left: u64) -> Memory {
        let memory = Memory {
            bytes: Vec::new(),
            permit: self.clone(),
        };
        memory.renew(left)
    }
}

impl Memory {
    /// The same memory for the next piece, with a new size.
    pub(super) fn renew(mut self, left: u64) -> Self {
        self.give_back();
        let share = &self.permit.share;
        let free = CONNECTION_BYTES.saturating_sub(share.held.load(Relaxed));
        let free_of_worker = WORKER_BYTES.saturating_sub(share.worker.load(Relaxed));
        let piece = (free / 2).min(free_of_worker / 2);
        let piece = piece.clamp(PIECE_MIN, PIECE_MAX);
        let length = usize::try_from(left).map_or(piece, |left| left.min(piece));
        share.held.fetch_add(length, Relaxed);
        share.worker.fetch_add(length, Relaxed);
        self.bytes.resize(length, 0);
        self.bytes.shrink_to_fit();
        self
    }

    fn give_back(&self) {
        let share = &self.permit.share;
        share.held.fetch_sub(self.bytes.len(), Relaxed);
        share.worker.fetch_sub(self.bytes.len(), Relaxed);
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.give_back();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: ConnectionId = ConnectionId(1);
    const OTHER: ConnectionId = ConnectionId(2);

    fn try_permit(budget: &Budget, connection: ConnectionId) -> Option<Permit> {
        budget.try_permit(Some(connection))
    }

    #[test]
    fn a_response_counts_until_its_last_piece_is_gone() {
        let budget = Budget::default();
        let mut pieces = Vec::new();
        for _ in 0..2 * RESPONSES_MAX {
            pieces.extend(try_permit(&budget, ONE).map(|permit| permit.memory(1)));
        }
        assert_eq!(pieces.len(), RESPONSES_MAX);
        assert!(try_permit(&budget, OTHER).is_some());
        pieces.pop();
        assert!(try_permit(&budget, ONE).is_some());
    }

    #[test]
    fn the_pieces_of_a_connection_become_smaller() {
        let budget = Budget::default();
        let responses = (0..RESPONSES_MAX).map(|_| try_permit(&budget, ONE).unwrap());
        let mut pieces: Vec<_> = responses.map(|permit| permit.memory(u64::MAX)).collect();
        let sizes: Vec<_> = pieces.iter().map(|piece| piece.bytes.len()).collect();
        assert_eq!(sizes[..6], [61_440, 61_440, 61_440, 30_720, 15_360, 7_680]);
        let other = try_permit(&budget, OTHER).unwrap().memory(u64::MAX);
        assert_eq!(other.bytes.len(), PIECE_MAX);
        assert!(sizes.iter().sum::<usize>() <= 273 * 1024);
        // A response that is alone again has large pieces, and all memory comes back.
        let last = pieces.pop().unwrap();
        drop(pieces);
        let last = last.renew(u64::MAX);
        assert_eq!(last.bytes.len(), PIECE_MAX);
        drop((last, other));
        assert_eq!(budget.worker.load(Relaxed), 0);
    }

    #[test]
    fn a_worker_with_many_slow_clients_reads_small_pieces() {
        let budget = Budget::default();
        let pieces: Vec<_> = (0..2000)
            .map(|at| {
                try_permit(&budget, ConnectionId(at))
                    .unwrap()
                    .memory(u64::MAX)
            })
            .collect();
        assert_eq!(pieces[0].bytes.len(), PIECE_MAX);
        assert_eq!(pieces[1999].bytes.len(), PIECE_MIN);
        let held: usize = pieces.iter().map(|piece| piece.bytes.len()).sum();
        assert!(held <= WORKER_BYTES + 2000 * PIECE_MIN, "{held}");
    }
}
