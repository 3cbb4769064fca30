//! A client whose steps the input chooses.

use crate::http::http2::goaway::ping;
use crate::http::http2::scan::{
    ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, PADDED, PING, PRIORITY, SETTINGS,
    WINDOW_UPDATE, write_frame,
};

const RST_STREAM: u8 = 3;

/// Strings of Huffman codes, with their lengths before them (RFC 7541 C.4 and C.6).
const HUFFMAN: [&[u8]; 4] = [
    b"\x8c\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff",
    b"\x86\xa8\xeb\x10\x64\x9c\xbf",
    b"\x89\x25\xa8\x49\xe9\x5b\xb8\xe8\xb4\xbf",
    b"\x96\xd0\x7a\xbe\x94\x10\x54\xd4\x44\xa8\x20\x05\x95\x04\x0b\x81\x66\xe0\x82\xa6\x2d\x1b\xff",
];

/// How many DATA frames of a request's body come at once.
const PIECES: usize = 8;

pub(super) enum Step {
    Send(Vec<u8>),
    /// More than a second passes.
    Rest,
    /// The server drains. No time passes after it.
    Drain,
}

/// The input, which chooses. It goes on with zeros.
struct Choices<'a>(std::slice::Iter<'a, u8>);

impl Choices<'_> {
    fn below(&mut self, limit: u8) -> u8 {
        self.0.next().map_or(0, |byte| byte % limit)
    }
}

/// What the client sends beside PING.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Sends {
    Requests,
    AnyFrames,
}

/// After the server drains, the client may send one more request. Then it acknowledges the PING.
pub(super) fn steps(input: &[u8], sends: Sends) -> Vec<Step> {
    let mut choices = Choices(input.iter());
    let mut first = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    write_frame(&mut first, SETTINGS, 0, 0, b"");
    write_frame(&mut first, SETTINGS, ACK, 0, b"");
    if choices.below(2) == 1 {
        let more = (1_u32 << 20).to_be_bytes();
        write_frame(&mut first, WINDOW_UPDATE, 0, 0, &more);
    }
    let mut steps = vec![Step::Send(first)];
    let (mut next, mut uploads) = (1, Vec::new());
    while !choices.0.as_slice().is_empty() {
        let mut bytes = Vec::new();
        match choices.below(10) {
            0 | 1 => {
                steps.push(Step::Rest);
                continue;
            }
            2..=5 => {
                request(&mut bytes, &mut choices, next, END_STREAM);
                next += 2;
            }
            6 => {
                request(&mut bytes, &mut choices, next, 0);
                uploads.push(next);
                next += 2;
            }
            7 => {
                let end = choices.below(2);
                let Some(&stream) = uploads.last() else {
                    continue;
                };
                if end == END_STREAM {
                    uploads.pop();
                }
                let data = vec![b'd'; usize::from(choices.below(255)) * 60];
                if sends == Sends::Requests {
                    // Together with them it is more than a window.
                    let before = PIECES - 1;
                    (0..before).for_each(|_| write_frame(&mut bytes, DATA, 0, stream, &data));
                }
                write_frame(&mut bytes, DATA, end, stream, &data);
            }
            _ if sends == Sends::Requests => continue,
            8 => settings(&mut bytes, &mut choices),
            _ => other(&mut bytes, &mut choices, next),
        }
        steps.push(Step::Send(bytes));
    }
    steps.push(Step::Drain);
    if input.len() % 2 == 1 {
        let mut bytes = Vec::new();
        request(&mut bytes, &mut choices, next, END_STREAM);
        steps.push(Step::Send(bytes));
    }
    steps.push(Step::Send(ping(ACK).into()));
    steps
}

/// One setting. Sizes that h2 refuses are among them.
fn settings(bytes: &mut Vec<u8>, choices: &mut Choices<'_>) {
    let (identifier, value) = match choices.below(4) {
        0 => (1, u32::from(choices.below(255)) * 33),
        1 => (4, u32::from(choices.below(255)) * 700),
        2 => (5, 16_384 + u32::from(choices.below(8)) * 1000),
        _ => (choices.below(9), u32::from(choices.below(255))),
    };
    let payload = [&[0, identifier], &value.to_be_bytes()[..]].concat();
    write_frame(bytes, SETTINGS, 0, 0, &payload);
}

/// A frame that is no request. It may be one that ends the connection.
fn other(bytes: &mut Vec<u8>, choices: &mut Choices<'_>, next: u32) {
    let amount = u32::from(choices.below(255)) * 300;
    let old = next.saturating_sub(2);
    match choices.below(6) {
        0 => write_frame(bytes, PING, 0, 0, &[choices.below(255); 8]),
        1 | 2 => write_frame(bytes, WINDOW_UPDATE, 0, 0, &amount.to_be_bytes()),
        3 => write_frame(bytes, WINDOW_UPDATE, 0, old, &amount.to_be_bytes()),
        4 => write_frame(bytes, RST_STREAM, 0, old, &8_u32.to_be_bytes()),
        _ => {
            let kind = choices.below(16);
            let payload = vec![choices.below(255); usize::from(choices.below(20))];
            write_frame(bytes, kind, choices.below(255), 0, &payload);
        }
    }
}

fn request(bytes: &mut Vec<u8>, choices: &mut Choices<'_>, stream: u32, end: u8) {
    let block = block(choices);
    match choices.below(4) {
        0 => {
            let at = usize::from(choices.below(255)).min(block.len());
            write_frame(bytes, HEADERS, end, stream, &block[..at]);
            write_frame(bytes, CONTINUATION, END_HEADERS, stream, &block[at..]);
        }
        1 => {
            let flags = end | END_HEADERS | PADDED | PRIORITY;
            let payload = [&[3, 0, 0, 0, 0, 7], &block[..], &[0; 3]].concat();
            write_frame(bytes, HEADERS, flags, stream, &payload);
        }
        _ => write_frame(bytes, HEADERS, end | END_HEADERS, stream, &block),
    }
}

/// A header block. Dynamic entries are used whether they exist or not.
fn block(choices: &mut Choices<'_>) -> Vec<u8> {
    let mut block = Vec::new();
    match choices.below(8) {
        0 => block.extend([0x20, 0x3f, choices.below(128)]),
        1 => block.extend([0x3f, 0xe1, 0x1f]),
        _ => {}
    }
    block.extend(b"\x82\x86");
    match choices.below(4) {
        0 => block.extend(b"\x44\x04/abc"),
        1 => block.extend([&b"\x44"[..], HUFFMAN[3]].concat()),
        _ => block.push(0x84),
    }
    for _ in 0..choices.below(8) {
        let dynamic = choices.below(12);
        match choices.below(8) {
            0 => block.extend([0x40, 3, b'x', b'-', b'a' + dynamic]),
            1 => block.extend([0x40, 0x82, 0xf2, 0xb7]),
            2 => block.extend([0x7e + dynamic % 2, dynamic]),
            3 => block.push(0xbe + dynamic),
            4 => block.extend([0x0f, 47 + dynamic]),
            5 => block.extend([0x50 + dynamic]),
            6 => block.push(0x90),
            _ => {
                block.extend([0x40, 3, b'x', b'-', b'l', 0x7f, 0x80 + dynamic, dynamic]);
                let len = 127 + usize::from(dynamic) * 129;
                block.extend(vec![b'l'; len]);
                continue;
            }
        }
        if block.last().is_some_and(|last| *last < 0x80) || choices.below(2) == 1 {
            value(&mut block, choices);
        }
    }
    block
}

fn value(block: &mut Vec<u8>, choices: &mut Choices<'_>) {
    let choice = choices.below(8);
    match HUFFMAN.get(usize::from(choice)) {
        Some(string) => block.extend(*string),
        None => block.extend([2, b'v', b'0' + choice]),
    }
}
