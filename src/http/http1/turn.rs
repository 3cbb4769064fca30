//! When a connection yields to the other connections of its worker.

/// After so many requests in a row a connection yields.
const REQUESTS_MAX: usize = 16;

/// After so many bytes in a row a connection yields, at the end of a write. A client that reads as
/// fast as the server writes could keep the worker busy for ever.
const BYTES_MAX: usize = 1024 * 1024;

/// What a connection has done since its task was polled.
#[derive(Default)]
pub(crate) struct Turn {
    requests: usize,
    bytes: usize,
}

impl Turn {
    #[inline]
    pub(crate) fn has_served_enough(&self) -> bool {
        self.requests >= REQUESTS_MAX
    }

    #[inline]
    pub(crate) fn has_sent_enough(&self) -> bool {
        self.bytes >= BYTES_MAX
    }

    #[inline]
    pub(crate) fn count_request(&mut self) {
        self.requests += 1;
    }

    pub(crate) fn count_bytes(&mut self, count: usize) {
        self.bytes += count;
    }
}
