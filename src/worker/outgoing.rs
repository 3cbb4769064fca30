//! Hands the connections of a worker over: to the slot's next worker when this one drains, and
//! before that to less busy workers.

use std::cell::OnceCell;
use std::future::{Future, poll_fn};
use std::io;
use std::os::fd::OwnedFd;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::io::unix::AsyncFd;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};

use crate::http::HandoverTarget;
use crate::moved::Moved;
use crate::protocol::inbox::{Note, Reason, Sender};
use crate::stats::{Count, WorkerStats};
use crate::worker::connection::Connection;
use crate::worker::drain::Drain;
use crate::worker::sharing::{Share, Siblings};

/// How long before the drain timeout the worker stops waiting for room in the inbox, at most. In
/// this time the connections that could not be sent may have one more request and linger.
const RESERVE: Duration = Duration::from_secs(1);

/// When to try again at the latest. The kernel may send no descriptor although the inbox has room.
const RETRY: Duration = Duration::from_millis(100);

/// Sends connections to the slot's inbox, one after the other, or to another slot's inbox.
pub(crate) struct Outgoing {
    sender: Sender,
    drain: Drain,
    /// How long to wait in all while the inbox is full.
    wait_max: Duration,
    stats: WorkerStats,
    /// The task that holds the lock sends. The others wait in the order in which they came.
    turn: Mutex<InboxState>,
    /// Made when the inbox is full for the first time.
    writable: OnceCell<AsyncFd<Arc<OwnedFd>>>,
    /// When the first connection was to be sent. `wait_max` runs from then on.
    begun: OnceCell<Instant>,
    siblings: Siblings,
}

/// How long a drain may wait for room in the inbox: the drain timeout without a reserve at its end.
pub(crate) fn wait_max(drain_timeout: Duration) -> Duration {
    drain_timeout - RESERVE.min(drain_timeout / 2)
}

/// Whether the inbox may still take connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InboxState {
    InUse,
    /// The inbox stayed full for too long, or the whole server ends.
    GivenUp,
}

impl Outgoing {
    /// `wait_max` is how long to wait in all while the inbox is full, from the first connection on.
    pub(crate) fn new(
        sender: Sender,
        drain: Drain,
        wait_max: Duration,
        stats: WorkerStats,
    ) -> Self {
        Self {
            sender,
            drain,
            wait_max,
            stats,
            turn: Mutex::new(InboxState::InUse),
            writable: OnceCell::new(),
            begun: OnceCell::new(),
            siblings: Siblings::default(),
        }
    }

    /// Replaces the shares that other slots take until this worker drains. Returns the number of
    /// connections in them.
    pub(crate) fn share(&self, shares: Vec<Share>) -> usize {
        self.siblings.set(shares)
    }

    /// Sends a connection to the slot's own inbox in a drain, else to another slot's. If the inbox
    /// of another slot is full, this fails at once, because that hand-over is not urgent. It also
    /// fails for a limited client. The other worker cannot refuse an open connection, so the client
    /// could pass its limit there, and open new connections here.
    async fn send(&self, connection: &Connection, note: &Note) -> io::Result<()> {
        if self.drain.is_asked() {
            return self.send_to_own_slot(connection, note).await;
        }
        if connection.counts_for_client() {
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
        let inbox = self.siblings.next().ok_or(io::ErrorKind::NotFound)?;
        inbox.send(connection, note)
    }

    async fn send_to_own_slot(&self, connection: &Connection, note: &Note) -> io::Result<()> {
        let begun = *self.begun.get_or_init(Instant::now);
        let mut inbox = self.turn.lock().await;
        loop {
            if *inbox == InboxState::GivenUp || self.drain.is_closing() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            match self.sender.send(connection, note) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return result,
            }
            let left = self.wait_max.saturating_sub(begun.elapsed());
            *inbox = self.wait_writable(left).await?;
        }
    }

    /// Waits until the inbox may have room again, for `left` at most.
    async fn wait_writable(&self, left: Duration) -> io::Result<InboxState> {
        let writable = match self.writable.get() {
            Some(writable) => writable,
            None => {
                let writable = self.sender.watch()?;
                self.writable.get_or_init(|| writable)
            }
        };
        let mut closing = pin!(self.drain.clone().closing());
        let mut too_late = pin!(sleep(left));
        let mut retry = pin!(sleep(RETRY));
        poll_fn(|cx| {
            if closing.as_mut().poll(cx).is_ready() || too_late.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Ok(InboxState::GivenUp));
            }
            if retry.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Ok(InboxState::InUse));
            }
            // Clears the readiness, which may be older than the failed send.
            writable.poll_write_ready(cx).map_ok(|mut ready| {
                ready.clear_ready();
                InboxState::InUse
            })
        })
        .await
    }
}

impl HandoverTarget<Connection> for Outgoing {
    fn hand_over(
        self: Rc<Self>,
        mut connection: Connection,
        mut moved: Moved,
    ) -> Pin<Box<dyn Future<Output = Result<(), Connection>>>> {
        if moved.read_ahead.is_empty() {
            // This worker has read nothing. The worker before it may have.
            moved.read_ahead = connection.take_read_ahead(usize::MAX);
        }
        let note = Note {
            reason: Reason::HandedOver,
            local: connection.local().clone(),
            forwarded: connection.forwarded(),
            moved,
        };
        Box::pin(async move {
            match self.send(&connection, &note).await {
                Ok(()) => {
                    self.stats.add(Count::HandedOver, 1);
                    if !self.drain.is_asked() {
                        self.stats.add(Count::Balanced, 1);
                    }
                    Ok(())
                }
                Err(error) => {
                    tracing::debug!(peer = ?connection.peer(), %error, "not handed over");
                    connection.put_back(note.moved);
                    Err(connection)
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::num::NonZeroUsize;
    use std::os::unix::net::UnixStream;

    use bytes::Bytes;
    use tokio::task::{spawn_local, yield_now};

    use super::*;
    use crate::drain::Idle;
    use crate::protocol::inbox::{Inbox, Receiver};
    use crate::proxy::Network;
    use crate::sys::listener;
    use crate::worker::clients::Clients;
    use crate::worker::drain::DrainSwitch;
    use crate::worker::incoming::{Incoming, Queue};

    /// A time for the drain that no test waits for to its end.
    const LONG: Duration = Duration::from_secs(5 * 60);
    const SHORT: Duration = Duration::from_millis(300);

    /// A worker that drains, with connections from a listener of its own, and its slot's inbox.
    struct Fixture {
        switch: DrainSwitch,
        outgoing: Rc<Outgoing>,
        receiver: Receiver,
        incoming: Incoming,
        stats: WorkerStats,
        path: std::path::PathBuf,
        _dir: tempfile::TempDir,
    }

    impl Fixture {
        fn new(drain_timeout: Duration) -> Self {
            let dir = tempfile::tempdir().expect("a directory");
            let path = dir.path().join("s");
            let (listener, file) = listener::unix::listen(&path, 4096, listener::unix::tests::ALL)
                .expect("a new path");
            std::mem::forget(file);
            let stats = WorkerStats::own();
            let queue =
                Queue::new(vec![listener], None, 10_000, None, stats.clone()).expect("a runtime");
            let inbox = Inbox::new().expect("a pair");
            let end = |fd: std::os::fd::BorrowedFd<'_>| fd.try_clone_to_owned().expect("a number");
            let (switch, drain) = DrainSwitch::new();
            let sender = Sender::new(end(inbox.sender()));
            switch.start(Idle::HandOver);
            Self {
                switch,
                outgoing: Rc::new(Outgoing::new(
                    sender,
                    drain,
                    wait_max(drain_timeout),
                    stats.clone(),
                )),
                receiver: Receiver::new(end(inbox.receiver())).expect("a runtime"),
                incoming: Incoming::new(queue),
                stats,
                path,
                _dir: dir,
            }
        }

        async fn connection(&mut self) -> (UnixStream, Connection) {
            let client = UnixStream::connect(&self.path).expect("it listens");
            let connection = self.incoming.accept().await.expect("no drain");
            (client, connection)
        }

        /// Hands over `count` connections, each in a task of its own. `count` must be more than the
        /// inbox has room for.
        async fn hand_over(&mut self, count: usize) -> Vec<UnixStream> {
            let mut clients = Vec::new();
            for _ in 0..count {
                let (client, connection) = self.connection().await;
                let handover = Rc::clone(&self.outgoing).hand_over(connection, Moved::default());
                spawn_local(handover);
                clients.push(client);
            }
            // Until the inbox is full.
            while self.outgoing.writable.get().is_none() {
                yield_now().await;
            }
            clients
        }

        fn sent(&self) -> u64 {
            self.stats.count(Count::HandedOver)
        }
    }

    fn read_ahead(bytes: &'static str) -> Moved {
        Moved {
            read_ahead: Bytes::from_static(bytes.as_bytes()),
            ..Moved::default()
        }
    }

    fn run(test: impl Future<Output = ()>) {
        let runtime = crate::worker::runtime().expect("a runtime");
        runtime.block_on(test);
    }

    #[test]
    fn bytes_that_were_read_are_sent_along_or_given_back() {
        run(async {
            let mut fixture = Fixture::new(LONG);
            for (by_another_worker, by_this_worker) in [("", "GET /"), ("GET /", "")] {
                let (_client, mut connection) = fixture.connection().await;
                connection.put_back(read_ahead(by_another_worker));
                let moved = read_ahead(by_this_worker);
                let outgoing = Rc::clone(&fixture.outgoing);
                assert!(outgoing.hand_over(connection, moved).await.is_ok());
                let (_, note) = fixture.receiver.take().expect("no error").expect("one");
                assert_eq!(note.moved.read_ahead, b"GET /"[..]);
            }
            fixture.switch.start(Idle::Close);
            let (_client, connection) = fixture.connection().await;
            let outgoing = Rc::clone(&fixture.outgoing);
            let outcome = outgoing.hand_over(connection, read_ahead("GET /")).await;
            let mut back = outcome.expect_err("the server ends");
            assert_eq!(back.take_read_ahead(usize::MAX), b"GET /"[..]);
            assert_eq!(fixture.sent(), 2);
        });
    }

    #[test]
    fn when_the_inbox_is_full_connections_wait_and_all_arrive() {
        run(async {
            let mut fixture = Fixture::new(LONG);
            let clients = fixture.hand_over(700).await;
            let sent = fixture.sent();
            assert!((100..700).contains(&sent), "{sent}");
            let mut arrived = Vec::new();
            while arrived.len() < clients.len() {
                let received = poll_fn(|cx| fixture.receiver.poll_take(cx)).await;
                arrived.push(received.expect("no error"));
            }
            while fixture.sent() < 700 {
                yield_now().await;
            }
        });
    }

    #[test]
    fn an_inbox_that_stays_full_is_given_up_in_time_and_not_tried_again() {
        run(async {
            let mut fixture = Fixture::new(SHORT);
            let _clients = fixture.hand_over(400).await;
            let (_client, connection) = fixture.connection().await;
            let last = Rc::clone(&fixture.outgoing).hand_over(connection, Moved::default());
            assert!(last.await.is_err());
            let outgoing = &fixture.outgoing;
            let begun = outgoing.begun.get().expect("it was tried");
            assert!(begun.elapsed() >= outgoing.wait_max, "it has waited");
            let (_client, connection) = fixture.connection().await;
            let another = Rc::clone(&fixture.outgoing).hand_over(connection, Moved::default());
            assert!(another.await.is_err(), "it does not wait");
        });
    }

    /// The kernel tells nothing when it sends descriptors again: the inbox has room all the time.
    #[test]
    fn a_send_is_tried_again_although_the_inbox_tells_nothing() {
        run(async {
            let fixture = Fixture::new(LONG);
            for _ in 0..3 {
                let state = fixture.outgoing.wait_writable(20 * RESERVE).await;
                assert_eq!(state.expect("a runtime"), InboxState::InUse);
            }
        });
    }

    /// A new TCP connection of a worker with a limit for each client that is not a balancer.
    async fn limited(balancers: &[Network]) -> (TcpStream, Connection) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        listener.set_nonblocking(true).expect("a socket");
        let address = listener.local_addr().expect("bound");
        let clients = Clients::new(NonZeroUsize::MAX, balancers);
        let listeners = vec![listener.into()];
        let queue = Queue::new(listeners, None, 1, Some(clients), WorkerStats::own());
        let client = TcpStream::connect(address).expect("it listens");
        let connection = Incoming::new(queue.expect("a runtime")).accept().await;
        (client, connection.expect("no drain"))
    }

    #[test]
    fn a_limited_client_stays_with_its_worker_until_the_drain() {
        run(async {
            let [own, other] = [(); 2].map(|()| Inbox::new().expect("a pair"));
            let sender = |inbox: &Inbox| {
                let sender = inbox.sender().try_clone_to_owned();
                Sender::new(sender.expect("a number"))
            };
            let (switch, drain) = DrainSwitch::new();
            let outgoing = Outgoing::new(sender(&own), drain, LONG, WorkerStats::own());
            let outgoing = Rc::new(outgoing);
            let hand_over = |it| Rc::clone(&outgoing).hand_over(it, Moved::default());
            outgoing.share(vec![Share {
                inbox: sender(&other),
                connections: 2,
            }]);
            let balancer = "127.0.0.1".parse().expect("a network");
            let (_client, connection) = limited(&[balancer]).await;
            assert!(hand_over(connection).await.is_ok());
            let (_client, connection) = limited(&[]).await;
            let back = hand_over(connection).await.expect_err("it is limited");
            switch.start(Idle::HandOver);
            assert!(hand_over(back).await.is_ok());
            assert!(own.is_waited_in() && other.is_waited_in());
        });
    }

    #[test]
    fn the_end_of_the_server_ends_the_wait() {
        run(async {
            let mut fixture = Fixture::new(LONG);
            let _clients = fixture.hand_over(400).await;
            let (_client, connection) = fixture.connection().await;
            let last = Rc::clone(&fixture.outgoing).hand_over(connection, Moved::default());
            let switch = fixture.switch.clone();
            spawn_local(async move { switch.start(Idle::Close) });
            assert!(last.await.is_err());
            let begun = fixture.outgoing.begun.get().expect("it was tried");
            assert!(begun.elapsed() < fixture.outgoing.wait_max);
        });
    }
}
