//! Answers that are plain: a head, and a short body whose length is known. They are written as
//! hyper writes them, to the byte.

use bytes::Buf;
use http::header::{CONNECTION, CONTENT_LENGTH, DATE, TRAILER, TRANSFER_ENCODING, UPGRADE};
use http::response::Parts;
use http::{StatusCode, Version};
use http_body::Body;
use hyper::ext::ReasonPhrase;

use crate::http::http1::date::Line;
use crate::pool::Buffer;

/// A body is copied behind its head. One beyond this is not: it is sent from where it is.
const BODY_MAX: u64 = 16 * 1024;

/// What is known of a plain answer.
#[derive(Clone, Copy)]
pub(crate) struct Plan {
    /// Of the body, in bytes.
    pub(crate) length: u64,
    /// Whether it is the last on its connection, as its head says.
    pub(crate) says_close: bool,
    says_length: bool,
    says_date: bool,
}

impl Plan {
    /// `None` is "not plain".
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
            says_close: false,
            says_length: false,
            says_date: false,
        };
        for (name, value) in &head.headers {
            match *name {
                CONNECTION if !plan.says_close && value == "close" => plan.says_close = true,
                CONTENT_LENGTH if !plan.says_length && length > 0 => {
                    let said = value.to_str().ok()?;
                    let digits = itoa::Buffer::new().format(length) == said;
                    plan.says_length = digits.then_some(true)?;
                }
                CONNECTION | CONTENT_LENGTH | TRANSFER_ENCODING | TRAILER | UPGRADE => return None,
                DATE => plan.says_date = true,
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

/// Writes a head. `ends` has it say that it is the connection's last, if it does not already.
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
    if ends && !plan.says_close {
        out.extend_from_slice(b"connection: close\r\n");
    }
    if !plan.says_length {
        out.extend_from_slice(b"content-length: ");
        out.extend_from_slice(itoa::Buffer::new().format(plan.length).as_bytes());
        out.extend_from_slice(b"\r\n");
    }
    match date.filter(|_| !plan.says_date) {
        Some(date) => out.extend_from_slice(date),
        None => out.extend_from_slice(b"\r\n"),
    }
}

/// Writes a piece of a body, of which so many bytes are left. More than that is not sent.
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
