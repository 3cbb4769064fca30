//! The connections that leave a worker: for whoever attends to its slot next, when it drains, and
//! before that for siblings that have less to do.

use std::cell::OnceCell;
use std::future::{Future, poll_fn};
use std::io;
use std::os::fd::OwnedFd;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::unix::AsyncFd;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};

use crate::http::HandoverTarget;
use crate::protocol::inbox::{Note, Sender};
use crate::stats::{Count, WorkerStats};
use crate::worker::connection::Connection;
use crate::worker::drain::Drain;
use crate::worker::sharing::{Share, Siblings};

/// How long before the drain's deadline a full inbox is given up, at the most: what could not be
/// sent has to linger, and perhaps to answer one more request.
const RESERVE: Duration = Duration::from_secs(1);

/// Puts connections into the slot's inbox, one after the other, or into a sibling's.
pub(crate) struct Outgoing {
    sender: Sender,
    drain: Drain,
    /// How long a full inbox is waited for.
    patience: Duration,
    stats: WorkerStats,
    /// Who has it sends; the others wait in the order in which they came.
    turn: Mutex<Receiver>,
    /// Made for the first connection that finds no room.
    room: OnceCell<AsyncFd<Arc<OwnedFd>>>,
    /// When the first connection was to be handed over: `patience` runs from then on.
    begun: OnceCell<Instant>,
    siblings: Siblings,
}

/// The part of a drain that is not kept for what lingers at its end.
pub(crate) fn patience(drain_timeout: Duration) -> Duration {
    drain_timeout - RESERVE.min(drain_timeout / 2)
}

/// Whether there is anybody who takes over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Receiver {
    Some,
    /// For nobody has made room in time, or the whole server ends.
    None,
}

impl Outgoing {
    /// `patience` is how long a full inbox is waited for, from the first connection on.
    pub(crate) fn new(
        sender: Sender,
        drain: Drain,
        patience: Duration,
        stats: WorkerStats,
    ) -> Self {
        Self {
            sender,
            drain,
            patience,
            stats,
            turn: Mutex::new(Receiver::Some),
            room: OnceCell::new(),
            begun: OnceCell::new(),
            siblings: Siblings::default(),
        }
    }

    /// Who takes connections over from now on as long as there is no drain; says how many.
    pub(crate) fn share(&self, shares: Vec<Share>) -> usize {
        self.siblings.set(shares)
    }

    /// A sibling that has no room is not waited for. There is no hurry.
    async fn send(&self, connection: &Connection, note: &Note) -> io::Result<()> {
        if self.drain.is_asked() {
            return self.send_connection(connection, note).await;
        }
        let inbox = self.siblings.next().ok_or(io::ErrorKind::NotFound)?;
        inbox.send(connection, note)
    }

    async fn send_connection(&self, connection: &Connection, note: &Note) -> io::Result<()> {
        let begun = *self.begun.get_or_init(Instant::now);
        let mut receiver = self.turn.lock().await;
        loop {
            if *receiver == Receiver::None || self.drain.is_closing() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            match self.sender.send(connection, note) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return result,
            }
            let left = self.patience.saturating_sub(begun.elapsed());
            *receiver = self.room_within(left).await?;
        }
    }

    /// Waits until it is worth another try, or none is.
    async fn room_within(&self, left: Duration) -> io::Result<Receiver> {
        let room = match self.room.get() {
            Some(room) => room,
            None => {
                let room = self.sender.watch()?;
                self.room.get_or_init(|| room)
            }
        };
        let mut closing = pin!(self.drain.clone().closing());
        let mut too_late = pin!(sleep(left));
        poll_fn(|cx| {
            if closing.as_mut().poll(cx).is_ready() || too_late.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Ok(Receiver::None));
            }
            // It was full a moment ago: what was known before that does not count.
            room.poll_write_ready(cx).map_ok(|mut writable| {
                writable.clear_ready();
                Receiver::Some
            })
        })
        .await
    }
}

impl HandoverTarget<Connection> for Outgoing {
    fn hand_over(
        self: Rc<Self>,
        mut connection: Connection,
        read_ahead: Bytes,
    ) -> Pin<Box<dyn Future<Output = Result<(), Connection>>>> {
        connection.put_back(read_ahead);
        let note = Note {
            local: connection.local().clone(),
            forwarded: connection.forwarded(),
            read_ahead: connection.take_read_ahead(),
        };
        Box::pin(async move {
            match self.send(&connection, &note).await {
                Ok(()) => {
                    self.stats.add(Count::HandedOver, 1);
                    Ok(())
                }
                Err(error) => {
                    tracing::debug!(peer = ?connection.peer(), %error, "not handed over");
                    connection.put_back(note.read_ahead);
                    Err(connection)
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use tokio::task::{LocalSet, spawn_local, yield_now};

    use super::*;
    use crate::drain::Idle;
    use crate::protocol::inbox::{Inbox, Receiver};
    use crate::sys::listener;
    use crate::worker::drain::DrainSwitch;
    use crate::worker::incoming::{Incoming, Queue};

    const TIMEOUT: Duration = Duration::from_millis(300);

    /// A worker that drains, with connections from a listener of its own, and its slot's inbox.
    struct Bench {
        switch: DrainSwitch,
        outgoing: Rc<Outgoing>,
        receiver: Receiver,
        incoming: Incoming,
        stats: WorkerStats,
        path: std::path::PathBuf,
        _dir: tempfile::TempDir,
    }

    impl Bench {
        fn new() -> Self {
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
                    patience(TIMEOUT),
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

        /// Hands so many over, more than there is room for, in tasks of their own.
        async fn hand_over(&mut self, count: usize) -> Vec<UnixStream> {
            let mut clients = Vec::new();
            for _ in 0..count {
                let (client, connection) = self.connection().await;
                let take = Rc::clone(&self.outgoing).hand_over(connection, Bytes::new());
                spawn_local(take);
                clients.push(client);
            }
            // Until somebody finds no room.
            while self.outgoing.room.get().is_none() {
                yield_now().await;
            }
            clients
        }

        fn sent(&self) -> u64 {
            self.stats.count(Count::HandedOver)
        }
    }

    fn run(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        runtime.block_on(LocalSet::new().run_until(test));
    }

    #[test]
    fn bytes_that_were_read_travel_along_and_come_back() {
        run(async {
            let mut bench = Bench::new();
            let (_client, mut connection) = bench.connection().await;
            connection.put_back(Bytes::from_static(b" HTTP"));
            let outgoing = Rc::clone(&bench.outgoing);
            let taken = outgoing
                .hand_over(connection, Bytes::from_static(b"GET /"))
                .await;
            assert!(taken.is_ok());
            let (_, note) = bench.receiver.take().expect("no error").expect("one");
            assert_eq!(note.read_ahead, b"GET / HTTP"[..]);
            bench.switch.start(Idle::Close);
            let (_client, connection) = bench.connection().await;
            let outgoing = Rc::clone(&bench.outgoing);
            let taken = outgoing
                .hand_over(connection, Bytes::from_static(b"GET /"))
                .await;
            let mut back = taken.expect_err("nobody comes after");
            assert_eq!(back.take_read_ahead(), b"GET /"[..]);
            assert_eq!(bench.sent(), 1);
        });
    }

    #[test]
    fn a_full_inbox_is_waited_for_and_all_arrive() {
        run(async {
            let mut bench = Bench::new();
            let clients = bench.hand_over(700).await;
            let sent = bench.sent();
            assert!((100..700).contains(&sent), "{sent}");
            let mut arrived = Vec::new();
            while arrived.len() < clients.len() {
                let taken = poll_fn(|cx| bench.receiver.poll_take(cx)).await;
                arrived.push(taken.expect("no error"));
            }
            while bench.sent() < 700 {
                yield_now().await;
            }
        });
    }

    #[test]
    fn nobody_waits_for_an_heir_longer_than_is_good() {
        run(async {
            let mut bench = Bench::new();
            let _clients = bench.hand_over(400).await;
            let begun = Instant::now();
            let (_client, connection) = bench.connection().await;
            let last = Rc::clone(&bench.outgoing).hand_over(connection, Bytes::new());
            assert!(last.await.is_err());
            let waited = begun.elapsed();
            assert!(waited > TIMEOUT / 4 && waited < TIMEOUT, "{waited:?}");
            let (_client, connection) = bench.connection().await;
            let another = Rc::clone(&bench.outgoing).hand_over(connection, Bytes::new());
            assert!(another.await.is_err(), "and then not at all");
        });
    }

    #[test]
    fn the_end_of_the_server_ends_the_wait() {
        run(async {
            let mut bench = Bench::new();
            let _clients = bench.hand_over(400).await;
            let (_client, connection) = bench.connection().await;
            let last = Rc::clone(&bench.outgoing).hand_over(connection, Bytes::new());
            let switch = bench.switch.clone();
            spawn_local(async move { switch.start(Idle::Close) });
            assert!(last.await.is_err());
            let begun = bench.outgoing.begun.get().expect("it was tried");
            assert!(begun.elapsed() < bench.outgoing.patience);
        });
    }
}
