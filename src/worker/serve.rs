//! HTTP on the connections of a worker, until its drain.

use crate::stats::Count;
use std::rc::Rc;
use std::time::Duration;

use tokio::task::{JoinSet, spawn_local};
use tokio::time::{sleep, timeout};

use crate::drain::Idle;
use crate::error::{BoxError, Error};
use crate::http::{Acceptor, Handler, Http, Server, Tls};
use crate::protocol::channel::SHARE_TERM;
use crate::proxy::Network;
use crate::worker::connection::Connection;
use crate::worker::incoming::{Incoming, LimitWatch};
use crate::worker::outgoing::Outgoing;
use crate::worker::sharing::Shares;
use crate::worker::{Worker, background, recycle};

/// How soon after all connections were busy an idle one is looked for, while a new one waits.
const EVICTION_INTERVAL: Duration = Duration::from_millis(100);

/// What the builder was told of it.
pub(crate) struct Serving {
    pub(crate) http: Http,
    pub(crate) tls: Option<Tls>,
    /// From where connections begin with a PROXY header.
    pub(crate) balancers: Vec<Network>,
    pub(crate) max_requests: Option<u64>,
}

impl Serving {
    /// Makes the service, and serves with it.
    pub(crate) async fn serve<A, S>(
        self,
        app: A,
        worker: Worker,
        incoming: Incoming,
    ) -> Result<(), BoxError>
    where
        A: AsyncFnOnce(Worker) -> Result<S, BoxError>,
        S: Handler,
    {
        let Self {
            http,
            tls,
            balancers,
            max_requests,
        } = self;
        // Before the app, which may take long to find out what else is wrong.
        let acceptor = tls.map(|tls| acceptor(tls, &http, &worker)).transpose()?;
        let service = app(worker.clone()).await?;
        let server = Server::new(http, worker.stats().clone());
        if let Some(max) = max_requests {
            let counted = server.clone();
            let answered = move || counted.count(Count::Requests);
            spawn_local(recycle::by_requests(worker.clone(), max, answered));
        }
        let connections = Connections {
            incoming,
            balancers,
            acceptor,
        };
        serve_incoming(server, service, worker, connections).await;
        Ok(())
    }
}

/// The connections of a worker, and what comes before HTTP on them.
struct Connections {
    incoming: Incoming,
    /// From where they begin with a PROXY header.
    balancers: Vec<Network>,
    /// If they are to be private.
    acceptor: Option<Acceptor>,
}

impl Connections {
    /// Until the drain.
    async fn each(mut self, begin: impl Fn(Connection)) {
        while let Some(mut connection) = self.incoming.accept().await {
            let peer = connection.peer();
            if self.balancers.iter().any(|from| from.contains(peer)) {
                connection.expect_header();
            }
            begin(connection);
        }
    }
}

/// Says at the end, however it comes, what a worker did, and ends what is still open.
struct Tally(Server);

impl Drop for Tally {
    fn drop(&mut self) {
        self.0.cut();
        tracing::debug!(requests = self.0.count(Count::Requests), "worker served");
    }
}

/// Serves HTTP on what comes in until the drain, and then what is open.
async fn serve_incoming<S>(server: Server, service: S, worker: Worker, mut connections: Connections)
where
    S: Handler,
{
    let mut tasks = JoinSet::new();
    tasks.spawn_local(server.clock());
    let _tally = Tally(server.clone());
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
        if let Some(acceptor) = connections.acceptor.take() {
            let front = server.endpoint(service);
            let begin = |connection| {
                spawn_local(front.serve(acceptor.accept(connection)));
            };
            connections.each(begin).await;
        } else {
            let mut front = server.endpoint(service);
            if let Some(outgoing) = worker.outgoing() {
                let outgoing = Rc::new(outgoing);
                spawn_local(share(server.clone(), worker.shares(), Rc::clone(&outgoing)));
                front = front.with_handover_target(outgoing);
            }
            let begin = |connection| {
                spawn_local(front.serve(connection));
            };
            connections.each(begin).await;
        }
        server.drained().await;
    };
    background::run_with(tasks, serve).await;
}

/// Ends idle connections for new ones that wait at the cap.
async fn evict_idle(server: Server, limit: LimitWatch) {
    loop {
        limit.connection_waits().await;
        while limit.is_waiting() {
            server.evict_idle();
            // Another waits, or all were busy. An idle one may have become busy after all.
            let _: Result<(), _> = timeout(EVICTION_INTERVAL, limit.connection_waits()).await;
        }
    }
}

/// Gives connections to siblings that have less to do, as the master says.
async fn share(server: Server, shares: Shares, outgoing: Rc<Outgoing>) {
    loop {
        server.share(outgoing.share(shares.next().await));
        sleep(SHARE_TERM).await;
        server.share(outgoing.share(Vec::new()));
    }
}

/// What a worker needs to speak TLS.
fn acceptor(mut tls: Tls, http: &Http, worker: &Worker) -> Result<Acceptor, Error> {
    let keys = worker.tls().keys(tls.key_lifetime())?;
    tls.use_files(&worker.tls().files()?);
    tls.acceptor(http, move || keys.keyring(), worker.stats().clone())
}
