//! Finds the frames in a sequence of bytes (RFC 9113 4.1).

use bytes::BytesMut;

use crate::http::conn::preface::PREFACE;

pub(crate) const FRAME_HEADER: usize = 9;

/// h2 refuses longer frames of the client (RFC 9113 4.2).
pub(crate) const PAYLOAD_MAX: usize = 16 * 1024;

/// The window of a new connection, in both directions (RFC 9113 6.9.2).
pub(crate) const WINDOW: i64 = 65_535;

/// The largest window (RFC 9113 6.9.1).
pub(crate) const WINDOW_MAX: i64 = (1 << 31) - 1;

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PUSH_PROMISE: u8 = 5;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;

pub(crate) const ACK: u8 = 1;
pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;
pub(crate) const PADDED: u8 = 8;
pub(crate) const PRIORITY: u8 = 32;

/// Settings (RFC 9113 6.5.2).
pub(crate) const HEADER_TABLE_SIZE: u16 = 1;
pub(crate) const MAX_CONCURRENT_STREAMS: u16 = 3;
pub(crate) const INITIAL_WINDOW_SIZE: u16 = 4;
pub(crate) const MAX_FRAME_SIZE: u16 = 5;
pub(crate) const MAX_HEADER_LIST_SIZE: u16 = 6;

/// The fields of a frame's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) len: usize,
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
}

/// The position of the next byte in the sequence of frames.
pub(crate) struct Scan {
    position: Position,
    /// The bytes of a header or of a payload that came in parts. Empty between frames.
    gathered: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Position {
    Header,
    /// In the payload of this frame, which is wanted.
    Payload(Header),
    /// So many bytes before the next header.
    Skipped(usize),
}

impl Scan {
    /// The bytes of a client, which begin with the preface.
    pub(crate) fn of_client() -> Self {
        Self {
            position: Position::Skipped(PREFACE.len()),
            gathered: Vec::new(),
        }
    }

    /// The bytes of a server, or those of a client from a frame on.
    pub(crate) fn between_frames() -> Self {
        Self {
            position: Position::Header,
            gathered: Vec::new(),
        }
    }

    /// Whether the next byte is the first of a frame.
    pub(crate) fn is_between_frames(&self) -> bool {
        self.position == Position::Header && self.gathered.is_empty()
    }

    /// How many of the next bytes belong to a frame that has begun. `None` if more will follow.
    pub(crate) fn rest_of_frame(&self, next: &[u8]) -> Option<usize> {
        let rest = match self.position {
            Position::Skipped(left) => left,
            Position::Payload(header) => header.len - self.gathered.len(),
            Position::Header if self.gathered.is_empty() => 0,
            Position::Header => {
                let missing = next.get(..FRAME_HEADER - self.gathered.len())?;
                let header = [&self.gathered, missing].concat();
                missing.len() + Header::parse(&header).len
            }
        };
        (rest <= next.len()).then_some(rest)
    }

    /// Passes each frame to `each`, with its payload if `wants` wants it, else with nothing.
    pub(crate) fn read(
        &mut self,
        mut bytes: &[u8],
        wants: impl Fn(&Header) -> bool,
        mut each: impl FnMut(&Header, &[u8]),
    ) {
        while !bytes.is_empty() {
            self.position = match self.position {
                Position::Skipped(left) => {
                    let skipped = left.min(bytes.len());
                    bytes = &bytes[skipped..];
                    Position::after(left - skipped)
                }
                Position::Header => match self.take(&mut bytes, FRAME_HEADER, Header::parse) {
                    Some(header) if header.len > 0 && wants(&header) => Position::Payload(header),
                    Some(header) => {
                        each(&header, &[]);
                        Position::after(header.len)
                    }
                    None => Position::Header,
                },
                Position::Payload(header) => {
                    let seen = self.take(&mut bytes, header.len, |payload| each(&header, payload));
                    match seen {
                        Some(()) => Position::Header,
                        None => Position::Payload(header),
                    }
                }
            };
        }
    }

    /// Takes `len` bytes and passes them to `see`. `None` if not all of them have come.
    fn take<T>(
        &mut self,
        bytes: &mut &[u8],
        len: usize,
        see: impl FnOnce(&[u8]) -> T,
    ) -> Option<T> {
        let missing = len - self.gathered.len();
        let (now, rest) = bytes.split_at(missing.min(bytes.len()));
        *bytes = rest;
        if now.len() == len {
            return Some(see(now));
        }
        self.gathered.extend_from_slice(now);
        if self.gathered.len() < len {
            return None;
        }
        Some(see(&std::mem::take(&mut self.gathered)))
    }
}

impl Position {
    fn after(skipped: usize) -> Self {
        match skipped {
            0 => Self::Header,
            left => Self::Skipped(left),
        }
    }
}

impl Header {
    /// The header that these bytes begin with. `None` if they have only a part of it.
    pub(crate) fn first_of(bytes: &[u8]) -> Option<Self> {
        bytes.get(..FRAME_HEADER).map(Self::parse)
    }

    /// Whether the frame is a part of a head, and not the last one. Then only another part follows.
    pub(crate) fn leaves_head_open(&self) -> bool {
        matches!(self.kind, HEADERS | CONTINUATION) && self.flags & END_HEADERS == 0
    }

    pub(crate) fn parse(bytes: &[u8]) -> Self {
        let &[a, b, c, kind, flags, d, e, f, g] = bytes else {
            unreachable!("a header has nine bytes");
        };
        Self {
            len: u32::from_be_bytes([0, a, b, c]) as usize,
            kind,
            flags,
            // The first bit is reserved.
            stream: u32::from_be_bytes([d, e, f, g]) & (u32::MAX >> 1),
        }
    }
}

/// A setting in the payload of SETTINGS.
pub(crate) fn setting(identifier: u16, value: u32) -> [u8; 6] {
    let ([a, b], [c, d, e, f]) = (identifier.to_be_bytes(), value.to_be_bytes());
    [a, b, c, d, e, f]
}

/// Takes `len` bytes out of the input, from `at` on.
pub(crate) fn cut(input: &mut BytesMut, at: usize, len: usize) {
    input.copy_within(at + len.., at);
    input.truncate(input.len() - len);
}

/// Appends a frame.
pub(crate) fn write_frame(to: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    let len = u32::try_from(payload.len()).expect("a payload is no longer than a frame");
    to.extend_from_slice(&len.to_be_bytes()[1..]);
    to.extend_from_slice(&[kind, flags]);
    to.extend_from_slice(&stream.to_be_bytes());
    to.extend_from_slice(payload);
}

/// A frame of the connection whose payload has eight bytes, as that of PING has.
pub(crate) fn control_frame(kind: u8, flags: u8, payload: [u8; 8]) -> [u8; FRAME_HEADER + 8] {
    let mut frame = [0; FRAME_HEADER + 8];
    frame[2..5].copy_from_slice(&[8, kind, flags]);
    frame[FRAME_HEADER..].copy_from_slice(&payload);
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_found_in_reads_of_any_length() {
        let frames: [(usize, u8); 5] = [
            (0, SETTINGS),
            (8, SETTINGS),
            (300, DATA),
            (5, HEADERS),
            (0, HEADERS),
        ];
        let mut bytes = PREFACE.to_vec();
        let mut ends = vec![bytes.len()];
        for (len, kind) in frames {
            write_frame(&mut bytes, kind, 0, 7, &vec![kind; len]);
            ends.push(bytes.len());
        }
        for piece in 1..=bytes.len() {
            let mut scan = Scan::of_client();
            let mut found = Vec::new();
            for (at, next) in (0..).step_by(piece).zip(bytes.chunks(piece)) {
                let mut left = ends.iter().filter_map(|end| end.checked_sub(at));
                let rest = left.next().filter(|rest| *rest <= next.len());
                assert_eq!(scan.rest_of_frame(next), rest, "{at} in pieces of {piece}");
                scan.read(
                    next,
                    |frame| frame.kind != DATA,
                    |frame, payload| {
                        let wanted = if frame.kind == DATA { 0 } else { frame.len };
                        assert_eq!((frame.stream, payload), (7, &*vec![frame.kind; wanted]));
                        found.push((frame.len, frame.kind));
                    },
                );
            }
            assert_eq!(found, frames, "in pieces of {piece}");
            assert!(scan.is_between_frames());
        }
    }
}
