//! Hand-over of an open connection to another server, and what the connections of one endpoint
//! share.

use std::pin::Pin;
use std::rc::Rc;

use crate::http::conn::protocol::StartProtocol;
use crate::moved::Moved;

/// Shared by all connections of one endpoint.
pub(crate) struct Shared<I> {
    pub(crate) http: Rc<dyn StartProtocol<I>>,
    pub(crate) target: Option<Rc<dyn HandoverTarget<I>>>,
}

/// Takes connections over from a server that hands over or shares.
pub(crate) trait HandoverTarget<I> {
    /// Takes a connection, with what moves together with its socket. If it cannot take the
    /// connection, it gives the connection back. Then the socket has all this again.
    fn hand_over(self: Rc<Self>, io: I, moved: Moved) -> HandoverFuture<I>;
}

/// Resolves when a [`HandoverTarget`] has taken the connection or gives it back. This may take
/// long.
pub(crate) type HandoverFuture<I> = Pin<Box<dyn Future<Output = Result<(), I>>>>;
