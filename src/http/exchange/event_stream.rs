//! Ends event streams at the drain.
//!
//! A response of the type `text/event-stream` (HTML Standard, 9.2 "Server-sent events") ends only
//! when its handler ends it, and many handlers never do. Its client connects again by itself, and
//! names the last event that it has got. So a worker that drains ends such responses as whole ones.

use std::pin::Pin;
use std::task::Context;

use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use tokio::sync::futures::OwnedNotified;

use crate::http::registry::list::Registry;
use crate::http::registry::mode::Mode;

const MEDIA_TYPE: &[u8] = b"text/event-stream";

/// So many pieces of a body that are ready when the drain begins are still sent: the last events.
const LAST_PIECES: u8 = 16;

/// Waits for the drain beside the body of a response.
pub(crate) struct EventStream {
    drain: Pin<Box<OwnedNotified>>,
    end: End,
}

/// When the stream ends.
enum End {
    AtDrain,
    /// The drain has begun. So many pieces may follow, if they are ready.
    AfterPieces(u8),
}

impl EventStream {
    /// For a response with these headers; `None` if it is no event stream. A compressed one is left
    /// alone, because an end between two pieces would break its coding.
    pub(crate) fn of(headers: &HeaderMap, registry: &Registry) -> Option<Self> {
        let media_type = headers.get(CONTENT_TYPE)?.as_bytes();
        let media_type = media_type.split(|&byte| byte == b';').next()?.trim_ascii();
        let is_event_stream = media_type.eq_ignore_ascii_case(MEDIA_TYPE);
        if !is_event_stream || headers.contains_key(CONTENT_ENCODING) {
            return None;
        }
        // In this order: a drain that begins in between is seen by both.
        let drain = Box::pin(registry.drain_begins());
        let end = match registry.mode.get() {
            Mode::Serving => End::AtDrain,
            Mode::HandingOver { .. } | Mode::Draining { .. } => End::AfterPieces(LAST_PIECES),
        };
        Some(Self { drain, end })
    }

    /// Whether the stream ends here. `is_ready`: the body has another piece.
    pub(crate) fn ends(&mut self, is_ready: bool, cx: &mut Context<'_>) -> bool {
        if let End::AtDrain = self.end
            && self.drain.as_mut().poll(cx).is_ready()
        {
            self.end = End::AfterPieces(LAST_PIECES);
        }
        match &mut self.end {
            End::AtDrain => false,
            End::AfterPieces(left) if is_ready && *left > 0 => {
                *left -= 1;
                false
            }
            End::AfterPieces(_) => true,
        }
    }
}
