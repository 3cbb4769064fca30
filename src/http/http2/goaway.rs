//! GOAWAY, and the PING that comes with it (RFC 9113 6.8). When the client acknowledges the PING,
//! it has read GOAWAY.
//!
//! h2 ignores requests that follow the acknowledgement. But a client of the h2 crate sends it
//! before requests that it had begun when it read GOAWAY. So h2 gets the acknowledgement last.

use bytes::BytesMut;

use crate::http::http2::scan::{ACK, FRAME_HEADER, GOAWAY, Header, PING, control_frame, cut};

/// The payload of the PING that h2 sends with its first GOAWAY. If hyper serves a connection again
/// that went away at rest, h2 takes the acknowledgement for that of its own PING.
const PAYLOAD: [u8; 8] = [0x0b, 0x7b, 0xa2, 0xf0, 0x8b, 0x9b, 0xfe, 0x54];

/// What has become of the PING.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GoAway {
    NotSent,
    Sent,
    /// The client has acknowledged it, and h2 is not to read that yet.
    Acknowledged,
    /// h2 can read the acknowledgement when no more bytes have come.
    Released,
    Over,
}

impl GoAway {
    /// Whether the acknowledgement may come, or is held.
    pub(crate) fn is_awaited(self) -> bool {
        !matches!(self, Self::NotSent | Self::Over)
    }

    /// Whether h2 ignores the streams that the client opens from now on.
    pub(crate) fn is_over(self) -> bool {
        self == Self::Over
    }

    /// Lets h2 read the acknowledgement if it is held and h2 needs it now. Returns whether it is.
    pub(crate) fn release(&mut self, is_needed: impl FnOnce() -> bool) -> bool {
        let is_released = *self == Self::Acknowledged && is_needed();
        if is_released {
            *self = Self::Released;
        }
        is_released
    }

    /// Takes the acknowledgement out of the input, whose first `begin` bytes belong to the frame
    /// that h2 has begun to read. Returns how many bytes h2 may read; a part of the acknowledgement
    /// may follow them.
    pub(crate) fn hold(&mut self, input: &mut BytesMut, begin: usize) -> usize {
        let acknowledgement = ping(ACK);
        let mut at = begin;
        while let (Self::Sent, Some(rest)) = (*self, input.get(at..)) {
            if rest.starts_with(&acknowledgement) {
                *self = Self::Acknowledged;
                cut(input, at, acknowledgement.len());
                break;
            }
            if acknowledgement.starts_with(rest) {
                return at;
            }
            let Some(header) = Header::first_of(rest) else {
                break;
            };
            at += FRAME_HEADER + header.len;
        }
        input.len()
    }

    /// The acknowledgement that was released. No more bytes have come, and h2 is between frames.
    pub(crate) fn take_released(&mut self) -> Option<[u8; FRAME_HEADER + 8]> {
        (*self == Self::Released).then(|| {
            *self = Self::Over;
            ping(ACK)
        })
    }
}

/// What h2 sends when a connection begins to go away: GOAWAY with the highest stream number, and
/// the PING.
pub(crate) fn first_goaway() -> [[u8; FRAME_HEADER + 8]; 2] {
    [goaway(u32::MAX >> 1, h2::Reason::NO_ERROR), ping(0)]
}

/// GOAWAY without debug data.
pub(crate) fn goaway(last_stream: u32, reason: h2::Reason) -> [u8; FRAME_HEADER + 8] {
    let payload = u64::from(last_stream) << 32 | u64::from(u32::from(reason));
    control_frame(GOAWAY, 0, payload.to_be_bytes())
}

/// The PING that comes with GOAWAY, or its acknowledgement.
pub(crate) fn ping(flags: u8) -> [u8; FRAME_HEADER + 8] {
    control_frame(PING, flags, PAYLOAD)
}
