//! The server: takes sockets, serves them, drains, hands over.

mod protocols;

use std::rc::Rc;

use self::protocols::Protocols;
use crate::http::conn::handover::{HandoverTarget, Shared};
use crate::http::conn::socket::Socket;
use crate::http::conn::task::ConnectionTask;
use crate::http::exchange::service::Handler;
use crate::http::options::Http;
use crate::http::registry::counters::Counts;
use crate::http::registry::list::Registry;
use crate::stats::WorkerStats;

/// Serves any number of connections, on the thread it is on. Clones are the same server.
#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) registry: Rc<Registry>,
}

/// A server's service at work on one kind of stream. Clones are the same.
pub(crate) struct Endpoint<I> {
    pub(crate) registry: Rc<Registry>,
    shared: Rc<Shared<I>>,
}

impl<I: Socket> Endpoint<I> {
    /// Serves one connection to its end. It counts as live from this call on; the future is to be
    /// spawned on this thread, and [`Server::clock`] is to run beside it.
    pub(crate) fn serve(&self, io: I) -> impl Future<Output = ()> + use<I> {
        ConnectionTask::new(self.registry.join(), Rc::clone(&self.shared), io)
    }

    /// With somebody who takes these streams over, in [`Server::hand_over`] and
    /// [`Server::share`]. Without, they stay.
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
    /// `stats` is where it counts.
    pub(crate) fn new(http: Http, stats: WorkerStats) -> Self {
        Self {
            registry: Registry::new(http, stats),
        }
    }

    /// Serves with this service.
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

    /// Drives every deadline; never ends. Run it once, beside the connections, and do not go on
    /// without it: if it panics, no client is timed out any more.
    pub(crate) fn clock(&self) -> impl Future<Output = ()> + use<> {
        let registry = Rc::clone(&self.registry);
        async move { registry.run_clock().await }
    }

    /// From now on each answer is its connection's last. Idle connections stay for
    /// [`Http::linger`], in which one more request is answered; then they are closed. Requests that
    /// are being served are finished, half-read heads keep their deadline.
    pub(crate) fn drain(&self) {
        self.registry.drain();
    }

    /// From now on each connection goes to its heir as soon as it is idle, at once or when it has
    /// answered what it is about. Those that cannot are drained, and so are the ones that an heir
    /// gives back. A [`Server::drain`] ends it.
    pub(crate) fn hand_over(&self) {
        self.registry.hand_over();
    }

    /// From now on so many connections go to their heirs, those that are busy: each as soon as it
    /// has been answered. What an heir gives back stays and is served.
    pub(crate) fn share(&self, connections: usize) {
        self.registry.share(connections);
    }

    /// Ends the connection that has been idle longest, if any is, with a GOAWAY in HTTP/2. A busy
    /// one is never ended.
    pub(crate) fn evict_idle(&self) {
        self.registry.evict_idle();
    }

    /// Resolves when no connection is left, upgraded ones included.
    pub(crate) fn drained(&self) -> impl Future<Output = ()> + use<> {
        let registry = Rc::clone(&self.registry);
        async move { registry.emptied().await }
    }

    /// Ends every connection, whatever it is doing, and says how many there were. They are gone
    /// when [`Server::drained`] resolves.
    pub(crate) fn cut(&self) -> usize {
        self.registry.cut()
    }

    /// How many connections are live.
    #[cfg(test)]
    pub(crate) fn connections(&self) -> usize {
        self.registry.len()
    }

    /// How many connections are served, being not at rest.
    #[cfg(test)]
    pub(crate) fn served(&self) -> usize {
        self.registry.served()
    }

    /// What has happened so far.
    pub(crate) fn counts(&self) -> Counts {
        self.registry.counters.get()
    }
}
