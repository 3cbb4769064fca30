//! What moves with an HTTP/2 connection: the state of its client, as another server can read it.

use bytes::Bytes;

use crate::codec::record;
use crate::http::http2::own_settings::Told;
use crate::http::http2::scan::{PAYLOAD_MAX, WINDOW, WINDOW_MAX};

/// The longest payload that a client may announce (RFC 9113 6.5.2).
const ANNOUNCED_PAYLOAD_MAX: u32 = (1 << 24) - 1;

/// The state of a client without an open stream, and what its server has told it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClientRecord {
    pub(crate) told: Told,
    /// The last stream that the client has opened, or 0.
    pub(crate) last_stream: u32,
    /// Whether a request has come to a service.
    pub(crate) has_requested: bool,
    pub(crate) header_table_size: u32,
    pub(crate) initial_window_size: u32,
    pub(crate) max_frame_size: u32,
    pub(crate) send_window: u32,
    pub(crate) receive_window: u32,
    /// A header block that makes an empty table equal to that of the client's encoder.
    pub(crate) table: Bytes,
}

record!(ClientRecord {
    told,
    last_stream,
    has_requested,
    header_table_size,
    initial_window_size,
    max_frame_size,
    send_window,
    receive_window,
    table
} if ClientRecord::is_sound);

impl ClientRecord {
    /// Whether h2 accepts it.
    fn is_sound(&self) -> bool {
        let windows = [
            self.initial_window_size,
            self.send_window,
            self.receive_window,
            self.told.announced.stream_window,
            self.told.announced.connection_window,
        ];
        let is_client_stream = self.last_stream == 0 || self.last_stream % 2 == 1;
        // Only responses make a window smaller.
        let is_unspent = i64::from(self.send_window) >= WINDOW;
        is_client_stream
            && (is_unspent || self.last_stream > 0)
            && self.last_stream <= u32::MAX >> 1
            && windows
                .iter()
                .all(|&window| i64::from(window) <= WINDOW_MAX)
            && (PAYLOAD_MAX as u32..=ANNOUNCED_PAYLOAD_MAX).contains(&self.max_frame_size)
    }
}
