//! Counts the frames of a client that serve no request.
//!
//! h2 answers each PING and SETTINGS and notes each WINDOW_UPDATE, PRIORITY and unknown frame. It
//! has no limit for them and no hook. A client that sends nothing else keeps a worker busy without
//! one request. So what is read passes through here on its way to h2: each frame's header (RFC
//! 9113 4.1) is read, and its payload is skipped. Such a frame costs the client one credit.
//! Requests, responses and time give credit back.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::http::registry::list::Registry;
use crate::http::registry::wheel::Tick;

/// How many such frames a client may send on credit: its settings, a tree of priorities, and the
/// windows and PINGs of a burst are some dozens.
pub(crate) const ON_CREDIT: u32 = 1024;

/// Credit for each request, and for each write of a response's data. grpc-go sends a PING and two
/// WINDOW_UPDATE frames for data that comes, Firefox six PRIORITY frames beside its first request.
const PER_MESSAGE: u32 = 16;

/// As many bytes written give a credit: those of a tunnel are seen nowhere else. The answer to a
/// PING is 17 bytes, so that a client cannot earn a PING by a PING.
const BYTES_PER_CREDIT: u32 = 512;

/// Credit for each second, up to [`ON_CREDIT`]: PINGs that keep a quiet stream's connection alive.
/// So many frames a second cost a worker less than one request.
const PER_SECOND: u32 = 32;

/// The preface, which comes before the first frame (RFC 9113 3.4), has so many bytes.
const PREFACE: usize = 24;
const FRAME_HEADER: usize = 9;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const PADDED: u8 = 8;

/// See the module's head.
pub(crate) struct Frames {
    registry: Rc<Registry>,
    scan: RefCell<Scan>,
    credit: Cell<u32>,
    written: Cell<u32>,
    /// When [`PER_SECOND`] was given last.
    paid: Cell<Tick>,
    last_stream: Cell<u32>,
    verdict: Cell<Verdict>,
    /// When something was read last.
    heard: Cell<Tick>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Fine,
    /// The client has sent more than its credit.
    TooMany,
}

/// Where in the sequence of frames the next byte is.
struct Scan {
    header: [u8; FRAME_HEADER],
    /// How much of the header has come.
    filled: usize,
    /// How many bytes come before the next header.
    skip: usize,
}

/// A frame's header, as far as it matters.
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
            paid: Cell::new(registry.now()),
            last_stream: Cell::new(0),
            verdict: Cell::new(Verdict::Fine),
            heard: Cell::new(registry.now()),
        }
    }

    /// These bytes were read.
    pub(crate) fn read(&self, bytes: &[u8]) {
        self.heard.set(self.registry.now());
        self.scan
            .borrow_mut()
            .read(bytes, |frame| self.count(&frame));
    }

    /// When the client was heard of last.
    pub(crate) fn heard(&self) -> Tick {
        self.heard.get()
    }

    /// So many bytes were written, of whatever frames.
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

    /// Whether the client has sent more than its credit.
    pub(crate) fn are_too_many(&self) -> bool {
        self.verdict.get() == Verdict::TooMany
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
            // h2 bounds them for each request.
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
        if self.registry.is_second_over(self.paid.get()) {
            self.paid.set(now);
            let credit = self.credit.get();
            self.credit
                .set(credit.max(ON_CREDIT.min(credit + PER_SECOND)));
        }
        match self.credit.get().checked_sub(1) {
            Some(credit) => self.credit.set(credit),
            None => self.verdict.set(Verdict::TooMany),
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
    fn frames_are_found_wherever_reads_are_cut() {
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
