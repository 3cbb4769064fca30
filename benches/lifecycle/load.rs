//! The load: clients that ask, check each response, and tell exactly how a request was lost. Each
//! is a thread, which rests most of the time.

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use fastrand::Rng;
use nix::poll::{PollTimeout, poll};
use nix::unistd::Pid;

use crate::connection::{Connection, Exchange, Failure, Habit};
use crate::connections;
use crate::process::{Trouble, until};
use crate::support::load::Fate;
use crate::tally::{Loss, Lost, Tally};

/// A server that has lost this much is broken, and nothing is learnt from the rest.
const LOST_MAX: usize = 20_000;

/// For each client, about.
const RESPONSES_BETWEEN_EVENTS: usize = 4;

/// What a client does.
#[derive(Clone)]
pub(crate) struct Manner {
    pub(crate) asks: Asks,
    /// The rest before a request, in milliseconds, is below this.
    pub(crate) rest_millis: u16,
}

#[derive(Clone)]
pub(crate) enum Asks {
    /// For words that no other request has.
    Echo(Habit),
    /// For the same again and again.
    Same(Exchange),
}

/// 32 of each habit. They rest long enough that some connections are idle at any moment, and short
/// enough that many requests meet each event. A quarter of those that keep their connection rest
/// longer than any server waits before it closes idle connections, so that requests are on their
/// way when it does.
pub(crate) fn usual() -> Vec<Manner> {
    let manner = |number: usize| match number {
        ..32 => Manner {
            asks: Asks::Echo(Habit::NewConnections),
            rest_millis: 8,
        },
        _ => Manner {
            asks: Asks::Echo(Habit::KeepsAlive),
            rest_millis: [8, 300][usize::from(number.is_multiple_of(4))],
        },
    };
    (0..64).map(manner).collect()
}

/// Clients that ask until [`finish`](Self::finish). Dropped, they end on their own.
pub(crate) struct Load {
    shared: Arc<Shared>,
    clients: Vec<JoinHandle<Tally>>,
}

/// What the clients and the thread that makes events happen tell each other.
struct Shared {
    address: SocketAddr,
    began: Instant,
    over: AtomicBool,
    /// How many events have begun.
    event: AtomicUsize,
    answered: AtomicUsize,
    lost: AtomicUsize,
    /// The clients' ports of connections whose worker was killed.
    held: Mutex<BTreeSet<u16>>,
}

impl Load {
    /// Starts the clients and waits until they have had some responses.
    pub(crate) fn start(address: SocketAddr, clients: Vec<Manner>) -> Result<Self, Trouble> {
        let shared = Arc::new(Shared {
            address,
            began: Instant::now(),
            over: AtomicBool::new(false),
            event: AtomicUsize::new(0),
            answered: AtomicUsize::new(0),
            lost: AtomicUsize::new(0),
            held: Mutex::default(),
        });
        let start = |(number, manner)| {
            let client = Client {
                number,
                manner,
                shared: Arc::clone(&shared),
                chance: Rng::with_seed(number as u64),
                requests: 0,
                tally: Tally::default(),
            };
            thread::spawn(move || client.live())
        };
        let clients = clients.into_iter().enumerate().map(start).collect();
        let load = Self { shared, clients };
        load.settle()?;
        Ok(load)
    }

    /// Says that the next event begins.
    pub(crate) fn next_event(&self) {
        self.shared.event.fetch_add(1, Relaxed);
    }

    /// Waits until the clients have had some more responses: the pace of the events. So each of
    /// them meets a load that has recovered from the one before.
    pub(crate) fn settle(&self) -> Result<(), Trouble> {
        let more = RESPONSES_BETWEEN_EVENTS * self.clients.len();
        let wanted = self.shared.answered.load(Relaxed) + more;
        until("the clients have responses again", || {
            self.shared.answered.load(Relaxed) >= wanted || self.shared.over.load(Relaxed)
        })
    }

    /// Notes what `worker`, which is stopped and about to be killed, has accepted.
    pub(crate) fn excuse(&self, worker: Pid) -> io::Result<()> {
        // Locked before the kernel is asked, so that a client which closes meanwhile is not
        // forgotten before it is noted.
        let mut held = self.shared.held();
        held.extend(connections::accepted_by(
            worker,
            self.shared.address.port(),
        )?);
        Ok(())
    }

    /// Lets every client finish its request, and adds up.
    pub(crate) fn finish(mut self) -> Result<Tally, Trouble> {
        self.shared.over.store(true, Relaxed);
        let mut sum = Tally::default();
        for client in self.clients.drain(..) {
            let tally = client.join();
            sum.add(tally.map_err(|_| Trouble::Stuck("the load itself failed".into()))?);
        }
        match sum.lost.len() {
            ..LOST_MAX => Ok(sum),
            _ => Err(Trouble::Stuck("the server loses everything".into())),
        }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.shared.over.store(true, Relaxed);
        for client in self.clients.drain(..) {
            // The case has failed already, so what the client counted is of no use.
            let _ = client.join();
        }
    }
}

impl Shared {
    fn held(&self) -> MutexGuard<'_, BTreeSet<u16>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Client {
    number: usize,
    manner: Manner,
    shared: Arc<Shared>,
    chance: Rng,
    requests: u64,
    tally: Tally,
}

impl Client {
    /// Asks until the load ends.
    fn live(mut self) -> Tally {
        let mut kept: Option<Connection> = None;
        while !self.shared.over.load(Relaxed) {
            self.rest();
            // Asked at the last moment: a connection that the server has closed while nothing was
            // asked is no loss.
            if let Some(closed) = kept.take_if(|connection| !connection.is_open()) {
                self.tally.closed += 1;
                self.close(closed);
            }
            let connection = match kept.take() {
                Some(connection) => Ok(connection),
                None => Connection::open(self.shared.address),
            };
            match connection {
                Ok(connection) => kept = self.ask(connection),
                Err(failure) => self.note(failure, 0, 0),
            }
        }
        self.tally
    }

    fn rest(&mut self) {
        if self.manner.rest_millis > 0 {
            let rest = self.chance.u16(..self.manner.rest_millis);
            // A signal may end it early, which does no harm.
            let _ = poll(&mut [], PollTimeout::from(rest));
        }
    }

    /// One request and its response. The connection comes back if it can be asked again.
    fn ask(&mut self, mut connection: Connection) -> Option<Connection> {
        self.requests += 1;
        let echo;
        let exchange = match &self.manner.asks {
            Asks::Echo(habit) => {
                let (client, request) = (self.number, self.requests);
                let token = format!("client {client} asks for the {request}th time");
                echo = Exchange::echo(*habit, &token);
                &echo
            }
            Asks::Same(exchange) => exchange,
        };
        match connection.ask(exchange) {
            Ok(fate) => {
                self.tally.answered += 1;
                self.shared.answered.fetch_add(1, Relaxed);
                match fate {
                    Fate::Kept => return Some(connection),
                    Fate::Closed => self.tally.closed += usize::from(exchange.is_kept()),
                }
            }
            Err(failure) => self.note(failure, connection.port, connection.answered),
        }
        self.close(connection);
        None
    }

    fn note(&mut self, failure: Failure, port: u16, answered_before: u32) {
        let excused = failure.loss != Loss::Garbled && self.shared.held().contains(&port);
        if self.shared.lost.fetch_add(1, Relaxed) + 1 >= LOST_MAX {
            self.shared.over.store(true, Relaxed);
        }
        self.tally.lost.push(Lost {
            loss: if excused { Loss::Held } else { failure.loss },
            at: self.shared.began.elapsed(),
            event: self.shared.event.load(Relaxed),
            port,
            answered_before,
            detail: failure.detail,
        });
    }

    /// In this order: a port is free for another connection only once this one is closed.
    fn close(&self, connection: Connection) {
        let port = connection.port;
        drop(connection);
        self.shared.held().remove(&port);
    }
}
