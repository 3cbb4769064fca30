//! How an open connection leaves this server for another one, and what a connection needs for it.

use std::pin::Pin;
use std::rc::Rc;

use bytes::Bytes;

use crate::http::conn::protocol::StartProtocol;

/// What the connections of a front have in common.
pub(crate) struct Shared<I> {
    pub(crate) http: Rc<dyn StartProtocol<I>>,
    pub(crate) target: Option<Rc<dyn HandoverTarget<I>>>,
}

/// Takes connections over when a server hands over, or shares.
pub(crate) trait HandoverTarget<I> {
    /// Takes a connection, with what was read from it and not answered. If it cannot, or not any
    /// more, it gives the connection back, from which these bytes are read again.
    fn hand_over(self: Rc<Self>, io: I, read_ahead: Bytes) -> HandoverFuture<I>;
}

/// A connection on its way to a [`HandoverTarget`]. It may take long.
pub(crate) type HandoverFuture<I> = Pin<Box<dyn Future<Output = Result<(), I>>>>;
