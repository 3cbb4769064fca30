//! The load: 64 clients on a thread of their own.

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::unistd::Pid;
use tokio::task::JoinSet;

use crate::client::{Client, Habit, PATIENCE};
use crate::connections;
use crate::process::{Trouble, until};
use crate::tally::Tally;

/// As many of each habit.
const CLIENTS_OF_A_HABIT: usize = 32;

/// A server that has lost this much is broken, and nothing is learnt from the rest.
const LOST_MAX: usize = 20_000;

/// About four of each client.
const ANSWERS_BETWEEN_EVENTS: usize = 256;

/// Clients that ask until [`finish`](Self::finish). Dropped, they end on their own.
pub(crate) struct Load {
    shared: Arc<Shared>,
    server_port: u16,
    thread: Option<JoinHandle<io::Result<Tally>>>,
}

/// What the clients and the one who makes events happen tell each other.
pub(crate) struct Shared {
    began: Instant,
    over: AtomicBool,
    event: AtomicUsize,
    answered: AtomicUsize,
    lost: AtomicUsize,
    /// The clients' ports of connections whose worker was killed.
    held: Mutex<BTreeSet<u16>>,
    first_answers: Sender<()>,
}

impl Load {
    /// Starts the clients and waits until each has had an answer.
    pub(crate) fn start(address: SocketAddr) -> Result<Self, Trouble> {
        let (sender, first_answers) = mpsc::channel();
        let shared = Arc::new(Shared {
            began: Instant::now(),
            over: AtomicBool::new(false),
            event: AtomicUsize::new(0),
            answered: AtomicUsize::new(0),
            lost: AtomicUsize::new(0),
            held: Mutex::default(),
            first_answers: sender,
        });
        let clients = Arc::clone(&shared);
        let load = Self {
            shared,
            server_port: address.port(),
            thread: Some(thread::spawn(move || run(address, &clients))),
        };
        wait_for_all(&first_answers)?;
        Ok(load)
    }

    /// Says that the next event begins.
    pub(crate) fn next_event(&self) {
        self.shared.event.fetch_add(1, Ordering::Relaxed);
    }

    /// Waits until the clients have had some more answers: the pace of the events. So each of them
    /// meets a load that has recovered from the one before.
    pub(crate) fn settle(&self) -> Result<(), Trouble> {
        let wanted = self.shared.answered.load(Ordering::Relaxed) + ANSWERS_BETWEEN_EVENTS;
        until("the clients have answers again", || {
            let answered = self.shared.answered.load(Ordering::Relaxed);
            answered >= wanted || self.shared.is_over()
        })
    }

    /// Notes what `worker`, which is stopped and about to be killed, has accepted.
    pub(crate) fn excuse(&self, worker: Pid) -> io::Result<()> {
        // Locked before the kernel is asked, so that a client which closes meanwhile is not
        // forgotten before it is noted.
        let mut held = self.shared.held();
        held.extend(connections::accepted_by(worker, self.server_port)?);
        Ok(())
    }

    /// Lets every client finish its request, and adds up.
    pub(crate) fn finish(mut self) -> Result<Tally, Trouble> {
        self.shared.over.store(true, Ordering::Relaxed);
        let thread = self.thread.take().expect("it is joined once");
        let tally = thread.join().expect("the clients do not panic");
        tally.map_err(|error| Trouble::Stuck(format!("the load itself failed: {error}")))
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // Within PATIENCE. The case has failed already, so what they counted is of no use.
            let _ = thread.join();
        }
    }
}

impl Shared {
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    pub(crate) fn event(&self) -> usize {
        self.event.load(Ordering::Relaxed)
    }

    pub(crate) fn count_answered(&self) {
        self.answered.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn has_first_answer(&self) {
        // Nobody waits any more if the load was given up.
        let _ = self.first_answers.send(());
    }

    pub(crate) fn count_lost(&self) -> io::Result<()> {
        if self.lost.fetch_add(1, Ordering::Relaxed) < LOST_MAX {
            return Ok(());
        }
        Err(io::Error::other("the server loses everything"))
    }

    pub(crate) fn was_held(&self, port: u16) -> bool {
        self.held().contains(&port)
    }

    pub(crate) fn forget(&self, port: u16) {
        self.held().remove(&port);
    }

    fn held(&self) -> MutexGuard<'_, BTreeSet<u16>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn wait_for_all(first_answers: &Receiver<()>) -> Result<(), Trouble> {
    let deadline = Instant::now() + 2 * PATIENCE;
    for number in 0..2 * CLIENTS_OF_A_HABIT {
        let left = deadline.saturating_duration_since(Instant::now());
        first_answers.recv_timeout(left).map_err(|_| {
            Trouble::Stuck(format!("only {number} clients had an answer at the start"))
        })?;
    }
    Ok(())
}

fn run(address: SocketAddr, shared: &Arc<Shared>) -> io::Result<Tally> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let mut clients = JoinSet::new();
        for number in 0..2 * CLIENTS_OF_A_HABIT {
            let habit = [Habit::NewConnections, Habit::KeepsAlive][number / CLIENTS_OF_A_HABIT];
            clients.spawn(Client::new(number, habit, address, Arc::clone(shared)).live());
        }
        let mut sum = Tally::default();
        while let Some(tally) = clients.join_next().await {
            sum.add(tally.expect("clients do not panic")?);
        }
        Ok(sum)
    })
}
