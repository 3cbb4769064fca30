//! What a server knows of its client besides open streams: enough to begin a new HTTP/2 connection
//! in its place.

use bytes::Bytes;

use crate::http::conn::preface::PREFACE;
use crate::http::http2::client_record::ClientRecord;
use crate::http::http2::header_table::{HeaderTable, TABLE_SIZE};
use crate::http::http2::own_settings::Told;
use crate::http::http2::scan::{
    ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADER_TABLE_SIZE, HEADERS, Header,
    INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE, PADDED, PAYLOAD_MAX, PRIORITY, PUSH_PROMISE, SETTINGS,
    WINDOW, WINDOW_MAX, WINDOW_UPDATE, setting, write_frame,
};

/// The limit of an incomplete header block. h2 takes no more from a client that it serves on.
const BLOCK_MAX: usize = 128 * 1024;

/// A stream that no client can open. The server opens none.
const NO_STREAM: u32 = 2;

/// GET / (RFC 7541, from the static table).
const GET: &[u8] = b"\x82\x86\x84";

/// The size of its fields (RFC 9113 6.5.2): three names, three values and 32 for each.
const GET_SIZE: usize = 42 + 43 + 38;

/// A field that no request may have, as a literal without indexing: `connection` without a value.
const MALFORMED: &[u8] = b"\x00\x0aconnection\x00";

/// The state of a client. Frames of the client and of the server change it.
#[derive(Debug)]
pub(crate) struct ClientState {
    knowledge: Knowledge,
    header_table_size: u32,
    initial_window_size: u32,
    max_frame_size: u32,
    /// The bytes of responses that the client takes now, on all streams.
    send_window: i64,
    /// The bytes of requests that the client may send now, on all streams.
    receive_window: i64,
    table: HeaderTable,
    /// A header block whose end has not come.
    block: Option<Vec<u8>>,
}

/// What a client would send that begins a connection.
#[derive(Debug)]
pub(crate) struct Replay {
    /// What the server reads next.
    pub(crate) next: Bytes,
    /// What it reads after it has sent the response. The client's settings apply only then: its
    /// window for a stream may be small.
    pub(crate) last: Bytes,
    /// The length of the response to the last request, in bytes. It is 0 if the replay needs no
    /// response.
    pub(crate) spent: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Knowledge {
    /// The client has not acknowledged the server's settings.
    Begun,
    Complete,
    /// The connection ends: GOAWAY was read or written, or the client broke the protocol.
    Lost,
}

impl ClientState {
    pub(crate) fn new() -> Self {
        Self {
            knowledge: Knowledge::Begun,
            header_table_size: TABLE_SIZE as u32,
            initial_window_size: WINDOW as u32,
            max_frame_size: PAYLOAD_MAX as u32,
            send_window: WINDOW,
            receive_window: WINDOW,
            table: HeaderTable::new(),
            block: None,
        }
    }

    /// The state of a client as another server has written it down. `None` if its table is not
    /// valid.
    pub(crate) fn of_record(record: &ClientRecord) -> Option<Self> {
        let mut table = HeaderTable::new();
        table.read(&record.table)?;
        Some(Self {
            knowledge: Knowledge::Complete,
            header_table_size: record.header_table_size,
            initial_window_size: record.initial_window_size,
            max_frame_size: record.max_frame_size,
            send_window: record.send_window.into(),
            receive_window: record.receive_window.into(),
            table,
            block: None,
        })
    }

    /// Writes the state down. It must be one that [can be replayed](Self::can_be_replayed).
    pub(crate) fn record(&self, told: Told, last_stream: u32, has_requested: bool) -> ClientRecord {
        // A window that is less than nothing ends the connection.
        let window = |window: i64| u32::try_from(window).unwrap_or_default();
        ClientRecord {
            told,
            last_stream,
            has_requested,
            header_table_size: self.header_table_size,
            initial_window_size: self.initial_window_size,
            max_frame_size: self.max_frame_size,
            send_window: window(self.send_window),
            receive_window: window(self.receive_window),
            table: self.table.replay().unwrap_or_default().into(),
        }
    }

    /// Whether the payload of a client's frame changes the state.
    #[inline]
    pub(crate) fn wants_read(frame: &Header) -> bool {
        let is_wanted = match frame.kind {
            HEADERS | CONTINUATION => true,
            SETTINGS | WINDOW_UPDATE => frame.stream == 0,
            _ => false,
        };
        is_wanted && frame.len <= PAYLOAD_MAX
    }

    /// Whether the payload of a server's frame changes the state.
    #[inline]
    pub(crate) fn wants_written(frame: &Header) -> bool {
        frame.kind == WINDOW_UPDATE && frame.stream == 0
    }

    /// Applies a frame of the client.
    pub(crate) fn read(&mut self, frame: &Header, payload: &[u8]) {
        if self.knowledge != Knowledge::Lost && self.apply(frame, payload).is_none() {
            self.lose();
        }
    }

    /// Applies a frame of the server.
    pub(crate) fn wrote(&mut self, frame: &Header, payload: &[u8]) {
        match frame.kind {
            DATA => self.send_window -= frame.len as i64,
            WINDOW_UPDATE if frame.stream == 0 => {
                self.receive_window += increment(payload).unwrap_or_default();
            }
            GOAWAY => self.lose(),
            _ => {}
        }
    }

    fn lose(&mut self) {
        self.knowledge = Knowledge::Lost;
        self.table = HeaderTable::new();
        self.block = None;
    }

    /// `None` if the client ends the connection or breaks the protocol.
    fn apply(&mut self, frame: &Header, payload: &[u8]) -> Option<()> {
        let is_needed = matches!(frame.kind, HEADERS | CONTINUATION | SETTINGS);
        if is_needed && payload.len() != frame.len {
            return None;
        }
        match frame.kind {
            DATA => self.receive_window -= frame.len as i64,
            HEADERS => {
                let fragment = fragment(frame, payload)?;
                self.add_to_block(frame, fragment)?;
            }
            CONTINUATION => {
                self.block.as_ref()?;
                self.add_to_block(frame, payload)?;
            }
            SETTINGS if frame.flags & ACK != 0 => {
                self.knowledge = match self.knowledge {
                    Knowledge::Begun => Knowledge::Complete,
                    Knowledge::Complete | Knowledge::Lost => Knowledge::Lost,
                };
            }
            SETTINGS => self.set(payload),
            WINDOW_UPDATE if frame.stream == 0 => self.send_window += increment(payload)?,
            // h2 may go on after a malformed PUSH_PROMISE, with its fields in the table.
            GOAWAY | PUSH_PROMISE => return None,
            _ => {}
        }
        Some(())
    }

    fn set(&mut self, settings: &[u8]) {
        for setting in settings.chunks_exact(6) {
            let value = u32::from_be_bytes([setting[2], setting[3], setting[4], setting[5]]);
            match u16::from_be_bytes([setting[0], setting[1]]) {
                HEADER_TABLE_SIZE => self.header_table_size = value,
                INITIAL_WINDOW_SIZE => self.initial_window_size = value,
                MAX_FRAME_SIZE => self.max_frame_size = value,
                // The others concern promises, which the server never sends, and the size of
                // responses' heads, which h2 does not limit.
                _ => {}
            }
        }
    }

    fn add_to_block(&mut self, frame: &Header, fragment: &[u8]) -> Option<()> {
        match (self.block.take(), frame.flags & END_HEADERS != 0) {
            (None, true) => self.table.read(fragment),
            (before, is_whole) => {
                let mut block = before.unwrap_or_default();
                block.extend_from_slice(fragment);
                if is_whole {
                    return self.table.read(&block);
                }
                let is_short = block.len() <= BLOCK_MAX;
                self.block = Some(block);
                is_short.then_some(())
            }
        }
    }

    /// Whether the client has acknowledged h2's settings, and the connection does not end.
    pub(crate) fn is_complete(&self) -> bool {
        self.knowledge == Knowledge::Complete
    }

    /// Whether the connection ends: GOAWAY was read or written, or the client broke the protocol.
    pub(crate) fn is_lost(&self) -> bool {
        self.knowledge == Knowledge::Lost
    }

    /// Whether a new connection can take this one's place. `header_size_max` is the server's limit
    /// for the fields of a request: h2 ends a connection whose client sends four times as much, and
    /// responds by itself to a request over the limit.
    pub(crate) fn can_be_replayed(&self, header_size_max: usize) -> bool {
        self.is_complete()
            && self.block.is_none()
            && (0..=WINDOW_MAX).contains(&self.send_window)
            && GET_SIZE < header_size_max
            && self.table.size() <= header_size_max.saturating_mul(4)
    }

    /// Gives memory back that is not needed while the connection rests.
    pub(crate) fn shrink(&mut self) {
        self.table.shrink();
    }

    /// What a client would send that begins a connection in this state. `last_stream` is the last
    /// stream that it has opened, or 0.
    ///
    /// The table of the server's encoder is empty then, and that of the client's decoder is not:
    /// the size of the encoder's table is 0 in between (RFC 7541 4.2). A malformed request fills
    /// the table of the server's decoder: h2 reads it to its end, and resets its stream. The
    /// response to the last request spends what is missing of the client's window.
    pub(crate) fn replay(&self, last_stream: u32) -> Replay {
        let mut bytes = PREFACE.to_vec();
        write_frame(&mut bytes, SETTINGS, 0, 0, &setting(HEADER_TABLE_SIZE, 0));
        write_frame(&mut bytes, SETTINGS, ACK, 0, b"");
        let (more, less) = match self.send_window - WINDOW {
            more @ 1.. => (u32::try_from(more).unwrap_or_default(), 0),
            less => (0, usize::try_from(-less).unwrap_or_default()),
        };
        if more > 0 {
            write_frame(&mut bytes, WINDOW_UPDATE, 0, 0, &more.to_be_bytes());
        }
        let flags = END_STREAM | END_HEADERS;
        if let Some(mut block) = self.table.replay() {
            block.extend_from_slice(MALFORMED);
            write_frame(&mut bytes, HEADERS, flags, NO_STREAM, &block);
        }
        if last_stream > 0 {
            write_frame(&mut bytes, HEADERS, flags, last_stream, GET);
        }
        let settings = [
            setting(HEADER_TABLE_SIZE, self.header_table_size),
            setting(INITIAL_WINDOW_SIZE, self.initial_window_size),
            setting(MAX_FRAME_SIZE, self.max_frame_size),
        ];
        let mut last = Vec::new();
        if less > 0 {
            // The client does not get the response, which has said that the encoder's table is
            // empty. After another change the next head says that again.
            for size in [1, 0] {
                write_frame(&mut last, SETTINGS, 0, 0, &setting(HEADER_TABLE_SIZE, size));
            }
        }
        write_frame(&mut last, SETTINGS, 0, 0, settings.as_flattened());
        if less == 0 {
            bytes.append(&mut last);
        }
        Replay {
            next: bytes.into(),
            last: last.into(),
            spent: less,
        }
    }

    /// The new connection grants the client a window of this size. Returns the frame for the
    /// difference to what the client knows, or nothing.
    pub(crate) fn grant(&mut self, window: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        if let Ok(missing @ 1..) = u32::try_from(i64::from(window) - self.receive_window) {
            self.receive_window = i64::from(window);
            write_frame(&mut bytes, WINDOW_UPDATE, 0, 0, &missing.to_be_bytes());
        }
        bytes
    }
}

/// The part of a header block in a HEADERS frame (RFC 9113 6.2).
fn fragment<'a>(frame: &Header, mut payload: &'a [u8]) -> Option<&'a [u8]> {
    let mut padding = 0;
    if frame.flags & PADDED != 0 {
        let (&len, rest) = payload.split_first()?;
        (padding, payload) = (usize::from(len), rest);
    }
    if frame.flags & PRIORITY != 0 {
        payload = payload.get(5..)?;
    }
    payload.get(..payload.len().checked_sub(padding)?)
}

fn increment(payload: &[u8]) -> Option<i64> {
    let bytes = payload.try_into().ok()?;
    // The first bit is reserved.
    Some(i64::from(u32::from_be_bytes(bytes) & (u32::MAX >> 1)))
}
