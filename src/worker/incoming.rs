//! Accepts connections from the listeners and inboxes of the worker's slot and of adopted slots.

#[cfg(feature = "axum")]
mod axum;
pub(super) mod failures;
mod limits;
#[cfg(test)]
mod tests;

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::{coop, yield_now};
use tokio::time::Sleep;

use self::failures::AcceptFailures;
pub(crate) use self::limits::{LimitWatch, connections_max};
use crate::address::{Address, Peer};
use crate::drain::Idle;
use crate::id::Slot;
use crate::protocol::channel::SiblingEnds;
use crate::stats::WorkerStats;
use crate::worker::clients::Clients;
use crate::worker::connection::Connection;
use crate::worker::heartbeat;
use crate::worker::placing::Placing;
use crate::worker::source::{Accepted, Origin, Source, is_exhausted, is_of_connection};

/// How long the worker accepts nothing after the process or the system has run out of descriptors
/// or memory, and nothing from a source that fails otherwise. The former pause ends at once when a
/// connection closes.
const PAUSE: Duration = Duration::from_millis(100);

/// After this many new connections the open ones are served first. Otherwise many connections that
/// arrive at once would delay them until all were accepted and their first requests answered.
const ACCEPTED_IN_A_ROW: usize = 16;

/// The incoming connections of a worker: new ones, and those that another worker of
/// [`Prefork::serve`](crate::Prefork::serve) hands over. Both are used in the same way. New ones
/// may have been accepted by a worker that had more open connections: see
/// [`Balance`](crate::Balance).
///
/// The connections end when the worker drains and the queues are empty. Poll this from one task
/// only. The first poll makes the worker ready for the master, so finish all setup before it.
///
/// There are three ways to get the connections:
/// - [`accept`](Self::accept);
/// - a [`Stream`](futures_core::Stream) of `io::Result<Connection>` that never yields an error,
///   for servers that take a stream (tonic's own with the feature `tonic`);
/// - with the feature `axum`, `axum::serve::Listener`.
///
/// ```no_run
/// use prefork_server::{Exit, Prefork};
/// use tonic::transport::Server;
///
/// fn main() -> Exit {
///     let ended = Prefork::bind("127.0.0.1:50051").run(async |worker, incoming| {
///         let (_reporter, health) = tonic_health::server::health_reporter();
///         let server = Server::builder().add_service(health);
///         Ok(server.serve_with_incoming_shutdown(incoming, worker.drain()).await?)
///     });
///     ended.into()
/// }
/// ```
pub struct Incoming {
    queue: Arc<Queue>,
    in_a_row: usize,
}

/// State that the worker's tasks share with every open connection. One thread runs them all, but
/// servers such as axum require an [`Incoming`] that can move to another thread, hence the mutex.
#[derive(Debug)]
pub(crate) struct Queue {
    state: Mutex<State>,
    active: AtomicUsize,
    max_connections: usize,
    accepting: AtomicBool,
    first_poll: Notify,
    first_came: Notify,
    last_went: Notify,
    waits_at_limit: Notify,
    stats: WorkerStats,
    /// The local address that `axum::serve::Listener` returns.
    #[cfg_attr(
        not(feature = "axum"),
        expect(dead_code, reason = "only axum reads it")
    )]
    address: Option<Address>,
}

#[derive(Debug)]
struct State {
    sources: Vec<Source>,
    /// Index of the source to ask first, so that no source starves the others.
    next: usize,
    draining: bool,
    /// Set while the worker accepts nothing, because of an error that [`is_exhausted`].
    pause: Option<Pin<Box<Sleep>>>,
    failures: AcceptFailures,
    waker: Option<Waker>,
    /// `None` if clients are not limited.
    clients: Option<Clients>,
    placing: Placing,
    stats: WorkerStats,
}

impl Incoming {
    pub(crate) fn new(queue: Arc<Queue>) -> Self {
        Self { queue, in_a_row: 0 }
    }

    /// Returns the next connection; `None` once the worker drains and the queues are empty.
    ///
    /// While the worker is at its limit of open connections
    /// ([`Prefork::max_connections`](crate::Prefork::max_connections)), it accepts none; new ones
    /// wait in the kernel's queue. When descriptors run out, this waits and returns no error. After
    /// every 16 connections it yields once to the event loop, so that many new connections do not
    /// delay the open ones.
    ///
    /// No connection is lost when the future is dropped before it is ready.
    pub async fn accept(&mut self) -> Option<Connection> {
        if self.in_a_row == ACCEPTED_IN_A_ROW {
            self.in_a_row = 0;
            yield_now().await;
        }
        let connection = poll_fn(|cx| self.poll_accept(cx)).await;
        self.in_a_row += 1;
        connection
    }

    /// Reports new connections that wait because the worker is at its limit.
    pub(crate) fn limit_watch(&self) -> LimitWatch {
        LimitWatch(Arc::clone(&self.queue))
    }

    /// Whether a connection waits to be accepted.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.queue.state().sources.iter().any(Source::is_waiting)
    }

    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<Option<Connection>> {
        self.queue.poll_accept(cx)
    }
}

impl fmt::Debug for Incoming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Incoming")
            .field("active", &self.queue.active())
            .finish_non_exhaustive()
    }
}

impl futures_core::Stream for Incoming {
    type Item = io::Result<Connection>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_accept(cx).map(|connection| connection.map(Ok))
    }
}

impl Queue {
    /// Takes the listeners and the inbox of the worker's own slot. Must be called inside a runtime.
    pub(crate) fn new(
        listeners: Vec<OwnedFd>,
        inbox: Option<OwnedFd>,
        max_connections: usize,
        clients: Option<Clients>,
        stats: WorkerStats,
    ) -> io::Result<Arc<Self>> {
        let sources = sources(listeners, inbox, None)?;
        let address = sources.iter().find_map(Source::address).cloned();
        let state = State {
            sources,
            next: 0,
            draining: false,
            pause: None,
            failures: AcceptFailures::default(),
            waker: None,
            clients,
            placing: Placing::new(stats.clone()),
            stats: stats.clone(),
        };
        Ok(Arc::new(Self {
            state: Mutex::new(state),
            active: AtomicUsize::new(0),
            max_connections,
            accepting: AtomicBool::new(false),
            first_poll: Notify::new(),
            first_came: Notify::new(),
            last_went: Notify::new(),
            waits_at_limit: Notify::new(),
            stats,
            address,
        }))
    }

    /// Resolves at the first poll for a connection.
    pub(crate) async fn accepting(&self) {
        while !self.is_accepting() {
            self.first_poll.notified().await;
        }
    }

    pub(crate) fn is_accepting(&self) -> bool {
        self.accepting.load(Ordering::Relaxed)
    }

    /// Number of listeners of the worker's own slot.
    pub(crate) fn own_listeners(&self) -> usize {
        let state = self.state();
        let all = state.sources.iter();
        let own = all.filter(|source| source.adopted.is_none());
        own.filter(|source| !source.is_inbox()).count()
    }

    pub(crate) fn adopt(
        &self,
        slot: Slot,
        inbox: OwnedFd,
        listeners: Vec<OwnedFd>,
    ) -> io::Result<()> {
        let mut adopted = sources(listeners, Some(inbox), Some(slot))?;
        let mut state = self.state();
        // It has those that all slots share, and of its own slot all that are not new.
        adopted.retain(|source| !state.sources.iter().any(|known| known.is_same(source)));
        if state.draining {
            // A connection that is handed over now would be closed at once.
            adopted.retain(|source| !source.is_inbox());
        }
        state.sources.extend(adopted);
        state.wake();
        Ok(())
    }

    /// Removes the sources of an adopted slot. Its own worker accepts what is left in their queues.
    pub(crate) fn release(&self, slot: Slot) {
        self.state()
            .sources
            .retain(|source| source.adopted != Some(slot));
    }

    /// From now on these workers, and no others, may get new connections.
    pub(crate) fn set_siblings(&self, siblings: Vec<SiblingEnds>) {
        let mut state = self.state();
        if !state.draining {
            state.placing.set_siblings(siblings);
            state.wake();
        }
    }

    /// From now on, accepts only the connections that are in the queues. With [`Idle::HandOver`]
    /// the inbox stays for the slot's next worker.
    pub(crate) fn drain(&self, idle: Idle) {
        let mut state = self.state();
        if !state.draining {
            state.draining = true;
            state
                .sources
                .retain(|source| idle == Idle::Close || !source.is_inbox());
            let placed = state.placing.end(idle);
            state.sources.splice(..0, placed);
            state.sources.iter_mut().for_each(Source::count);
        }
        state.wake();
    }

    /// Number of open connections.
    pub(crate) fn active(&self) -> usize {
        self.active.load(Ordering::Relaxed)
    }

    /// Resolves when a connection is open.
    pub(crate) async fn occupied(&self) {
        while self.active() == 0 {
            self.first_came.notified().await;
        }
    }

    /// Resolves when no connection is open.
    pub(crate) async fn vacated(&self) {
        while self.active() > 0 {
            self.last_went.notified().await;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn poll_accept(self: &Arc<Self>, cx: &mut Context<'_>) -> Poll<Option<Connection>> {
        if !self.accepting.swap(true, Ordering::Relaxed) {
            self.first_poll.notify_one();
        }
        let mut state = self.state();
        state.waker = Some(cx.waker().clone());
        if self.active() >= self.max_connections {
            if state.draining && state.is_emptied() {
                return Poll::Ready(None);
            }
            if !state.draining && state.poll_waiting(cx).is_ready() {
                self.waits_at_limit.notify_one();
            }
            return Poll::Pending;
        }
        if let Some(pause) = &mut state.pause {
            if pause.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            // Connections wait, and without an open connection no other code writes a heartbeat.
            heartbeat::stamp(&self.stats);
            state.pause = None;
        }
        if state.draining {
            let queued = state.poll_queued(cx);
            return queued
                .map(|accepted| accepted.map(|accepted| self.admit(&mut state, accepted)));
        }
        let accepted = ready!(state.poll_sources(cx));
        Poll::Ready(Some(self.admit(&mut state, accepted)))
    }

    fn admit(self: &Arc<Self>, state: &mut State, accepted: Accepted) -> Connection {
        let Accepted {
            stream,
            peer,
            local,
            moved,
            forwarded,
            origin,
        } = accepted;
        if self.active.fetch_add(1, Ordering::Relaxed) == 0 {
            // The handler may block before the heartbeat's task runs. Who sees the connection must
            // see this heartbeat.
            heartbeat::stamp(&self.stats);
            self.first_came.notify_one();
        }
        self.stats.connection_begins(origin.count());
        if let Some(clients) = &mut state.clients {
            clients.begin(peer);
        }
        let admission = Admission {
            queue: Arc::clone(self),
            peer,
        };
        let mut connection = Connection::new(stream, local, admission);
        if origin == Origin::Worker {
            connection.take_over(forwarded, moved);
        }
        connection
    }
}

/// Counts an open connection until it is dropped.
#[derive(Debug)]
pub(crate) struct Admission {
    queue: Arc<Queue>,
    pub(super) peer: Peer,
}

impl Admission {
    pub(super) fn counts_for_client(&self) -> bool {
        let state = self.queue.state();
        let clients = state.clients.as_ref();
        clients.is_some_and(|clients| clients.are_limited(self.peer))
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        let before = self.queue.active.fetch_sub(1, Ordering::Relaxed);
        self.queue.stats.connection_ends();
        if before == 1 {
            self.queue.last_went.notify_one();
        }
        let mut state = self.queue.state();
        if let Some(clients) = &mut state.clients {
            clients.end(self.peer);
        }
        if before >= self.queue.max_connections {
            state.wake();
            return;
        }
        if state.pause.take().is_some() {
            state.wake();
        }
    }
}

impl State {
    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    fn poll_sources(&mut self, cx: &mut Context<'_>) -> Poll<Accepted> {
        while let Poll::Ready(accepted) = self.placing.poll_taken_back(cx) {
            if !self.refuses(&accepted) {
                return Poll::Ready(accepted);
            }
        }
        let (first, count) = (self.next, self.sources.len());
        for at in (0..count).map(|turn| (first + turn) % count) {
            loop {
                match self.sources[at].poll_accept(cx) {
                    Poll::Pending => break,
                    Poll::Ready(Ok(accepted)) => {
                        self.placing.note_taken(&accepted);
                        if self.refuses(&accepted) {
                            continue;
                        }
                        self.next = at + 1;
                        if let Some(accepted) = self.placing.place(accepted, cx) {
                            return Poll::Ready(accepted);
                        }
                    }
                    Poll::Ready(Err(error)) if is_of_connection(&error) => {
                        tracing::debug!(%error, "a connection was lost before it was accepted");
                    }
                    Poll::Ready(Err(error)) if is_exhausted(&error) => {
                        return self.pause(&error, cx);
                    }
                    Poll::Ready(Err(error)) => {
                        self.failures.warn(&error, "accepting from one source");
                        self.sources[at].rest(PAUSE);
                    }
                }
            }
        }
        Poll::Pending
    }

    fn pause<T>(&mut self, error: &io::Error, cx: &mut Context<'_>) -> Poll<T> {
        self.failures.warn(error, "accepting");
        let mut pause = Box::pin(tokio::time::sleep(PAUSE));
        // Registers the waker. The pause cannot be over yet.
        let _ = pause.as_mut().poll(cx);
        self.pause = Some(pause);
        Poll::Pending
    }

    /// For a worker that drains and is at its limit: removes each source from which it has accepted
    /// as many connections as waited when the drain began, and returns whether none is left. Later
    /// connections do not count, because a busy server's queue is never empty.
    fn is_emptied(&mut self) -> bool {
        self.sources.retain(|source| source.waiting > 0);
        self.sources.is_empty()
    }

    /// Accepts by a system call at once, because the runtime may not know the newest connections.
    fn poll_queued(&mut self, cx: &mut Context<'_>) -> Poll<Option<Accepted>> {
        while let Some(source) = self.sources.last_mut() {
            // A hostile worker may send what is lost here as fast as it is taken.
            ready!(coop::poll_proceed(cx)).made_progress();
            match source.accept_queued() {
                Ok(Some(accepted)) => {
                    source.waiting = source.waiting.saturating_sub(1);
                    self.placing.note_taken(&accepted);
                    return Poll::Ready(Some(accepted));
                }
                Err(error) if is_of_connection(&error) => {}
                Ok(None) => drop(self.sources.pop()),
                // Without a free descriptor accept(2) fails also if no connection waits.
                Err(error) if is_exhausted(&error) && !source.is_waiting() => {
                    self.sources.pop();
                }
                // Open connections free descriptors and memory when they end.
                Err(error) if is_exhausted(&error) => return self.pause(&error, cx),
                Err(error) => {
                    tracing::warn!(%error, "connections in the queue could not be accepted");
                    self.sources.pop();
                }
            }
        }
        Poll::Ready(None)
    }
}

fn sources(
    listeners: Vec<OwnedFd>,
    inbox: Option<OwnedFd>,
    adopted: Option<Slot>,
) -> io::Result<Vec<Source>> {
    let listeners = listeners
        .into_iter()
        .map(|fd| Source::listener(fd, adopted));
    let inbox = inbox.map(|fd| Source::inbox(fd, adopted));
    // A drain takes the sources from the end of the list, so the inbox comes last: other workers
    // may still hand connections over for a moment.
    inbox.into_iter().chain(listeners).collect()
}
