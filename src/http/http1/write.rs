//! Writes plain responses: a head, and a short body with a known length. The bytes are the same as
//! those that hyper writes.

use bytes::Buf;
use http::header::{CONNECTION, CONTENT_LENGTH, DATE, TRAILER, TRANSFER_ENCODING, UPGRADE};
use http::response::Parts;
use http::{StatusCode, Version};
use http_body::Body;
use hyper::ext::ReasonPhrase;

use crate::http::http1::date::Line;
use crate::pool::Buffer;

/// The longest body of a plain response, in bytes. It is copied behind its head. A longer body goes
/// to hyper, which sends it without a copy.
const BODY_MAX: u64 = 16 * 1024;

/// How to write a plain response.
#[derive(Clone, Copy)]
pub(crate) struct Plan {
    /// Length of the body, in bytes.
    pub(crate) length: u64,
    /// Whether the head has `Connection: close`.
    pub(crate) has_close: bool,
    /// Whether the head has `Content-Length`.
    has_length: bool,
    /// Whether the head has `Date`.
    has_date: bool,
}

impl Plan {
    /// `None`: the response is not plain.
    pub(crate) fn of<B: Body>(head: &Parts, body: Option<&B>) -> Option<Self> {
        let length = body.map_or(Some(0), |body| body.size_hint().exact())?;
        let is_plain = length <= BODY_MAX
            && body.is_none_or(B::is_end_stream) == (length == 0)
            && head.version == Version::HTTP_11
            && is_plain(head.status)
            && head.extensions.get::<ReasonPhrase>().is_none();
        if !is_plain {
            return None;
        }
        let mut plan = Self {
            length,
            has_close: false,
            has_length: false,
            has_date: false,
        };
        for (name, value) in &head.headers {
            match *name {
                CONNECTION if !plan.has_close && value == "close" => plan.has_close = true,
                CONTENT_LENGTH if !plan.has_length && length > 0 => {
                    let written = value.to_str().ok()?;
                    let is_same = itoa::Buffer::new().format(length) == written;
                    plan.has_length = is_same.then_some(true)?;
                }
                CONNECTION | CONTENT_LENGTH | TRANSFER_ENCODING | TRAILER | UPGRADE => return None,
                DATE => plan.has_date = true,
                _ => {}
            }
        }
        Some(plan)
    }
}

fn is_plain(status: StatusCode) -> bool {
    let has_body = !matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    status == StatusCode::OK
        || (!status.is_informational() && has_body && status.canonical_reason().is_some())
}

/// Writes a head. With `ends` it gets `connection: close`, if it does not have it.
pub(crate) fn write_head(
    out: &mut Vec<u8>,
    head: &Parts,
    plan: Plan,
    ends: bool,
    date: Option<&Line>,
) {
    match head.status {
        StatusCode::OK => out.extend_from_slice(b"HTTP/1.1 200 OK\r\n"),
        status => {
            out.extend_from_slice(b"HTTP/1.1 ");
            out.extend_from_slice(status.as_str().as_bytes());
            out.extend_from_slice(b" ");
            let reason = status.canonical_reason().unwrap_or_default();
            out.extend_from_slice(reason.as_bytes());
            out.extend_from_slice(b"\r\n");
        }
    }
    for (name, value) in &head.headers {
        out.extend_from_slice(name.as_str().as_bytes());
        out.extend_from_slice(b": ");
        out.extend_from_slice(value.as_bytes());
        out.extend_from_slice(b"\r\n");
    }
    if ends && !plan.has_close {
        out.extend_from_slice(b"connection: close\r\n");
    }
    if !plan.has_length {
        out.extend_from_slice(b"content-length: ");
        out.extend_from_slice(itoa::Buffer::new().format(plan.length).as_bytes());
        out.extend_from_slice(b"\r\n");
    }
    match date.filter(|_| !plan.has_date) {
        Some(date) => out.extend_from_slice(date),
        None => out.extend_from_slice(b"\r\n"),
    }
}

/// Writes a piece of a body. `left` is the number of bytes that the body has left; the rest of a
/// longer piece is not sent.
pub(crate) fn write_piece(out: &mut Buffer, mut piece: impl Buf, left: &mut u64) {
    while *left > 0 && piece.has_remaining() {
        let chunk = piece.chunk();
        let len = chunk
            .len()
            .min(usize::try_from(*left).unwrap_or(usize::MAX));
        out.extend_from_slice(&chunk[..len]);
        piece.advance(len);
        *left -= len as u64;
    }
}
