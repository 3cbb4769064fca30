//! Writes plain responses: a head, and a short body or the short pieces of one. The bytes are the
//! same as those that hyper writes.

use bytes::Buf;
use http::header::{CONNECTION, CONTENT_LENGTH, DATE, TRAILER, TRANSFER_ENCODING, UPGRADE};
use http::response::Parts;
use http::{Method, StatusCode, Version};
use http_body::Body;
use hyper::ext::ReasonPhrase;

use crate::http::exchange::date::Line;
use crate::http::exchange::length;
use crate::pool::Buffer;

/// What the client wants of the response.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    Content,
    /// The head alone, as for GET (RFC 9110 9.3.2).
    Head,
}

impl Wanted {
    #[inline]
    pub(crate) fn by(method: &Method) -> Self {
        match *method {
            Method::HEAD => Self::Head,
            _ => Self::Content,
        }
    }
}

/// What follows a head that was written.
pub(crate) struct AfterHead {
    /// How many bytes of the body are sent.
    pub(crate) sent: u64,
    /// Whether the head has `Connection: close`.
    pub(crate) has_close: bool,
}

/// The length of the body, if a response with it may be plain.
#[inline]
pub(crate) fn plain_len<B: Body>(head: &Parts, body: Option<&B>) -> Option<u64> {
    let length = body.map_or(Some(0), |body| body.size_hint().exact())?;
    let is_plain = body.is_none_or(B::is_end_stream) == (length == 0)
        && head.version == Version::HTTP_11
        && is_plain(head.status)
        && head.extensions.get::<ReasonPhrase>().is_none();
    is_plain.then_some(length)
}

fn is_plain(status: StatusCode) -> bool {
    status == StatusCode::OK || (!status.is_informational() && status.canonical_reason().is_some())
}

/// Writes the head of a response whose body has this length. With `ends` it gets
/// `connection: close`, if it does not have it. `None`: a field is not plain, and a part of the
/// head may be written.
pub(crate) fn write_head(
    out: &mut Vec<u8>,
    head: &Parts,
    length: u64,
    wanted: Wanted,
    ends: bool,
    date: Option<&Line>,
) -> Option<AfterHead> {
    let has_content = !matches!(
        head.status,
        StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED
    );
    // In a response to HEAD the handler may name a length without a body.
    let mut may_have_length = has_content && (length > 0 || wanted == Wanted::Head);
    let mut lacks_length = has_content && (length > 0 || wanted == Wanted::Content);
    let mut has_date = false;
    let mut has_close = false;
    write_status(out, head.status);
    for (name, value) in &head.headers {
        match *name {
            CONNECTION if !has_close && value == "close" => has_close = true,
            CONTENT_LENGTH if may_have_length => {
                let fits = match length {
                    0 => length::number::<u64>(value.as_bytes()).is_some(),
                    length => itoa::Buffer::new().format(length).as_bytes() == value,
                };
                if !fits {
                    return None;
                }
                may_have_length = false;
                lacks_length = false;
            }
            CONNECTION | CONTENT_LENGTH | TRANSFER_ENCODING | TRAILER | UPGRADE => return None,
            DATE => has_date = true,
            _ => {}
        }
        out.extend_from_slice(name.as_str().as_bytes());
        out.extend_from_slice(b": ");
        out.extend_from_slice(value.as_bytes());
        out.extend_from_slice(b"\r\n");
    }
    if ends && !has_close {
        out.extend_from_slice(b"connection: close\r\n");
    }
    if lacks_length {
        out.extend_from_slice(b"content-length: ");
        out.extend_from_slice(itoa::Buffer::new().format(length).as_bytes());
        out.extend_from_slice(b"\r\n");
    }
    match date.filter(|_| !has_date) {
        Some(date) => out.extend_from_slice(date),
        None => out.extend_from_slice(b"\r\n"),
    }
    let sent = match (wanted, has_content) {
        (Wanted::Content, true) => length,
        _ => 0,
    };
    Some(AfterHead { sent, has_close })
}

#[inline]
fn write_status(out: &mut Vec<u8>, status: StatusCode) {
    if status == StatusCode::OK {
        return out.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
    }
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(status.as_str().as_bytes());
    out.extend_from_slice(b" ");
    let reason = status.canonical_reason().unwrap_or_default();
    out.extend_from_slice(reason.as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Writes a piece of a body. `left` is the number of bytes that the body has left; the rest of a
/// longer piece is not sent.
#[inline]
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
