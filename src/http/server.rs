//! The server: takes sockets, serves them, drains, hands over.

mod protocols;

use std::rc::Rc;
use std::time::Duration;

use http::StatusCode;

use self::protocols::Protocols;
use crate::http::conn::handover::{HandoverTarget, Shared};
use crate::http::conn::socket::Socket;
use crate::http::conn::task::ConnectionTask;
use crate::http::exchange::message::Request;
use crate::http::exchange::service::Handler;
use crate::http::options::Http;
use crate::http::registry::list::Registry;
use crate::http::registry::request_ids::REQUEST_ID;
use crate::stats::{Count, WorkerStats};

/// Serves any number of connections on its thread. Clones are the same server.
#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) registry: Rc<Registry>,
}

/// A server with a service, for one type of stream. Clones are the same.
pub(crate) struct Endpoint<I> {
    pub(crate) registry: Rc<Registry>,
    shared: Rc<Shared<I>>,
}

impl<I: Socket> Endpoint<I> {
    /// Serves one connection to its end. The connection counts as open from this call on. Spawn the
    /// future on this thread, and run [`Server::clock`] beside it.
    pub(crate) fn serve(&self, io: I) -> impl Future<Output = ()> + use<I> {
        ConnectionTask::new(self.registry.join(), Rc::clone(&self.shared), io)
    }

    /// Sets the target of [`Server::hand_over`] and [`Server::share`]. Without a target,
    /// connections stay.
    pub(crate) fn with_handover_target(mut self, target: Rc<dyn HandoverTarget<I>>) -> Self {
        self.shared = Rc::new(Shared {
            http: Rc::clone(&self.shared.http),
            target: Some(target),
        });
        self
    }
}

impl<I> Clone for Endpoint<I> {
    fn clone(&self) -> Self {
        Self {
            registry: Rc::clone(&self.registry),
            shared: Rc::clone(&self.shared),
        }
    }
}

impl Server {
    /// The server counts in `stats`.
    pub(crate) fn new(http: Http, stats: WorkerStats) -> Self {
        Self {
            registry: Registry::new(http, stats),
        }
    }

    /// Makes an endpoint with this service.
    pub(crate) fn endpoint<I, S>(&self, service: S) -> Endpoint<I>
    where
        I: Socket,
        S: Handler,
    {
        let shared = Shared {
            http: Rc::new(Protocols::new(&self.registry, service)),
            target: None,
        };
        Endpoint {
            registry: Rc::clone(&self.registry),
            shared: Rc::new(shared),
        }
    }

    /// Drives every deadline. It never ends. Run it once, beside the connections. If it panics, end
    /// the server: no client is timed out any more.
    pub(crate) fn clock(&self) -> impl Future<Output = ()> + use<> {
        let registry = Rc::clone(&self.registry);
        async move { registry.run_clock().await }
    }

    /// From now on each response is the last one of its connection. Idle connections stay open for
    /// [`Http::linger`], in which one more request is answered; then they are closed. Requests that
    /// are being served are finished. Incomplete heads keep their deadline.
    pub(crate) fn drain(&self) {
        self.registry.drain();
    }

    /// From now on each connection goes to the handover target as soon as it is idle: at once, or
    /// when its response is sent. Connections that cannot be handed over, or that the target gives
    /// back, are drained. A [`Server::drain`] ends the hand-over.
    pub(crate) fn hand_over(&self) {
        self.registry.hand_over();
    }

    /// From now on this many busy connections go to the handover target, each as soon as its
    /// response is sent. A connection that takes most of the time stays, and so does one that the
    /// target gives back. `clock` tells the CPU time of this thread.
    pub(crate) fn share(&self, connections: usize, clock: fn() -> Duration) {
        self.registry.share(connections, clock);
    }

    /// Ends the connection that has been idle longest, if there is an idle one; in HTTP/2 with a
    /// GOAWAY. A busy connection is never ended.
    pub(crate) fn evict_idle(&self) {
        self.registry.evict_idle();
    }

    /// Reports a request that got a response with this status before it reached the app.
    pub(crate) fn report_refused(&self, status: StatusCode, request: Request) {
        let Registry {
            request_ids, http, ..
        } = &*self.registry;
        let (head, body) = request.into_parts();
        let ids = request_ids.as_ref();
        let id = ids.and_then(|_| head.headers.get(REQUEST_ID));
        let connection = body.connection();
        http.on_refused.report(status, connection, Some(&head), id);
    }

    /// Resolves when no connection is left, upgraded ones included.
    pub(crate) fn drained(&self) -> impl Future<Output = ()> + use<> {
        let registry = Rc::clone(&self.registry);
        async move { registry.emptied().await }
    }

    /// Ends every connection in any state, and returns how many there were. They are gone when
    /// [`Server::drained`] resolves.
    pub(crate) fn cut(&self) -> usize {
        self.registry.cut()
    }

    /// How many connections are open.
    #[cfg(test)]
    pub(crate) fn connections(&self) -> usize {
        self.registry.len()
    }

    /// How many connections are served, and not at rest.
    #[cfg(test)]
    pub(crate) fn served(&self) -> usize {
        self.registry.served()
    }

    /// One of the counters so far.
    pub(crate) fn count(&self, count: Count) -> u64 {
        self.registry.counters.stats().count(count)
    }
}
