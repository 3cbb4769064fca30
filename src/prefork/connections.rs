//! The connections of a worker, and what comes before HTTP on them.

use crate::http::Acceptor;
use crate::proxy::Network;
use crate::worker::connection::Connection;
use crate::worker::incoming::Incoming;

/// See the module's head.
pub(super) struct Connections {
    pub(super) incoming: Incoming,
    /// From where they begin with a PROXY header.
    pub(super) balancers: Vec<Network>,
    /// If they are to be private.
    pub(super) acceptor: Option<Acceptor>,
}

impl Connections {
    /// Until the drain.
    pub(super) async fn each(mut self, begin: impl Fn(Connection)) {
        while let Some(mut connection) = self.incoming.accept().await {
            let peer = connection.peer();
            if self.balancers.iter().any(|from| from.contains(peer)) {
                connection.expect_header();
            }
            begin(connection);
        }
    }
}
