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

/// Memory for one piece. Dropped, it is given back.
#[derive(Debug)]
pub(super) struct Memory {
    pub(super) bytes: Vec<u8>,
    share: Arc<Share>,
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
        let share = Arc::clone(&self.share);
        let memory = Memory {
            bytes: Vec::new(),
            share,
        };
        memory.renew(left)
    }
}

impl Memory {
    /// The same memory, larger or smaller, for the next piece.
    pub(super) fn renew(mut self, left: u64) -> Self {
        self.give_back();
        let free = CONNECTION_BYTES.saturating_sub(self.share.held.load(Relaxed));
        let free_of_worker = WORKER_BYTES.saturating_sub(self.share.worker.load(Relaxed));
        let piece = (free / 2)
            .min(free_of_worker / 2)
            .clamp(PIECE_MIN, PIECE_MAX);
        let length = usize::try_from(left).map_or(piece, |left| left.min(piece));
        self.share.held.fetch_add(length, Relaxed);
        self.share.worker.fetch_add(length, Relaxed);
        self.bytes.resize(length, 0);
        self.bytes.shrink_to_fit();
        self
    }

    fn give_back(&self) {
        self.share.held.fetch_sub(self.bytes.len(), Relaxed);
        self.share.worker.fetch_sub(self.bytes.len(), Relaxed);
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.give_back();
    }
}
