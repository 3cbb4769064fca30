//! The connections of a worker: from its own slot's listeners and inbox, and from those it has
//! adopted.

mod limits;

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
use tokio::task::yield_now;
use tokio::time::Sleep;

pub(crate) use self::limits::LimitWatch;
use crate::address::Address;
use crate::address::Peer;
use crate::drain::Idle;
use crate::id::Slot;
use crate::stats::WorkerStats;
use crate::worker::clients::Clients;
use crate::worker::connection::Connection;
use crate::worker::heartbeat;
use crate::worker::source::{Accepted, Origin, Source, is_exhausted, is_of_connection};

/// How long accepting rests when the process or the system has run out of descriptors or memory.
/// A connection that closes ends the rest at once.
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(100);

/// After so many new connections those that are open go first: a crowd that arrives at once would
/// have them wait until each of it was accepted and answered.
const ACCEPTED_IN_A_ROW: usize = 16;

/// The connections that come in to a worker: new ones, and those that another worker of
/// [`Prefork::serve`](crate::Prefork::serve) hands over, which are like any other.
///
/// It ends when the worker drains and the queues are empty. It can be polled from one place only;
/// the first poll tells the master that the worker is ready, so set up before it.
///
/// Three shapes of one thing: [`accept`](Self::accept); a [`Stream`](futures_core::Stream) of
/// `io::Result<Connection>` that never yields an error, for servers that take one (tonic's wants
/// its trait `Connected` on a wrapper of yours around each connection); and, with the feature
/// `axum`, `axum::serve::Listener`.
pub struct Incoming {
    queue: Arc<Queue>,
    in_a_row: usize,
}

/// What the worker's tasks and every open connection share. A mutex, though one thread runs them
/// all, because servers such as axum want to move an [`Incoming`] between threads.
#[derive(Debug)]
pub(crate) struct Queue {
    state: Mutex<State>,
    active: AtomicUsize,
    max_connections: usize,
    accepting: AtomicBool,
    first_poll: Notify,
    first_came: Notify,
    waits_at_limit: Notify,
    stats: WorkerStats,
    /// What [`Incoming`]'s axum face tells as its own address.
    #[cfg_attr(not(feature = "axum"), expect(dead_code, reason = "only axum asks"))]
    address: Option<Address>,
}

#[derive(Debug)]
struct State {
    sources: Vec<Source>,
    /// Where the next round begins, so that no source starves the others.
    next: usize,
    draining: bool,
    /// Runs while accepting rests after an error that is not [`is_of_connection`].
    pause: Option<Pin<Box<Sleep>>>,
    waker: Option<Waker>,
    /// `None` if clients are not limited.
    clients: Option<Clients>,
}

impl Incoming {
    pub(crate) fn new(queue: Arc<Queue>) -> Self {
        Self { queue, in_a_row: 0 }
    }

    /// The next connection; `None` once the worker drains and nothing waits in the queues.
    ///
    /// While the worker holds as many connections as it may
    /// ([`Prefork::max_connections`](crate::Prefork::max_connections)) it accepts none; they wait
    /// in the kernel's queue. Running out of descriptors is waited out too, never returned. After
    /// every sixteenth it yields until the event loop has gone round, so that a crowd that arrives
    /// does not keep those waiting who are there.
    ///
    /// Nothing is lost when the future is dropped before it is done.
    pub async fn accept(&mut self) -> Option<Connection> {
        if self.in_a_row == ACCEPTED_IN_A_ROW {
            self.in_a_row = 0;
            yield_now().await;
        }
        let connection = poll_fn(|cx| self.poll_accept(cx)).await;
        self.in_a_row += 1;
        connection
    }

    /// To hear of those that wait at the cap.
    pub(crate) fn limit_watch(&self) -> LimitWatch {
        LimitWatch(Arc::clone(&self.queue))
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

#[cfg(feature = "axum")]
impl axum::serve::Listener for Incoming {
    type Io = Connection;
    type Addr = Peer;

    /// Stays pending after the end: axum learns of the drain by
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

impl Queue {
    /// Takes over what is the slot's own. To be called inside the worker's runtime.
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
            waker: None,
            clients,
        };
        Ok(Arc::new(Self {
            state: Mutex::new(state),
            active: AtomicUsize::new(0),
            max_connections,
            accepting: AtomicBool::new(false),
            first_poll: Notify::new(),
            first_came: Notify::new(),
            waits_at_limit: Notify::new(),
            stats,
            address,
        }))
    }

    /// Resolves when somebody has begun to accept.
    pub(crate) async fn accepting(&self) {
        while !self.is_accepting() {
            self.first_poll.notified().await;
        }
    }

    pub(crate) fn is_accepting(&self) -> bool {
        self.accepting.load(Ordering::Relaxed)
    }

    /// How many listeners are the slot's own.
    pub(crate) fn own_listeners(&self) -> usize {
        let state = self.state();
        let own = state
            .sources
            .iter()
            .filter(|source| source.adopted.is_none());
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
        if state.draining {
            // Too late for what would have to be closed again at once.
            adopted.retain(|source| !source.is_inbox());
        }
        state.sources.extend(adopted);
        state.wake();
        Ok(())
    }

    /// What still waits in the released sources is its own worker's to take.
    pub(crate) fn release(&self, slot: Slot) {
        self.state()
            .sources
            .retain(|source| source.adopted != Some(slot));
    }

    /// From now on: what waits in the queues, then the end. What is handed over to the slot is the
    /// heir's, if there is one.
    pub(crate) fn drain(&self, idle: Idle) {
        let mut state = self.state();
        if !state.draining {
            state.draining = true;
            state
                .sources
                .retain(|source| idle == Idle::Close || !source.is_inbox());
            state.sources.iter_mut().for_each(Source::count);
        }
        state.wake();
    }

    /// How many connections are open.
    pub(crate) fn active(&self) -> usize {
        self.active.load(Ordering::Relaxed)
    }

    /// Resolves when a connection is open.
    pub(crate) async fn occupied(&self) {
        while self.active() == 0 {
            self.first_came.notified().await;
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
            // What waits in the queue is not forgotten, be there no connection to beat for.
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
            read_ahead,
            forwarded,
            origin,
        } = accepted;
        self.stats.connection_begins(origin.count());
        if self.active.fetch_add(1, Ordering::Relaxed) == 0 {
            // Its handler may block before the heartbeat's task has had a turn.
            heartbeat::stamp(&self.stats);
            self.first_came.notify_one();
        }
        if let Some(clients) = &mut state.clients {
            clients.begin(peer);
        }
        let admission = Admission {
            queue: Arc::clone(self),
            peer,
        };
        let mut connection = Connection::new(stream, local, admission);
        if origin == Origin::Worker {
            connection.take_over(forwarded, read_ahead);
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

impl Drop for Admission {
    fn drop(&mut self) {
        let before = self.queue.active.fetch_sub(1, Ordering::Relaxed);
        self.queue.stats.connection_ends();
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
        let count = self.sources.len();
        for turn in 0..count {
            let at = (self.next + turn) % count;
            loop {
                match self.sources[at].poll_accept(cx) {
                    Poll::Pending => break,
                    // It is closed at once: its client has enough of them.
                    Poll::Ready(Ok(accepted)) if self.refuses(&accepted) => {
                        tracing::debug!(peer = ?accepted.peer, "a client has too many connections");
                    }
                    Poll::Ready(Ok(accepted)) => {
                        self.next = at + 1;
                        return Poll::Ready(accepted);
                    }
                    // The client gave up while it waited.
                    Poll::Ready(Err(error)) if is_of_connection(&error) => {
                        tracing::debug!(%error, "a connection was lost");
                    }
                    Poll::Ready(Err(error)) => return self.rest(&error, cx),
                }
            }
        }
        Poll::Pending
    }

    fn rest<T>(&mut self, error: &io::Error, cx: &mut Context<'_>) -> Poll<T> {
        tracing::warn!(%error, "accepting rests for {EXHAUSTED_PAUSE:?}");
        let mut pause = Box::pin(tokio::time::sleep(EXHAUSTED_PAUSE));
        // Registers the waker; it cannot be over yet.
        let _ = pause.as_mut().poll(cx);
        self.pause = Some(pause);
        Poll::Pending
    }

    /// For a worker that drains and may accept no more for now: lets go of the sources that it has
    /// emptied once, and tells whether that was all. A busy server's queue is never empty; what
    /// came after the drain began is for others, or came too late.
    fn is_emptied(&mut self) -> bool {
        self.sources.retain(|source| source.waiting > 0);
        self.sources.is_empty()
    }

    /// Asks the kernel itself: the runtime may not yet have seen what came in a moment ago.
    fn poll_queued(&mut self, cx: &mut Context<'_>) -> Poll<Option<Accepted>> {
        while let Some(source) = self.sources.last_mut() {
            match source.accept_queued() {
                Ok(Some(accepted)) => {
                    source.waiting = source.waiting.saturating_sub(1);
                    return Poll::Ready(Some(accepted));
                }
                Err(error) if is_of_connection(&error) => {}
                Ok(None) => drop(self.sources.pop()),
                // What is being finished will give some back.
                Err(error) if is_exhausted(&error) => return self.rest(&error, cx),
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
    // A drain begins at the end of the list: others may be about to hand something over, which they
    // will not any more a moment later.
    inbox.into_iter().chain(listeners).collect()
}

#[cfg(test)]
mod tests {
    use std::net::{Shutdown, TcpListener, TcpStream};

    use tokio::time::timeout;

    use super::*;

    fn listener() -> TcpListener {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        listener.set_nonblocking(true).expect("it is open");
        listener
    }

    fn queue(listener: TcpListener) -> Arc<Queue> {
        Queue::new(vec![listener.into()], None, 1000, None, WorkerStats::own()).expect("a runtime")
    }

    #[tokio::test]
    async fn a_listener_that_somebody_shut_down_does_not_spin() {
        let listener = listener();
        // As `ss -K` does it from outside; accept(2) gives EINVAL from then on.
        socket2::SockRef::from(&listener)
            .shutdown(Shutdown::Both)
            .expect("it listens");
        let queue = queue(listener);
        let mut incoming = Incoming::new(Arc::clone(&queue));
        let pause = EXHAUSTED_PAUSE * 3;
        let ended = timeout(pause, incoming.accept()).await;
        assert!(ended.is_err(), "it waits");
        queue.drain(Idle::Close);
        assert!(incoming.accept().await.is_none());
    }

    #[tokio::test]
    async fn a_crowd_lets_others_go_first() {
        const CROWD: usize = 3 * ACCEPTED_IN_A_ROW;

        let listener = listener();
        let address = listener.local_addr().expect("it is bound");
        let connect = |_| TcpStream::connect(address).expect("it listens");
        let _crowd: Vec<_> = (0..CROWD).map(connect).collect();
        let mut incoming = Incoming::new(queue(listener));
        let accepted = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&accepted);
        tokio::spawn(async move {
            while incoming.accept().await.is_some() {
                counted.fetch_add(1, Ordering::Relaxed);
            }
        });
        let mut before = 0;
        while before < CROWD {
            // The event loop goes round.
            yield_now().await;
            let at_once = accepted.load(Ordering::Relaxed) - before;
            assert!(at_once <= ACCEPTED_IN_A_ROW, "{at_once} at once");
            before += at_once;
        }
    }
}
