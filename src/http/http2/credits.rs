//! The credits of one client: it pays with them for frames that serve no request. Requests,
//! responses and time give credits.

use std::cell::Cell;

use crate::http::http2::scan::{ACK, Header, SETTINGS};
use crate::http::registry::list::Registry;
use crate::http::registry::wheel::Tick;

/// The credits of a new connection. Settings, a tree of priorities, and the windows and PINGs of a
/// burst are some dozens of frames.
pub(crate) const ON_CREDIT: u32 = 1024;

/// Credits for each request, and for each piece of a response, however many frames a client's
/// window makes of it. grpc-go sends a PING and two WINDOW_UPDATE frames for data that it receives,
/// Firefox six PRIORITY frames with its first request.
const PER_MESSAGE: u32 = 16;

/// A stream that the server resets for an error of the client costs what its request gave and one
/// more. A client can make the server reset streams that are served (CVE-2025-8671).
const PER_ERROR: u32 = PER_MESSAGE + 1;

/// One of them can open the windows of all responses by a byte, and so make the server write a
/// frame for each. Clients send some when a connection begins, and as they learn its speed.
const PER_SETTINGS: u32 = 64;

/// So many bytes written give one credit. The bytes of a tunnel are counted only here. The response
/// to a PING is 17 bytes, so that a client cannot earn a PING by a PING.
const BYTES_PER_CREDIT: usize = 512;

/// Credits for each second, up to [`ON_CREDIT`], for the PINGs by which a client keeps a connection
/// open. So many frames a second cost a worker less than one request.
const PER_SECOND: u32 = 32;

pub(crate) struct Credits {
    left: Cell<u32>,
    /// The bytes written that have not given a credit yet.
    unrewarded: Cell<u16>,
    /// When the client got [`PER_SECOND`] last.
    last_refill: Cell<Tick>,
    balance: Cell<Balance>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Balance {
    NotExceeded,
    /// The client has sent more frames than it had credits for.
    Exceeded,
}

impl Credits {
    pub(crate) fn new(registry: &Registry) -> Self {
        Self {
            left: Cell::new(ON_CREDIT),
            unrewarded: Cell::new(0),
            last_refill: Cell::new(registry.now()),
            balance: Cell::new(Balance::NotExceeded),
        }
    }

    /// Whether the client has sent more frames than it had credits for.
    pub(crate) fn are_exceeded(&self) -> bool {
        self.balance.get() == Balance::Exceeded
    }

    /// A request has begun, or a piece of a response was written.
    pub(crate) fn reward_message(&self) {
        self.give(PER_MESSAGE);
    }

    /// So many bytes were written.
    pub(crate) fn reward_bytes(&self, count: usize) {
        let bytes = usize::from(self.unrewarded.get()) + count;
        let (credit, rest) = (bytes / BYTES_PER_CREDIT, bytes % BYTES_PER_CREDIT);
        self.unrewarded.set(rest as u16);
        self.give(u32::try_from(credit).unwrap_or(u32::MAX));
    }

    /// The client has sent a frame that serves no request.
    pub(crate) fn charge_frame(&self, frame: &Header, registry: &Registry) {
        let is_settings = frame.kind == SETTINGS && frame.flags & ACK == 0;
        self.take(if is_settings { PER_SETTINGS } else { 1 }, registry);
    }

    /// The server has reset a stream with this reason.
    pub(crate) fn charge_reset(&self, reason: &[u8], registry: &Registry) {
        let reason = reason.try_into().map(u32::from_be_bytes);
        match h2::Reason::from(reason.unwrap_or_default()) {
            // The server has decided that by itself, or the body of a response has failed.
            h2::Reason::NO_ERROR
            | h2::Reason::REFUSED_STREAM
            | h2::Reason::CANCEL
            | h2::Reason::INTERNAL_ERROR => {}
            // The client may not know yet that the stream is closed.
            h2::Reason::STREAM_CLOSED => self.take(1, registry),
            _ => self.take(PER_ERROR, registry),
        }
    }

    fn give(&self, credit: u32) {
        self.left.set(self.left.get().saturating_add(credit));
    }

    fn take(&self, cost: u32, registry: &Registry) {
        if registry.is_second_over(self.last_refill.get()) {
            self.last_refill.set(registry.now());
            let left = self.left.get();
            self.left
                .set(left.max(ON_CREDIT.min(left.saturating_add(PER_SECOND))));
        }
        match self.left.get().checked_sub(cost) {
            Some(left) => self.left.set(left),
            None => self.balance.set(Balance::Exceeded),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::Http;
    use crate::http::http2::scan::PING;
    use crate::stats::WorkerStats;

    #[test]
    fn a_client_that_has_earned_the_most_can_be_given_more() {
        let registry = Registry::new(Http::new(), WorkerStats::own());
        let credits = Credits::new(&registry);
        credits.reward_bytes(u32::MAX as usize * BYTES_PER_CREDIT);
        while !registry.is_second_over(credits.last_refill.get()) {
            registry.clock.advance();
        }
        let ping = Header {
            len: 8,
            kind: PING,
            flags: 0,
            stream: 0,
        };
        credits.charge_frame(&ping, &registry);
        assert_eq!(credits.left.get(), u32::MAX - 1);
    }
}
