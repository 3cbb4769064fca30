//! What the server tells each HTTP/2 client first.

use crate::codec::record;
use crate::http::options::Http;

/// The smallest window of a connection.
const CONNECTION_WINDOW_MIN: u32 = 1024 * 1024;

/// The server's settings (RFC 9113 6.5.2) and its first window. A server can go on with the
/// connection of another one only if it would have told the client the same.
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
}
