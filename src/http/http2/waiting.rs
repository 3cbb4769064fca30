//! New streams that wait in the input, and the frames that pass them.

use bytes::BytesMut;

use crate::http::http2::scan::{
    DATA, FRAME_HEADER, GOAWAY, HEADERS, Header, RST_STREAM, SETTINGS, WINDOW_UPDATE,
};

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

/// Puts frames of open streams before new streams: the bodies and the windows that the open ones
/// need to end. Returns how many bytes come before the first new stream.
///
/// Frames that may be processed in another order only pass whole. Nothing passes fields of an open
/// stream, because the header table depends on their order, nor settings.
pub(crate) fn let_pass(input: &mut BytesMut, begin: usize, last_stream: u32) -> usize {
    let passed = before_new_stream(input, begin, last_stream);
    let rest = input.split_off(passed).freeze();
    let (mut waiting, mut at) = (Vec::new(), 0);
    while let Some(header) = header_at(&rest, at) {
        let is_open = header.stream <= last_stream;
        let passes = match header.kind {
            DATA | RST_STREAM | WINDOW_UPDATE => is_open,
            HEADERS if is_open => break,
            SETTINGS | GOAWAY => break,
            _ => false,
        };
        let Some(frame) = rest.get(at..at + FRAME_HEADER + header.len) else {
            break;
        };
        at += frame.len();
        match passes {
            true => input.extend_from_slice(frame),
            false => waiting.extend_from_slice(frame),
        }
    }
    let passed = input.len();
    input.extend_from_slice(&waiting);
    input.extend_from_slice(&rest[at..]);
    passed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::http2::scan::{CONTINUATION, PING, write_frame};

    /// The kind and the stream of each frame, and in its payload the number of the frame.
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
        let mut input = input(frames);
        let passed = let_pass(&mut input, 0, 5);
        (numbers(&input), passed / (FRAME_HEADER + 4))
    }

    #[test]
    fn frames_of_open_streams_pass_new_streams() {
        let new = (HEADERS, 7);
        assert_eq!(
            passed(&[(DATA, 5), (PING, 0), (HEADERS, 5)]),
            (vec![0, 1, 2], 3)
        );
        let mixed = [
            (DATA, 5),
            new,
            (CONTINUATION, 7),
            (DATA, 5),
            (DATA, 7),
            (WINDOW_UPDATE, 0),
            (PING, 0),
            (WINDOW_UPDATE, 7),
            (RST_STREAM, 3),
            (RST_STREAM, 7),
        ];
        assert_eq!(passed(&mixed), (vec![0, 3, 5, 8, 1, 2, 4, 6, 7, 9], 4));
        for stops in [(HEADERS, 5), (SETTINGS, 0), (GOAWAY, 0)] {
            let frames = [new, (DATA, 3), stops, (DATA, 1)];
            assert_eq!(passed(&frames), (vec![1, 0, 2, 3], 1), "{stops:?}");
        }
    }

    #[test]
    fn a_part_of_a_frame_passes_no_new_stream() {
        let whole = input(&[(HEADERS, 7), (DATA, 5)]);
        for len in 0..whole.len() {
            let mut part = BytesMut::from(&whole[..len]);
            assert_eq!(let_pass(&mut part, 0, 5), 0, "{len}");
            assert_eq!(part, whole[..len]);
        }
        let mut part = BytesMut::from(&whole[4..]);
        assert_eq!(let_pass(&mut part, FRAME_HEADER, 5), whole.len() - 4);
    }
}
