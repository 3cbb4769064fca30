//! Serves HTTP on the connections of a worker until it drains.

use std::future::pending;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::{JoinSet, spawn_local};
use tokio::time::{sleep, timeout};

use crate::drain::Idle;
use crate::error::{BoxError, Error};
use crate::http::{Acceptor, Endpoint, Http, IntoService, Secure, Server, Tls};
use crate::protocol::channel::SHARE_TERM;
use crate::proxy::Network;
use crate::stats::Count;
use crate::sys::clock;
use crate::worker::connection::Connection;
use crate::worker::first_of::first_of;
use crate::worker::incoming::{Incoming, LimitWatch};
use crate::worker::outgoing::Outgoing;
use crate::worker::sharing::Shares;
use crate::worker::{Worker, background, recycle};

/// While a new connection waits at the limit of open connections, the server looks for an idle one
/// to close at this interval.
const EVICTION_INTERVAL: Duration = Duration::from_millis(100);

/// The settings of the builder for HTTP.
pub(crate) struct Serving {
    pub(crate) http: Http,
    pub(crate) tls: Option<Tls>,
    /// Connections from these networks begin with a PROXY header.
    pub(crate) balancers: Vec<Network>,
    /// After this many requests the worker asks to be replaced.
    pub(crate) max_requests: Option<u64>,
}

impl Serving {
    /// Makes the service from `app`, then serves requests with it until the worker drains.
    pub(crate) async fn serve<A, S, Kind>(
        self,
        app: A,
        worker: Worker,
        incoming: Incoming,
    ) -> Result<(), BoxError>
    where
        A: AsyncFnOnce(Worker) -> Result<S, BoxError>,
        S: IntoService<Kind>,
    {
        let Self {
            http,
            tls,
            balancers,
            max_requests,
        } = self;
        // TLS errors are reported before `app` runs, which may take long.
        let acceptor = tls.map(|tls| acceptor(tls, &http, &worker)).transpose()?;
        worker.enter_sandbox()?;
        let Some(service) = while_wanted(app(worker.clone()), &worker, &incoming).await else {
            return Ok(());
        };
        let service = service?.into_service();
        let server = Server::new(http, worker.stats().clone());
        if let Some(max) = max_requests {
            let counted = server.clone();
            let requests = move || counted.count(Count::Requests);
            spawn_local(recycle::by_requests(worker.clone(), max, requests));
        }
        let connections = Connections {
            incoming,
            balancers,
        };
        match acceptor {
            Some(acceptor) => {
                let endpoint = server.endpoint(service);
                serve_tls(server, endpoint, acceptor, worker, connections).await;
            }
            None => {
                let endpoint = server.endpoint(service);
                serve_plain(server, endpoint, worker, connections).await;
            }
        }
        Ok(())
    }
}

/// The output of `start`. `None` if the worker is asked to drain earlier and no connection waits: a
/// start that tries again and again does not delay the end.
async fn while_wanted<T>(
    start: impl Future<Output = T>,
    worker: &Worker,
    incoming: &Incoming,
) -> Option<T> {
    let unwanted = async {
        worker.drain_asked().asked().await;
        if incoming.is_waited_for() {
            pending().await
        }
        None
    };
    first_of(async { Some(start.await) }, unwanted).await
}

/// The connections of a worker.
pub(crate) struct Connections {
    pub(crate) incoming: Incoming,
    /// Connections from these networks begin with a PROXY header.
    pub(crate) balancers: Vec<Network>,
}

impl Connections {
    /// Calls `serve` with each connection, until the worker drains.
    async fn for_each(mut self, serve: Serve) {
        while let Some(mut connection) = self.incoming.accept().await {
            let peer = connection.peer();
            if self.balancers.iter().any(|from| from.contains(peer)) {
                connection.expect_header();
            }
            serve(connection);
        }
    }
}

/// Closes all connections when it is dropped, and logs the counts of the worker.
struct CutOnDrop(Server);

impl Drop for CutOnDrop {
    fn drop(&mut self) {
        self.0.cut();
        tracing::debug!(requests = self.0.count(Count::Requests), "worker served");
    }
}

/// Starts to serve a connection.
type Serve = Box<dyn Fn(Connection)>;

// From here on nothing is generic in the service, so that it is compiled once.

/// Serves connections without TLS until the worker drains.
pub(crate) async fn serve_plain(
    server: Server,
    mut endpoint: Endpoint<Connection>,
    worker: Worker,
    connections: Connections,
) {
    if let Some(outgoing) = outgoing(&server, &worker) {
        endpoint = endpoint.with_handover_target(outgoing);
    }
    let serve = Box::new(move |connection| {
        spawn_local(endpoint.serve(connection));
    });
    serve_incoming(server, serve, worker, connections).await;
}

/// Where connections go when the worker drains, and before that to less busy workers.
fn outgoing(server: &Server, worker: &Worker) -> Option<Rc<Outgoing>> {
    let outgoing = Rc::new(worker.outgoing()?);
    spawn_local(share(server.clone(), worker.shares(), Rc::clone(&outgoing)));
    Some(outgoing)
}

/// Serves connections with TLS until the worker drains, and redirects those without.
async fn serve_tls(
    server: Server,
    mut endpoint: Endpoint<Secure<Connection>>,
    acceptor: Acceptor,
    worker: Worker,
    connections: Connections,
) {
    if let Some(outgoing) = outgoing(&server, &worker) {
        endpoint = endpoint.with_handover_target(acceptor.handover_target(outgoing));
    }
    let redirect = Arc::clone(&worker.redirect);
    let redirecting = server.endpoint(Arc::clone(&redirect).service(server.clone()));
    let serve = Box::new(move |connection: Connection| {
        match redirect.covers(connection.local()) {
            true => spawn_local(redirecting.serve(connection)),
            false => spawn_local(endpoint.serve(acceptor.accept(connection))),
        };
    });
    serve_incoming(server, serve, worker, connections).await;
}

/// Serves incoming connections until the worker drains, then those that are open until they end.
async fn serve_incoming(server: Server, serve: Serve, worker: Worker, connections: Connections) {
    let mut tasks = JoinSet::new();
    tasks.spawn_local(server.clock());
    let _cut = CutOnDrop(server.clone());
    tasks.spawn_local(evict_idle(
        server.clone(),
        connections.incoming.limit_watch(),
    ));
    let (draining, asked, closing) = (server.clone(), worker.drain_asked(), worker.closing());
    tasks.spawn_local(async move {
        if asked.asked().await == Idle::HandOver {
            draining.hand_over();
        }
        closing.await;
        draining.drain();
    });
    let serve = async move {
        connections.for_each(serve).await;
        server.drained().await;
    };
    background::run_with(tasks, serve).await;
}

/// Closes idle connections while new ones wait at the limit of open connections.
async fn evict_idle(server: Server, limit: LimitWatch) {
    loop {
        limit.connection_waits().await;
        while limit.is_waiting() {
            server.evict_idle();
            // A connection still waits if another one came, or if no connection could be closed:
            // all were busy, or the chosen one became busy.
            let _: Result<(), _> = timeout(EVICTION_INTERVAL, limit.connection_waits()).await;
        }
    }
}

/// Hands connections over to less busy workers, in the numbers that the master sends.
async fn share(server: Server, shares: Shares, outgoing: Rc<Outgoing>) {
    loop {
        let connections = outgoing.share(shares.next().await);
        server.share(connections, clock::of_this_thread);
        sleep(SHARE_TERM).await;
        server.share(outgoing.share(Vec::new()), clock::of_this_thread);
    }
}

/// Makes the TLS acceptor from the keys and files of the worker.
fn acceptor(mut tls: Tls, http: &Http, worker: &Worker) -> Result<Acceptor, Error> {
    let keys = worker.tls().keys(tls.key_lifetime())?;
    tls.use_files(&worker.tls().files()?);
    tls.acceptor(http, move || keys.keyring(), worker.stats().clone())
}
