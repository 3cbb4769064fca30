//! What a connection's task and the protocols, HTTP/1 and HTTP/2, know of each other.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::StatusCode;

use crate::http::conn::socket::Version;
use crate::http::conn::stream::Stream;
use crate::http::registry::state::ConnState;
use crate::http::registry::timeouts::Order;

/// What serves the requests of a connection.
pub(crate) trait Protocol<I> {
    /// Serves, and is ready when the protocol or the client has ended the connection.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Failure>>;

    /// Does what the registry wants in the protocol's own way, or gives the order back, or another,
    /// for the connection to obey.
    fn follow(&mut self, order: Order, _cx: &mut Context<'_>) -> Option<Order> {
        Some(order)
    }

    /// The stream, into which is put back what was read from it and not understood; `None` after an
    /// upgrade.
    fn into_stream(self: Box<Self>) -> Option<Stream<I>>;
}

/// Why a protocol could not go on.
pub(crate) enum Failure {
    Hyper(hyper::Error),
    /// The client left, or an answer broke off.
    Stream(io::Error),
}

impl Failure {
    /// Whether what came is not HTTP/1.
    pub(crate) fn is_parse(&self) -> bool {
        matches!(self, Self::Hyper(error) if error.is_parse())
    }

    /// What hyper has answered to what is not HTTP/1.
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

/// Begins to serve a connection, anew after each rest.
pub(crate) trait StartProtocol<I> {
    fn start(
        &self,
        version: Version,
        stream: Stream<I>,
        state: &Arc<ConnState>,
    ) -> Box<dyn Protocol<I>>;
}
