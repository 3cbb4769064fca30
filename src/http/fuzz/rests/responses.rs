//! What a client gets, as far as it must not depend on rests.

use std::collections::BTreeMap;

use crate::http::http2::header_table::{Block, STATIC_NAMES};
use crate::http::http2::scan::{
    CONTINUATION, DATA, END_HEADERS, GOAWAY, HEADERS, Header, SETTINGS, Scan, WINDOW_UPDATE,
};

const RST_STREAM: u8 = 3;
const NO_ERROR: [u8; 4] = [0; 4];
const ENHANCE_YOUR_CALM: [u8; 4] = [0, 0, 0, 11];
const STREAM_CLOSED: [u8; 4] = [0, 0, 0, 5];

/// The responses and the frames that concern the connection.
#[derive(Default)]
pub(super) struct Responses {
    scan: Option<Scan>,
    decoder: Decoder,
    seen: Seen,
    /// How many settings have come of a connection that is to move or has moved.
    pub(super) unacknowledged: usize,
    uploads: Uploads,
}

/// Whether the client was told that it need not send the rest of a request (RFC 9113 8.1). That
/// comes a second after the response, and what the client sends later has other effects than what
/// it has sent before.
#[derive(Default, PartialEq, Eq)]
enum Uploads {
    #[default]
    Whole,
    Stopped,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Seen {
    streams: BTreeMap<u32, Stream>,
    /// The kind, the flags and the payload.
    others: Vec<(u8, u8, Vec<u8>)>,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Stream {
    heads: Vec<Vec<Field>>,
    bytes: usize,
    /// The first one. A second after it, h2 sends another one for a late body.
    reset: Option<Vec<u8>>,
}

impl PartialEq for Responses {
    fn eq(&self, other: &Self) -> bool {
        let are_stopped = [&self.uploads, &other.uploads].contains(&&Uploads::Stopped);
        are_stopped || self.seen == other.seen
    }
}

impl std::fmt::Debug for Responses {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.seen.fmt(f)
    }
}

impl Responses {
    pub(super) fn read(&mut self, bytes: &[u8]) {
        let mut scan = self.scan.take().unwrap_or_else(Scan::between_frames);
        scan.read(
            bytes,
            |frame| frame.kind != DATA,
            |frame, payload| self.add(frame, payload),
        );
        self.scan = Some(scan);
    }

    /// Whether the server has ended the connection for an error of the client.
    pub(super) fn end_with_error(&self) -> bool {
        self.goaways().any(|reason| *reason != NO_ERROR)
    }

    /// Whether the server has ended the connection because of many frames.
    pub(super) fn end_with_calm(&self) -> bool {
        self.goaways().any(|reason| *reason == ENHANCE_YOUR_CALM)
    }

    /// The reasons of all GOAWAY frames.
    fn goaways(&self) -> impl Iterator<Item = &Vec<u8>> {
        let goaways = self.seen.others.iter().filter(|(kind, ..)| *kind == GOAWAY);
        goaways.map(|(_, _, reason)| reason)
    }

    fn add(&mut self, frame: &Header, payload: &[u8]) {
        let streams = &mut self.seen.streams;
        match frame.kind {
            HEADERS => {
                assert_ne!(frame.flags & END_HEADERS, 0, "responses are short");
                let fields = self.decoder.decode(payload);
                streams.entry(frame.stream).or_default().heads.push(fields);
            }
            CONTINUATION => panic!("responses are short"),
            DATA => streams.entry(frame.stream).or_default().bytes += frame.len,
            // The client has sent something on a stream that it had ended. RFC 9113 5.1 allows this
            // frame and silence. After a rest the last stream is one that the server has ended.
            RST_STREAM if payload == STREAM_CLOSED => {}
            RST_STREAM if payload == NO_ERROR => self.uploads = Uploads::Stopped,
            RST_STREAM => {
                let reset = &mut streams.entry(frame.stream).or_default().reset;
                reset.get_or_insert_with(|| payload.to_vec());
            }
            // Those that h2 sends have more.
            SETTINGS if payload.len() == 6 => self.unacknowledged += 1,
            // A wake grants the client what its connection would have granted later.
            WINDOW_UPDATE => {}
            // Without the last stream: h2 leaves out one that it has reset for its malformed head.
            GOAWAY => self.seen.others.push((GOAWAY, 0, payload[4..].to_vec())),
            _ => {
                let other = (frame.kind, frame.flags, payload.to_vec());
                self.seen.others.push(other);
            }
        }
    }
}

/// A field as it came: its name's index in the static table, or its name, and its value. Strings
/// keep their Huffman codes.
type Field = (usize, Vec<u8>, Vec<u8>);

/// The client's HPACK decoder (RFC 7541).
struct Decoder {
    /// The newest first, each with its size.
    entries: Vec<(Field, usize)>,
    max: usize,
}

impl Default for Decoder {
    fn default() -> Self {
        Self {
            entries: Vec::new(),
            max: 4096,
        }
    }
}

impl Decoder {
    fn decode(&mut self, block: &[u8]) -> Vec<Field> {
        let mut block = Block(block);
        let mut fields = Vec::new();
        while let Some(&first) = block.0.first() {
            if first & 0x80 != 0 {
                fields.push(self.field(block.int(7).expect("an index")));
                continue;
            }
            if first & 0xe0 == 0x20 {
                self.max = block.int(5).expect("a size");
                self.evict();
                continue;
            }
            let is_added = first & 0x40 != 0;
            let index = block.int(if is_added { 6 } else { 4 }).expect("an index");
            let (name_index, name, name_len) = match index {
                0 => {
                    let name = block.text().expect("a name");
                    (0, name.raw.to_vec(), name.decoded_len())
                }
                1..=61 => (index, Vec::new(), usize::from(STATIC_NAMES[index - 1])),
                _ => {
                    let (index, name, _) = self.field(index);
                    let len = match index {
                        0 => Block(&name).text().expect("a name").decoded_len(),
                        _ => usize::from(STATIC_NAMES[index - 1]),
                    };
                    (index, name, len)
                }
            };
            let value = block.text().expect("a value");
            let field = (name_index, name, value.raw.to_vec());
            if is_added {
                let size = name_len + value.decoded_len() + 32;
                self.entries.insert(0, (field.clone(), size));
                self.evict();
            }
            fields.push(field);
        }
        fields
    }

    fn field(&self, index: usize) -> Field {
        match index {
            ..=61 => (index, Vec::new(), Vec::new()),
            _ => self.entries[index - 62].0.clone(),
        }
    }

    fn evict(&mut self) {
        while self.entries.iter().map(|(_, size)| size).sum::<usize>() > self.max {
            self.entries.pop();
        }
    }
}
