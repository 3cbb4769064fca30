//! Buffers for the bytes that connections receive. A connection has one only while it has bytes
//! that are not parsed. So a few buffers, which stay in the CPU's cache, serve thousands of
//! connections.

use bytes::BytesMut;

use crate::pool::FreeList;

/// The most free buffers that are stored.
const FREE_MAX: usize = 32;

/// Capacity of a new buffer, in bytes. Most heads are shorter. The buffer may grow to the size of
/// one read.
const CAPACITY_MIN: usize = 1024;

/// The free buffers for input of a server.
pub(crate) struct Inputs(FreeList<BytesMut>);

impl Inputs {
    pub(crate) fn new() -> Self {
        Self(FreeList::new(FREE_MAX))
    }

    /// An empty buffer.
    pub(crate) fn take(&self) -> BytesMut {
        let free = self.0.take();
        free.unwrap_or_else(|| BytesMut::with_capacity(CAPACITY_MIN))
    }

    /// Takes back a buffer, which is empty.
    pub(crate) fn put_back(&self, input: BytesMut) {
        self.0.keep(input);
    }

    /// The number of free buffers.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}
