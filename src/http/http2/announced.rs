//! What the server tells each HTTP/2 client first, and a client that another server has served.

use crate::codec::record;
use crate::http::options::Http;

/// The smallest window of a connection.
const CONNECTION_WINDOW_MIN: u32 = 1024 * 1024;

/// The server's settings (RFC 9113 6.5.2) and its first window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Announced {
    pub(crate) max_streams: u32,
    pub(crate) header_list_size: u32,
    pub(crate) stream_window: u32,
    pub(crate) connection_window: u32,
}

record!(Announced {
    max_streams,
    header_list_size,
    stream_window,
    connection_window
});

impl Announced {
    pub(crate) fn by(http: &Http) -> Self {
        Self {
            max_streams: http.max_concurrent_streams,
            header_list_size: u32::try_from(http.max_header_size).unwrap_or(u32::MAX),
            stream_window: http.upload_window,
            connection_window: CONNECTION_WINDOW_MIN.max(http.upload_window * 4),
        }
    }

    /// The same for a client that another server has told this before. What it may have used
    /// already does not become less.
    pub(crate) fn after(self, before: Self) -> Self {
        Self {
            max_streams: self.max_streams.max(before.max_streams),
            header_list_size: self.header_list_size,
            stream_window: self.stream_window.max(before.stream_window),
            connection_window: self.connection_window.max(before.connection_window),
        }
    }
}
