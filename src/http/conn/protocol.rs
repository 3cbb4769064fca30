//! The interface between the task of a connection and the protocols, HTTP/1 and HTTP/2.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::StatusCode;

use crate::http::conn::socket::Version;
use crate::http::conn::stream::Stream;
use crate::http::registry::state::ConnState;
use crate::http::registry::timeouts::Order;

/// Serves the requests of a connection.
pub(crate) trait Protocol<I> {
    /// Serves. Ready when the protocol or the client has ended the connection.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Failure>>;

    /// Carries out an order of the registry in the protocol's own way, or returns this order or
    /// another one, which the connection's task then carries out.
    fn follow(&mut self, order: Order, _cx: &mut Context<'_>) -> Option<Order> {
        Some(order)
    }

    /// Ready when a protocol that rests has something to do. A protocol rests after it has returned
    /// [`Order::Rest`] in HTTP/2. One of HTTP/1 gives up its stream instead.
    fn poll_wake(&mut self, _cx: &mut Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }

    /// Whether the connection can go to another server now. Called between requests only.
    fn can_move(&self) -> bool {
        true
    }

    /// What the next server needs to know of an HTTP/2 client. Called if [`Protocol::can_move`].
    fn client_record(&self) -> Option<Bytes> {
        None
    }

    /// Returns the stream, with the bytes put back that were read and not parsed. `None` after an
    /// upgrade.
    fn into_stream(self: Box<Self>) -> Option<Stream<I>>;
}

/// Why a protocol stopped.
pub(crate) enum Failure {
    Hyper(hyper::Error),
    /// The client has gone, or a response broke off.
    Stream(io::Error),
}

impl Failure {
    /// Whether the client sent bytes that are not HTTP/1.
    pub(crate) fn is_parse(&self) -> bool {
        matches!(self, Self::Hyper(error) if error.is_parse())
    }

    /// Status of hyper's response to bytes that are not HTTP/1.
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::Hyper(error) if error.is_parse_too_large() => {
                StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE
            }
            _ => StatusCode::BAD_REQUEST,
        }
    }

    pub(crate) fn is_parse_version_h2(&self) -> bool {
        matches!(self, Self::Hyper(error) if error.is_parse_version_h2())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hyper(error) => error.fmt(f),
            Self::Stream(error) => error.fmt(f),
        }
    }
}

/// Starts a protocol on a connection, again after each rest.
pub(crate) trait StartProtocol<I> {
    fn start(
        &self,
        version: Version,
        stream: Stream<I>,
        state: &Arc<ConnState>,
    ) -> Box<dyn Protocol<I>>;

    /// Goes on with HTTP/2 where another server was, without an open stream. `None` if the record
    /// of the client is not valid.
    fn resume(
        &self,
        stream: Stream<I>,
        state: &Arc<ConnState>,
        record: &[u8],
    ) -> Option<Box<dyn Protocol<I>>>;
}
