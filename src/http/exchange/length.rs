//! The length of a response's body: what its head says, and what the handler gives.

use std::str::FromStr;

use bytes::Buf;
use http::HeaderMap;
use http::header::CONTENT_LENGTH;
use http_body::{Body, Frame};

/// A `Content-Length` that is not the length of its body.
#[derive(Clone, Copy)]
pub(crate) struct WrongLength {
    /// `None` if the field is not a number.
    pub(crate) said: Option<u64>,
    /// `None` if the length of the body is not known.
    pub(crate) body: Option<u64>,
}

/// Checks what the handler has set, before a byte is sent. hyper would send the field and the body
/// as they are, and the client would take a part of one response for another. `body` is the length
/// of the body if it is known and the field must name it.
pub(crate) fn check(headers: &HeaderMap, body: Option<u64>) -> Result<(), WrongLength> {
    for value in headers.get_all(CONTENT_LENGTH) {
        let said = number(value.as_bytes());
        if said.is_none() || body.is_some_and(|body| said != Some(body)) {
            return Err(WrongLength { said, body });
        }
    }
    Ok(())
}

/// Digits and nothing else (RFC 9110 8.6): numbers of Rust take a sign too.
pub(crate) fn number<N: FromStr>(digits: &[u8]) -> Option<N> {
    let is_number = digits.iter().all(u8::is_ascii_digit);
    is_number.then(|| str::from_utf8(digits).ok()?.parse().ok())?
}

/// How much of a body has come, of what its head says.
pub(crate) struct Progress {
    /// `None` if the head says nothing.
    said: Option<u64>,
    come: u64,
}

impl Progress {
    pub(crate) fn new<B: Body>(headers: &HeaderMap, body: Option<&B>) -> Self {
        let body = body.filter(|body| !body.is_end_stream());
        Self {
            said: body.and_then(|body| {
                let length = body.size_hint().exact();
                length.or_else(|| number(headers.get(CONTENT_LENGTH)?.as_bytes()))
            }),
            come: 0,
        }
    }

    pub(crate) fn count<D: Buf>(&mut self, frame: &Frame<D>) {
        self.come += frame.data_ref().map_or(0, Buf::remaining) as u64;
    }

    /// If the body ended here, it would be too short.
    pub(crate) fn is_short(&self) -> bool {
        self.said.is_some_and(|said| self.come < said)
    }

    pub(crate) fn is_long(&self) -> bool {
        self.said.is_some_and(|said| self.come > said)
    }

    pub(crate) fn wrong(&self) -> WrongLength {
        WrongLength {
            said: self.said,
            body: Some(self.come),
        }
    }
}
