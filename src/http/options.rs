//! The HTTP options.

use std::time::Duration;

use http::HeaderValue;

/// How connections are served: what a client may take, and how long.
///
/// A timeout may pass late, by half a second at the most, but never early.
#[derive(Clone, Debug)]
#[must_use]
pub struct Http {
    pub(super) header_timeout: Duration,
    pub(super) body_timeout: Duration,
    pub(super) write_timeout: Duration,
    pub(super) idle_timeout: Duration,
    pub(super) linger: Duration,
    pub(super) max_warm: usize,
    pub(super) max_header_size: usize,
    pub(super) max_body_size: Option<u64>,
    pub(super) keep_alive: KeepAlive,
    pub(super) server_header: Option<HeaderValue>,
    pub(super) date_header: DateHeader,
}

/// Whether a connection may carry more than one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeepAlive {
    /// As many as the client likes.
    Enabled,
    /// Each response carries `Connection: close`.
    Disabled,
}

/// Whether responses carry `Date` (RFC 9110 6.6.1) if the handler did not set it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DateHeader {
    /// They do.
    Sent,
    /// They do not: for a server that has no clock worth the name, or to save 37 bytes.
    Omitted,
}

impl Default for Http {
    fn default() -> Self {
        Self {
            header_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(30),
            write_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(75),
            linger: Duration::from_millis(100),
            max_warm: 1024,
            max_header_size: 16 * 1024,
            max_body_size: Some(4 * 1024 * 1024),
            keep_alive: KeepAlive::Enabled,
            server_header: None,
            date_header: DateHeader::Sent,
        }
    }
}

impl Http {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// How long a request's head may take from its first byte to its last; then the client is
    /// answered 408. A new connection that says nothing for as long is closed without a word.
    ///
    /// Default: 10 s.
    pub fn header_timeout(mut self, timeout: Duration) -> Self {
        self.header_timeout = timeout;
        self
    }

    /// How long a handler that reads the request's body may wait for the next piece of it; then it
    /// gets [`BodyError::TimedOut`](super::BodyError::TimedOut), and if it fails the client is
    /// answered 408. The whole body may take any time, and so may the handler.
    ///
    /// Default: 30 s.
    pub fn body_timeout(mut self, timeout: Duration) -> Self {
        self.body_timeout = timeout;
        self
    }

    /// How long a client may take nothing of a response that is there to be sent; then its
    /// connection is dropped. The whole response may take any time.
    ///
    /// Default: 30 s.
    pub fn write_timeout(mut self, timeout: Duration) -> Self {
        self.write_timeout = timeout;
        self
    }

    /// How long a connection may stay open between requests; then it is closed without a word.
    ///
    /// Default: 75 s.
    pub fn idle_timeout(mut self, timeout: Duration) -> Self {
        self.idle_timeout = timeout;
        self
    }

    /// How long an idle connection that nobody takes over is left open in a drain. A request that
    /// comes within it, being on its way already, is answered with `Connection: close` instead of a
    /// reset.
    ///
    /// Default: 100 ms.
    pub fn linger(mut self, linger: Duration) -> Self {
        self.linger = linger;
        self
    }

    /// How many connections are kept ready for their next request; the others give up all but
    /// their socket, which takes less than a kilobyte, where a connection that is ready has its
    /// buffers. Those that were active last are kept, for about a second. While more than that
    /// work at the same time, more are ready.
    ///
    /// Default: 1,024.
    pub fn max_warm(mut self, connections: usize) -> Self {
        self.max_warm = connections;
        self
    }

    /// The most bytes that a request's head may have, from the request line to the empty line; and
    /// so its trailers. A longer one is answered 431, as is one with more than 100 fields. (An
    /// over-long target too: it is 414 only if the limit is above 64 KiB and the target is longer
    /// than that.)
    ///
    /// Default: 16 KiB.
    pub fn max_header_size(mut self, bytes: usize) -> Self {
        self.max_header_size = bytes;
        self
    }

    /// The most bytes that a request's body may have; `None` for no limit. If a longer one is
    /// announced the client is answered 413 and the handler never hears of it. If it turns out to
    /// be longer the handler gets [`BodyError::TooLarge`](super::BodyError::TooLarge), and if it
    /// fails the client is answered 413.
    ///
    /// Default: 4 MiB.
    pub fn max_body_size(mut self, bytes: impl Into<Option<u64>>) -> Self {
        self.max_body_size = bytes.into();
        self
    }

    /// Whether a connection may carry more than one request.
    ///
    /// Default: [`KeepAlive::Enabled`].
    pub fn keep_alive(mut self, keep_alive: KeepAlive) -> Self {
        self.keep_alive = keep_alive;
        self
    }

    /// What responses carry as `Server` (RFC 9110 10.2.4) if the handler did not set it; `None`
    /// for nothing.
    ///
    /// Default: `None`.
    pub fn server_header(mut self, value: impl Into<Option<HeaderValue>>) -> Self {
        self.server_header = value.into();
        self
    }

    /// Whether responses carry `Date`.
    ///
    /// Default: [`DateHeader::Sent`].
    pub fn date_header(mut self, date_header: DateHeader) -> Self {
        self.date_header = date_header;
        self
    }
}
