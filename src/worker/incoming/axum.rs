//! `Incoming` as axum's listener, for `axum::serve` in `run`.

use std::io;

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};

use crate::address::{Address, Peer};
use crate::worker::connection::Connection;
use crate::worker::incoming::Incoming;

impl Listener for Incoming {
    type Io = Connection;
    type Addr = Peer;

    /// Stays pending after the last connection. To end axum when the worker drains, use
    /// `with_graceful_shutdown(worker.drain())`.
    async fn accept(&mut self) -> (Connection, Self::Addr) {
        match Incoming::accept(self).await {
            Some(connection) => {
                let peer = connection.peer();
                (connection, peer)
            }
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        match &self.queue.address {
            Some(Address::Tcp(address)) => Ok(Peer::Tcp(*address)),
            _ => Ok(Peer::Unix),
        }
    }
}

/// So that `router.into_make_service_with_connect_info::<Peer>()` works.
impl Connected<IncomingStream<'_, Incoming>> for Peer {
    fn connect_info(stream: IncomingStream<'_, Incoming>) -> Self {
        *stream.remote_addr()
    }
}
