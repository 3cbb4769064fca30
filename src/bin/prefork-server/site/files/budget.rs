//! What responses may hold while their clients take their time: memory by connection and by
//! worker, and responses at once by connection.
//!
//! A client of HTTP/2 asks for 128 files in a packet and grants no window. Nothing of a file is
//! held beyond its share: a connection that sends one file reads it in pieces of 64 KiB; one that
//! sends many reads smaller pieces of each, and the requests beyond [`RESPONSES_MAX`] wait.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Weak};

use prefork_server::ConnectionId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The most that is read at a time: enough that a trip to the blocking pool costs little beside it.
pub(super) const PIECE_MAX: usize = 64 * 1024;

/// The least, so that no response stands still: a page, which is what the kernel copies at once.
const PIECE_MIN: usize = 4 * 1024;

/// What one connection may hold, less some minimal pieces: with 16 responses at most 168 KiB.
const CONNECTION_BYTES: usize = 128 * 1024;

/// What all connections may hold before they get minimal pieces. A thousand clients that take 32
/// KiB at a time are well served; more than that are slow ones.
const WORKER_BYTES: usize = 32 * 1024 * 1024;

/// How many responses of one connection have a piece or a file open. Browsers ask for fewer large
/// files at a time; small files are done in one piece.
const RESPONSES_MAX: usize = 16;

/// That of a worker.
#[derive(Debug, Default)]
pub(super) struct Budget {
    worker: Arc<AtomicUsize>,
    connections: RefCell<HashMap<ConnectionId, Weak<Share>>>,
}

/// That of one connection.
#[derive(Debug)]
struct Share {
    responses: Arc<Semaphore>,
    held: AtomicUsize,
    worker: Arc<AtomicUsize>,
}

/// The right to one response, for as long as a clone of it lives.
#[derive(Clone, Debug)]
pub(super) struct Permit {
    share: Arc<Share>,
    _response: Arc<OwnedSemaphorePermit>,
}

/// Memory for one piece. Dropped, it is given back. As long as HTTP has a piece of it, its response
/// counts, though the body may be over: the last piece waits for the client as the others do.
#[derive(Debug)]
pub(super) struct Memory {
    pub(super) bytes: Vec<u8>,
    permit: Permit,
}

impl Budget {
    /// Waits while the connection has as many responses as it may.
    pub(super) async fn permit(&self, connection: ConnectionId) -> Permit {
        let share = self.share(connection);
        let response = Arc::clone(&share.responses).acquire_owned().await;
        let response = response.expect("nothing closes the semaphore");
        Permit {
            share,
            _response: Arc::new(response),
        }
    }

    fn share(&self, connection: ConnectionId) -> Arc<Share> {
        let mut connections = self.connections.borrow_mut();
        if let Some(share) = connections.get(&connection).and_then(Weak::upgrade) {
            return share;
        }
        if connections.len() == connections.capacity() {
            connections.retain(|_, share| share.strong_count() > 0);
        }
        let share = Arc::new(Share {
            responses: Arc::new(Semaphore::new(RESPONSES_MAX)),
            held: AtomicUsize::new(0),
            worker: Arc::clone(&self.worker),
        });
        connections.insert(connection, Arc::downgrade(&share));
        share
    }
}

impl Permit {
    /// Memory for the next piece of so many bytes that are left: at most half of what the
    /// connection may still hold, so that others get some too.
    pub(super) fn memory(&self, left: u64) -> Memory {
        let memory = Memory {
            bytes: Vec::new(),
            permit: self.clone(),
        };
        memory.renew(left)
    }
}

impl Memory {
    /// The same memory, larger or smaller, for the next piece.
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
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    const ONE: ConnectionId = ConnectionId(1);
    const OTHER: ConnectionId = ConnectionId(2);

    /// `None` if it has to be waited for.
    fn try_permit(budget: &Budget, connection: ConnectionId) -> Option<Permit> {
        let mut cx = Context::from_waker(Waker::noop());
        match pin!(budget.permit(connection)).poll(&mut cx) {
            Poll::Ready(permit) => Some(permit),
            Poll::Pending => None,
        }
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
        assert_eq!(sizes[..6], [65_536, 32_768, 16_384, 8_192, 4_096, 4_096]);
        let other = try_permit(&budget, OTHER).unwrap().memory(u64::MAX);
        assert_eq!(other.bytes.len(), PIECE_MAX);
        assert!(sizes.iter().sum::<usize>() <= 168 * 1024);
        // One that goes on alone has large pieces again, and nothing stays accounted for.
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
