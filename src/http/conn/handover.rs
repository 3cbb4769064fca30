//! How an open connection leaves this server for another one, and what a connection needs for it.

use std::pin::Pin;
use std::rc::Rc;

use bytes::Bytes;

use crate::http::conn::protocol::Begin;

/// What the connections of a front have in common.
pub(crate) struct Means<I> {
    pub(crate) http: Rc<dyn Begin<I>>,
    pub(crate) heir: Option<Rc<dyn Heir<I>>>,
}

/// Takes connections over when a server hands over, or shares.
pub(crate) trait Heir<I> {
    /// Takes a connection, with what was read from it and not answered. If it cannot, or not any
    /// more, it gives the connection back, from which these bytes are read again.
    fn take(self: Rc<Self>, io: I, read_ahead: Bytes) -> Taken<I>;
}

/// A connection on its way to an [`Heir`], which may be long.
pub(crate) type Taken<I> = Pin<Box<dyn Future<Output = Result<(), I>>>>;
