//! New streams that wait, and the frames that pass them.

use std::mem;

use bytes::BytesMut;

use crate::http::conn::stream::READ_AT_ONCE;
use crate::http::http2::scan::{
    DATA, FRAME_HEADER, GOAWAY, HEADERS, Header, RST_STREAM, SETTINGS, WINDOW_UPDATE,
};
use crate::moved::READ_AHEAD_MAX;

/// Limit of bytes that wait and are no bodies. One read may exceed it.
const HEADS_MAX: usize = 256 * 1024;

/// Limit of bytes that wait on all connections of a worker. Those on which some wait do not move
/// then.
pub(crate) const WORKER_MAX: usize = 64 * 1024 * 1024;

/// Limit of bytes that wait. The client sends as much as its window allows until it knows that it
/// is to [keep bodies](crate::http::http2::own_settings).
fn waiting_max(connection_window: u32) -> usize {
    let bodies_max = READ_AHEAD_MAX - HEADS_MAX - READ_AT_ONCE;
    HEADS_MAX + bodies_max.min(connection_window as usize)
}

/// The header that stands here.
fn header_at(input: &[u8], at: usize) -> Option<Header> {
    input.get(at..).and_then(Header::first_of)
}

/// How many bytes come before the first new stream, of frames from `begin` on, or before the part
/// of a header at the end. `last_stream` is the last stream that is not new.
pub(crate) fn before_new_stream(input: &[u8], begin: usize, last_stream: u32) -> usize {
    let mut at = begin;
    while let Some(header) = header_at(input, at) {
        if header.kind == HEADERS && header.stream > last_stream {
            break;
        }
        at += FRAME_HEADER + header.len;
    }
    at.min(input.len())
}

/// How many bytes come before the second new stream, of an input that begins with a new stream.
pub(crate) fn one_new_stream(input: &[u8], last_stream: u32) -> usize {
    let header = header_at(input, 0);
    let end = header.map_or(input.len(), |header| FRAME_HEADER + header.len);
    before_new_stream(input, end, last_stream)
}

/// What happens to streams that the client opens.
#[derive(Debug, Default)]
pub(crate) enum NewStreams {
    #[default]
    Pass,
    /// The connection is to move when no stream is open. Until then h2 reads no new one.
    Wait(Box<Waiting>),
    /// Some may have waited, here or in another server.
    PassAfterWait,
}

impl NewStreams {
    pub(crate) fn hold(&mut self) {
        if self.waiting().is_none() {
            *self = Self::Wait(Box::default());
        }
    }

    /// Puts what has waited back into the input. `begin` is as in [`Waiting::take`]; without it h2
    /// is in a frame whose end has not come, and nothing can wait.
    pub(crate) fn release(&mut self, input: &mut BytesMut, begin: Option<usize>, last_stream: u32) {
        let before = mem::replace(self, Self::PassAfterWait);
        if let (Self::Wait(waiting), Some(begin)) = (before, begin) {
            waiting.put_back(input, begin, last_stream);
        }
    }

    /// h2 has read so many bytes of the input.
    pub(crate) fn was_read(&mut self, count: usize) {
        if let Self::Wait(waiting) = self {
            waiting.was_read(count);
        }
    }

    /// Where the first frame of the input begins that was not seen here. `begin` is as in
    /// [`Waiting::take`]. `None` if the input may go on within a frame that waits.
    pub(crate) fn unseen(&self, begin: usize) -> Option<usize> {
        match self.waiting() {
            Some(waiting) if waiting.passing == Passing::Nothing => None,
            Some(waiting) if !waiting.bytes.is_empty() => Some(waiting.passed),
            _ => Some(begin),
        }
    }

    pub(crate) fn waiting(&self) -> Option<&Waiting> {
        match self {
            Self::Wait(waiting) => Some(waiting),
            Self::Pass | Self::PassAfterWait => None,
        }
    }
}

/// The frames of new streams while the connection is to move, in their order.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    bytes: BytesMut,
    /// How many bytes of the input come before them, and h2 has not read.
    passed: usize,
    passing: Passing,
}

/// What passes the frames that wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Passing {
    /// The bodies and the windows that open streams need to end. Only whole frames pass, because
    /// they change their place.
    #[default]
    OpenStreams,
    /// Nothing: a frame waits whose place among the others matters.
    Nothing,
}

impl Waiting {
    /// Takes the frames that have to wait out of the input. Returns how many bytes of the input h2
    /// may read; a part of a frame may follow them. `begin` is how many bytes belong to the frame
    /// that h2 has begun to read.
    ///
    /// Nothing passes fields of an open stream, because the header table depends on their order,
    /// nor settings.
    pub(crate) fn take(&mut self, input: &mut BytesMut, begin: usize, last_stream: u32) -> usize {
        let mut passed = match self.bytes.is_empty() {
            true => before_new_stream(input, begin, last_stream),
            false => self.passed,
        };
        let mut at = passed;
        while let (Passing::OpenStreams, Some(header)) = (self.passing, header_at(input, at)) {
            let is_open = header.stream <= last_stream;
            let (passes, stops) = match header.kind {
                DATA | RST_STREAM | WINDOW_UPDATE => (is_open, false),
                HEADERS => (false, is_open),
                SETTINGS | GOAWAY => (false, true),
                _ => (false, false),
            };
            if stops {
                self.passing = Passing::Nothing;
                break;
            }
            let end = at + FRAME_HEADER + header.len;
            let Some(frame) = input.get(at..end) else {
                break;
            };
            if passes {
                input.copy_within(at..end, passed);
                passed += end - at;
            } else {
                self.bytes.extend_from_slice(frame);
            }
            at = end;
        }
        if self.passing == Passing::Nothing {
            self.bytes.extend_from_slice(&input[at..]);
            input.truncate(passed);
        } else if at > passed {
            input.copy_within(at.., passed);
            input.truncate(input.len() - (at - passed));
        }
        self.passed = passed;
        passed
    }

    /// h2 has read so many bytes of the input.
    fn was_read(&mut self, count: usize) {
        self.passed = self.passed.saturating_sub(count);
    }

    /// How many bytes wait.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether no more may be read, with these bytes in the input.
    pub(crate) fn is_full(&self, input: &[u8], connection_window: u32) -> bool {
        let waiting = self.bytes.len() + input.len();
        input.len() >= READ_AT_ONCE || waiting >= waiting_max(connection_window)
    }

    /// Puts the frames that have waited back, where h2 can read them.
    pub(crate) fn put_back(mut self, input: &mut BytesMut, begin: usize, last_stream: u32) {
        let passed = self.take(input, begin, last_stream);
        let rest = input.split_off(passed);
        input.unsplit(self.bytes);
        input.unsplit(rest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::http2::scan::{CONTINUATION, PING, Scan, write_frame};

    /// The kind and the stream of each frame. The last open stream is 5.
    const MIXED: [(u8, u32); 10] = [
        (DATA, 5),
        (HEADERS, 7),
        (CONTINUATION, 7),
        (DATA, 5),
        (DATA, 7),
        (WINDOW_UPDATE, 0),
        (PING, 0),
        (WINDOW_UPDATE, 7),
        (RST_STREAM, 3),
        (RST_STREAM, 7),
    ];

    const STOPS: [(u8, u32); 3] = [(HEADERS, 5), (SETTINGS, 0), (GOAWAY, 0)];

    /// The frames, each with its number as payload.
    fn input(frames: &[(u8, u32)]) -> BytesMut {
        let mut bytes = Vec::new();
        for (number, (kind, stream)) in (0..).zip(frames) {
            write_frame(&mut bytes, *kind, 0, *stream, &[number; 4]);
        }
        bytes[..].into()
    }

    fn numbers(input: &[u8]) -> Vec<u8> {
        input
            .chunks(FRAME_HEADER + 4)
            .map(|it| it[FRAME_HEADER])
            .collect()
    }

    /// The order after frames were let pass, and how many come before the first new stream.
    fn passed(frames: &[(u8, u32)]) -> (Vec<u8>, usize) {
        let (mut input, mut waiting) = (input(frames), Waiting::default());
        let passed = waiting.take(&mut input, 0, 5);
        waiting.put_back(&mut input, 0, 5);
        (numbers(&input), passed / (FRAME_HEADER + 4))
    }

    #[test]
    fn frames_of_open_streams_pass_new_streams() {
        let new = (HEADERS, 7);
        assert_eq!(
            passed(&[(DATA, 5), (PING, 0), (HEADERS, 5)]),
            (vec![0, 1, 2], 3)
        );
        assert_eq!(passed(&MIXED), (vec![0, 3, 5, 8, 1, 2, 4, 6, 7, 9], 4));
        for stops in STOPS {
            let frames = [new, (DATA, 3), stops, (DATA, 1)];
            assert_eq!(passed(&frames), (vec![1, 0, 2, 3], 1), "{stops:?}");
        }
    }

    #[test]
    fn a_part_of_a_frame_passes_no_new_stream() {
        let whole = input(&[(HEADERS, 7), (DATA, 5)]);
        for len in 0..whole.len() {
            let (mut part, mut waiting) = (BytesMut::from(&whole[..len]), Waiting::default());
            assert_eq!(waiting.take(&mut part, 0, 5), 0, "{len}");
            waiting.put_back(&mut part, 0, 5);
            assert_eq!(part, whole[..len]);
        }
        let mut part = BytesMut::from(&whole[4..]);
        let passed = Waiting::default().take(&mut part, FRAME_HEADER, 5);
        assert_eq!(passed, whole.len() - 4);
    }

    /// h2 reads as little at a time as comes, or one byte.
    #[test]
    fn the_order_is_the_same_for_reads_of_any_length() {
        let stopped =
            STOPS.map(|stop| [(HEADERS, 7), (DATA, 3), (DATA, 5), stop, (DATA, 1)].to_vec());
        for frames in stopped.into_iter().chain([MIXED.to_vec()]) {
            let whole = input(&frames);
            let order = passed(&frames).0;
            for (piece, max) in (1..=whole.len()).flat_map(|piece| [(piece, 1), (piece, piece)]) {
                let read = read_in_pieces(&whole, piece, max);
                assert_eq!(
                    numbers(&read),
                    order,
                    "{frames:?} in pieces of {piece}, {max}"
                );
            }
        }
    }

    /// What h2 reads at last, if so many bytes come at a time, and it reads at most `read_max`.
    fn read_in_pieces(whole: &[u8], piece: usize, read_max: usize) -> Vec<u8> {
        let (mut input, mut waiting) = (BytesMut::new(), Waiting::default());
        let (mut read, mut scan) = (Vec::new(), Scan::between_frames());
        for bytes in whole.chunks(piece) {
            input.extend_from_slice(bytes);
            let begin = scan.rest_of_frame(&input).unwrap_or(input.len());
            let passed = waiting.take(&mut input, begin, 5).min(read_max);
            scan.read(&input[..passed], |_| false, |_, _| ());
            waiting.was_read(passed);
            read.extend_from_slice(&input.split_to(passed));
        }
        let begin = scan.rest_of_frame(&input).expect("it has come as a whole");
        waiting.put_back(&mut input, begin, 5);
        read.extend_from_slice(&input);
        read
    }
}
