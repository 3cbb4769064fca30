//! What a client may send: the windows of its streams and of the connection (RFC 9113 6.9).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::mem;

use crate::http::conn::preface::PREFACE;
use crate::http::http2::scan::{
    ACK, DATA, END_STREAM, FRAME_HEADER, HEADERS, Header, INITIAL_WINDOW_SIZE, RST_STREAM,
    SETTINGS, Scan, WINDOW, WINDOW_MAX, WINDOW_UPDATE, write_frame,
};

/// A client that sends no more than it may.
pub(super) struct Windows {
    server: Scan,
    connection: i64,
    initial: i64,
    /// Those of streams whose requests have not come to their ends.
    streams: BTreeMap<u32, i64>,
    last_stream: u32,
    /// The streams that the server has reset.
    reset: BTreeSet<u32>,
    /// It reads what has come before so many of its steps.
    pub(super) are_late: usize,
    unread: VecDeque<Vec<u8>>,
    first: Vec<u8>,
    unsent: VecDeque<(Header, Vec<u8>)>,
}

impl Windows {
    pub(super) fn new(are_late: usize) -> Self {
        Self {
            server: Scan::between_frames(),
            connection: WINDOW,
            initial: WINDOW,
            streams: BTreeMap::new(),
            last_stream: 0,
            reset: BTreeSet::new(),
            are_late,
            unread: VecDeque::new(),
            first: Vec::new(),
            unsent: VecDeque::new(),
        }
    }

    /// The client is to send these frames.
    pub(super) fn add(&mut self, mut bytes: &[u8]) {
        if let Some(rest) = bytes.strip_prefix(PREFACE) {
            self.first.extend(PREFACE);
            bytes = rest;
        }
        while let Some(header) = Header::first_of(bytes) {
            let (frame, rest) = bytes.split_at(FRAME_HEADER + header.len);
            (self.unsent).push_back((header, frame[FRAME_HEADER..].to_vec()));
            bytes = rest;
        }
    }

    /// Whether the client may not send all that it is to send.
    pub(super) fn are_used_up(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// What the client may send now.
    pub(super) fn take(&mut self) -> Vec<u8> {
        let mut bytes = mem::take(&mut self.first);
        let mut blocked = BTreeSet::new();
        for (header, payload) in mem::take(&mut self.unsent) {
            let stream = header.stream;
            let sent = match blocked.contains(&stream) {
                true => 0,
                false => self.send(&header, payload.len()),
            };
            let is_whole = sent == payload.len() && !blocked.contains(&stream);
            let flags = match is_whole {
                true => header.flags,
                false => header.flags & !END_STREAM,
            };
            if is_whole || sent > 0 {
                write_frame(&mut bytes, header.kind, flags, stream, &payload[..sent]);
            }
            if !is_whole {
                blocked.insert(stream);
                (self.unsent).push_back((header, payload[sent..].to_vec()));
            }
        }
        bytes
    }

    /// Sends as much of this frame as the client may. Returns the length of that.
    fn send(&mut self, header: &Header, len: usize) -> usize {
        let ends = header.flags & END_STREAM != 0;
        if header.kind == HEADERS {
            self.last_stream = header.stream;
            if !ends {
                self.streams.insert(header.stream, self.initial);
            }
        }
        if header.kind != DATA {
            return len;
        }
        let Some(window) = self.streams.get_mut(&header.stream) else {
            return len;
        };
        let may = (*window).min(self.connection).max(0);
        let sent = len.min(usize::try_from(may).expect("not negative"));
        *window -= sent as i64;
        self.connection -= sent as i64;
        if ends && sent == len {
            self.streams.remove(&header.stream);
        }
        sent
    }

    /// These bytes of the server have come. Returns those that the client reads now.
    pub(super) fn read(&mut self, bytes: Vec<u8>) -> Vec<u8> {
        self.unread.push_back(bytes);
        let mut read = Vec::new();
        while self.unread.len() > self.are_late {
            read.extend(self.unread.pop_front().unwrap_or_default());
        }
        let mut scan = mem::replace(&mut self.server, Scan::between_frames());
        let wants = |frame: &Header| matches!(frame.kind, SETTINGS | WINDOW_UPDATE);
        scan.read(&read, wants, |frame, payload| self.apply(frame, payload));
        self.server = scan;
        read
    }

    fn apply(&mut self, frame: &Header, payload: &[u8]) {
        match frame.kind {
            SETTINGS if frame.flags & ACK == 0 => {
                for setting in payload.chunks_exact(6) {
                    if setting[..2] == INITIAL_WINDOW_SIZE.to_be_bytes() {
                        let before = mem::replace(&mut self.initial, number(&setting[2..]));
                        let windows = self.streams.values_mut();
                        windows.for_each(|window| *window += self.initial - before);
                    }
                }
            }
            WINDOW_UPDATE if frame.stream == 0 => self.connection += number(payload),
            WINDOW_UPDATE => {
                assert!(frame.stream <= self.last_stream, "a window of no stream");
                assert!(
                    !self.reset.contains(&frame.stream),
                    "a window after a reset"
                );
                assert_ne!(number(payload), 0, "a window of nothing");
                if let Some(window) = self.streams.get_mut(&frame.stream) {
                    *window += number(payload);
                }
            }
            RST_STREAM => {
                self.reset.insert(frame.stream);
                self.streams.remove(&frame.stream);
                self.unsent
                    .retain(|(unsent, _)| unsent.stream != frame.stream);
            }
            _ => {}
        }
        let mut windows = self
            .streams
            .values()
            .chain([&self.connection, &self.initial]);
        assert!(windows.all(|window| *window <= WINDOW_MAX), "too large");
    }
}

fn number(bytes: &[u8]) -> i64 {
    u32::from_be_bytes(bytes.try_into().expect("four bytes")).into()
}
