//! Limits the frames of a client that serve no request.
//!
//! h2 responds to each PING and SETTINGS and processes each WINDOW_UPDATE, PRIORITY and unknown
//! frame. It has no limit for them and no hook. A client that sends nothing else keeps a worker
//! busy without one request. So [`Frames`] sees all bytes that h2 reads: it parses each frame's
//! header (RFC 9113 4.1) and skips the payload. Such a frame costs the client one credit. Requests,
//! responses and time give credits.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::http::registry::list::Registry;
use crate::http::registry::wheel::Tick;

/// The credits of a new connection. Settings, a tree of priorities, and the windows and PINGs of a
/// burst are some dozens of frames.
pub(crate) const ON_CREDIT: u32 = 1024;

/// Credits for each request, and for each write of a response's data. grpc-go sends a PING and two
/// WINDOW_UPDATE frames for data that it receives, Firefox six PRIORITY frames with its first
/// request.
const PER_MESSAGE: u32 = 16;

/// So many bytes written give one credit. The bytes of a tunnel are counted only here. The response
/// to a PING is 17 bytes, so that a client cannot earn a PING by a PING.
const BYTES_PER_CREDIT: u32 = 512;

/// Credits for each second, up to [`ON_CREDIT`], for the PINGs by which a client keeps a connection
/// open. So many frames a second cost a worker less than one request.
const PER_SECOND: u32 = 32;

/// Length of the preface, which comes before the first frame (RFC 9113 3.4), in bytes.
const PREFACE: usize = 24;
const FRAME_HEADER: usize = 9;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const PADDED: u8 = 8;

/// The frames and the credits of one client.
pub(crate) struct Frames {
    registry: Rc<Registry>,
    scan: RefCell<Scan>,
    credit: Cell<u32>,
    /// The bytes written that have not given a credit yet.
    written: Cell<u32>,
    /// When the client got [`PER_SECOND`] last.
    last_refill: Cell<Tick>,
    last_stream: Cell<u32>,
    balance: Cell<Balance>,
    /// When bytes were read last.
    last_read: Cell<Tick>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Balance {
    NotExceeded,
    /// The client has sent more frames than it had credits for.
    Exceeded,
}

/// The position of the next byte in the sequence of frames.
struct Scan {
    header: [u8; FRAME_HEADER],
    /// The number of bytes of the header that have come.
    filled: usize,
    /// The number of bytes before the next header.
    skip: usize,
}

/// The fields of a frame's header that are needed here.
struct Header {
    len: usize,
    kind: u8,
    flags: u8,
    stream: u32,
}

impl Frames {
    pub(crate) fn new(registry: &Rc<Registry>) -> Self {
        Self {
            registry: Rc::clone(registry),
            scan: RefCell::new(Scan::new()),
            credit: Cell::new(ON_CREDIT),
            written: Cell::new(0),
            last_refill: Cell::new(registry.now()),
            last_stream: Cell::new(0),
            balance: Cell::new(Balance::NotExceeded),
            last_read: Cell::new(registry.now()),
        }
    }

    /// Counts the frames in bytes that were read.
    pub(crate) fn read(&self, bytes: &[u8]) {
        self.last_read.set(self.registry.now());
        self.scan
            .borrow_mut()
            .read(bytes, |frame| self.count(&frame));
    }

    /// When bytes of the client were read last.
    pub(crate) fn last_read(&self) -> Tick {
        self.last_read.get()
    }

    /// So many bytes were written, of any frames.
    pub(crate) fn wrote(&self, bytes: usize) {
        let written = self.written.get() as usize + bytes;
        let credit = written / BYTES_PER_CREDIT as usize;
        self.written
            .set((written % BYTES_PER_CREDIT as usize) as u32);
        self.give(u32::try_from(credit).unwrap_or(u32::MAX));
    }

    /// Some of a response's data was written.
    pub(crate) fn wrote_data(&self) {
        self.give(PER_MESSAGE);
    }

    /// Whether the client has sent more frames than it had credits for.
    pub(crate) fn are_exceeded(&self) -> bool {
        self.balance.get() == Balance::Exceeded
    }

    /// GOAWAY with the number of the last stream that has come (RFC 9113 6.8).
    pub(crate) fn goaway(&self, reason: h2::Reason) -> [u8; FRAME_HEADER + 8] {
        let mut frame = [0; FRAME_HEADER + 8];
        frame[2] = 8;
        frame[3] = GOAWAY;
        frame[9..13].copy_from_slice(&self.last_stream.get().to_be_bytes());
        frame[13..].copy_from_slice(&u32::from(reason).to_be_bytes());
        frame
    }

    fn count(&self, frame: &Header) {
        match *frame {
            Header {
                kind: HEADERS,
                stream,
                ..
            } => {
                self.last_stream.set(self.last_stream.get().max(stream));
                self.give(PER_MESSAGE);
            }
            // h2 limits them for each request.
            Header {
                kind: CONTINUATION, ..
            } => {}
            // Bytes of a request's body, or its end.
            Header {
                kind: DATA,
                flags,
                len,
                ..
            } if flags & END_STREAM != 0 || (len > 0 && flags & PADDED == 0) => {}
            _ => self.take(),
        }
    }

    fn give(&self, credit: u32) {
        self.credit.set(self.credit.get().saturating_add(credit));
    }

    fn take(&self) {
        let now = self.registry.now();
        if self.registry.is_second_over(self.last_refill.get()) {
            self.last_refill.set(now);
            let credit = self.credit.get();
            self.credit
                .set(credit.max(ON_CREDIT.min(credit + PER_SECOND)));
        }
        match self.credit.get().checked_sub(1) {
            Some(credit) => self.credit.set(credit),
            None => self.balance.set(Balance::Exceeded),
        }
    }
}

impl Scan {
    fn new() -> Self {
        Self {
            header: [0; FRAME_HEADER],
            filled: 0,
            skip: PREFACE,
        }
    }

    fn read(&mut self, mut bytes: &[u8], mut each: impl FnMut(Header)) {
        loop {
            let skipped = self.skip.min(bytes.len());
            self.skip -= skipped;
            bytes = &bytes[skipped..];
            if bytes.is_empty() {
                return;
            }
            let missing = &mut self.header[self.filled..];
            let (now, rest) = bytes.split_at(missing.len().min(bytes.len()));
            missing[..now.len()].copy_from_slice(now);
            self.filled += now.len();
            bytes = rest;
            if self.filled == FRAME_HEADER {
                self.filled = 0;
                let header = Header::parse(self.header);
                self.skip = header.len;
                each(header);
            }
        }
    }
}

impl Header {
    fn parse(bytes: [u8; FRAME_HEADER]) -> Self {
        let [a, b, c, kind, flags, stream @ ..] = bytes;
        Self {
            len: u32::from_be_bytes([0, a, b, c]) as usize,
            kind,
            flags,
            // The first bit is reserved.
            stream: u32::from_be_bytes(stream) & (u32::MAX >> 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_found_in_reads_of_any_length() {
        let frames: [(usize, u8); 4] = [(0, 4), (8, 6), (300, DATA), (5, HEADERS)];
        let mut bytes = vec![0; PREFACE];
        for (len, kind) in frames {
            bytes.extend([0, (len >> 8) as u8, len as u8, kind, 0, 0, 0, 0, 7]);
            bytes.extend(vec![0xff; len]);
        }
        for piece in 1..=bytes.len() {
            let mut scan = Scan::new();
            let mut found = Vec::new();
            for piece in bytes.chunks(piece) {
                scan.read(piece, |frame| {
                    assert_eq!(frame.stream, 7);
                    found.push((frame.len, frame.kind));
                });
            }
            assert_eq!(found, frames, "in pieces of {piece}");
        }
    }
}
