//! The connections of a worker, and what comes before HTTP on them.

use tokio::task::yield_now;

use crate::http::Acceptor;
use crate::proxy::Network;
use crate::worker::connection::Connection;
use crate::worker::incoming::Incoming;

/// After so many new connections those that are open go first: a crowd that arrives at once would
/// have them wait until each of it was accepted and answered.
const ACCEPTED_IN_A_ROW: u32 = 16;

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
        let mut in_a_row = 0;
        while let Some(mut connection) = self.incoming.accept().await {
            let peer = connection.peer();
            if self.balancers.iter().any(|from| from.contains(peer)) {
                connection.expect_header();
            }
            begin(connection);
            in_a_row += 1;
            if in_a_row == ACCEPTED_IN_A_ROW {
                in_a_row = 0;
                // Until the event loop has gone round: what has come for others is served first.
                yield_now().await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::net::{TcpListener, TcpStream};

    use tokio::runtime::{Builder, LocalOptions};
    use tokio::task::spawn_local;

    use super::*;
    use crate::row::Row;
    use crate::worker::incoming::Queue;

    const CROWD: u32 = 3 * ACCEPTED_IN_A_ROW;

    thread_local! {
        static ACCEPTED: Cell<u32> = const { Cell::new(0) };
    }

    async fn accept_a_crowd() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        listener.set_nonblocking(true).expect("it is open");
        let connect = |_| TcpStream::connect(address).expect("it listens");
        let _crowd: Vec<_> = (0..CROWD).map(connect).collect();
        let queue = Queue::new(vec![listener.into()], None, 1000, Row::own()).expect("a runtime");
        let connections = Connections {
            incoming: Incoming::new(queue),
            balancers: Vec::new(),
            acceptor: None,
        };
        spawn_local(connections.each(|_| ACCEPTED.set(ACCEPTED.get() + 1)));
        let mut before = 0;
        while before < CROWD {
            // The event loop goes round.
            yield_now().await;
            let now = ACCEPTED.get();
            assert!(
                now - before <= ACCEPTED_IN_A_ROW,
                "{} at once",
                now - before
            );
            before = now;
        }
    }

    #[test]
    fn a_crowd_lets_others_go_first() {
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build_local(LocalOptions::default());
        runtime.expect("a runtime").block_on(accept_a_crowd());
    }
}
