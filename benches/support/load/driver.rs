//! The loop.

use std::mem;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use fastrand::Rng;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollTimeout};
use nix::sys::prctl;
use nix::sys::time::TimeSpec;

use super::client::{Batch, Client};
use super::outcome::Outcome;
use super::plan::{Ask, Extent, Plan};
use super::schedule::Schedule;
use super::tls::Tls;

/// A megabyte should not take many calls, and should not push everything else out of the cache.
const BUFFER: usize = 128 * 1024;

/// How many events one `epoll_wait(2)` gives.
const EVENTS: usize = 256;

/// How many connections are opened at once before anything is measured: no queue overflows.
const OPENED_AT_ONCE: usize = 128;

/// The plan's usual request, and the one that is mixed in.
const USUAL: usize = 0;
const SELDOM: usize = 1;

/// Clients of one server. Dropped, their connections are closed.
pub(crate) struct Driver {
    epoll: Epoll,
    ready: Vec<EpollEvent>,
    buffer: Vec<u8>,
    clients: Vec<Client>,
    plan: Plan,
    batches: Vec<Batch>,
    chance: Rng,
    /// How many clients wait for responses.
    busy: usize,
    outcome: Outcome,
}

impl Driver {
    /// Opens nothing yet: [`warm`](Self::warm) does, or else the first run.
    ///
    /// # Panics
    ///
    /// If the plan has no connections, or has requests pipelined that ask for the connection's end.
    pub(crate) fn new(address: SocketAddr, plan: Plan) -> Self {
        let seldom = plan.seldom.as_ref().map(|(_, ask)| ask);
        let asks: Vec<&Ask> = [&plan.usual].into_iter().chain(seldom).collect();
        assert!(plan.connections > 0, "a plan without connections");
        assert!(
            plan.pipeline == 1 || plan.pipeline > 1 && !asks.iter().any(|ask| ask.closes),
            "nothing can follow a request that ends its connection"
        );
        Self {
            epoll: Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).expect("epoll_create1(2)"),
            ready: vec![EpollEvent::empty(); EVENTS],
            buffer: vec![0; BUFFER],
            clients: (0..plan.connections)
                .map(|id| Client::new(id, address, plan.tls.as_ref().map(Tls::sessions)))
                .collect(),
            batches: asks
                .iter()
                .map(|ask| Batch::new(ask, plan.pipeline, plan.connections))
                .collect(),
            chance: Rng::with_seed(0),
            busy: 0,
            outcome: Outcome::new(),
            plan,
        }
    }

    /// Lets each client have a response (or a pipeline of them), so that no run measures a server
    /// which accepts its first connections or touches its memory first.
    pub(crate) fn warm(&mut self) -> &Outcome {
        self.each(|_, _| {})
    }

    /// Asks once on each connection, and tells the client's number and the beginning of the body,
    /// 64 bytes at most. Of responses only: who failed is in the outcome.
    pub(crate) fn ask_each(&mut self, ask: &Ask, heard: impl FnMut(usize, &[u8])) -> &Outcome {
        let asked = Batch::new(ask, 1, self.clients.len());
        let usual = mem::replace(&mut self.batches[USUAL], asked);
        self.each(heard);
        self.batches[USUAL] = usual;
        &self.outcome
    }

    /// The next request when the last response is there.
    pub(crate) fn closed(&mut self, extent: Extent) -> &Outcome {
        let start = Instant::now();
        let time = match extent {
            Extent::Requests(_) => Duration::ZERO,
            Extent::For(time) => time,
        };
        self.run(Schedule::closed(extent, start, self.plan.pipeline), time)
    }

    /// Requests at a constant rate, whether or not the server keeps up.
    pub(crate) fn open(&mut self, per_second: f64, time: Duration) -> &Outcome {
        // The kernel may let us oversleep by 50 us, which is as long as a response takes. Set back
        // because the servers that are started from here inherit it.
        let slack = prctl::get_timerslack().expect("prctl(2) tells the timer slack");
        prctl::set_timerslack(1).expect("prctl(2) takes any timer slack");
        let start = Instant::now();
        let (clients, batch) = (self.clients.len(), self.plan.pipeline);
        self.run(
            Schedule::open(per_second, time, start, (clients, batch)),
            time,
        );
        prctl::set_timerslack(slack.cast_unsigned().into()).expect("it was so before");
        &self.outcome
    }

    fn run(&mut self, mut schedule: Schedule, time: Duration) -> &Outcome {
        let start = self.begin();
        for id in 0..self.clients.len() {
            self.pump(&mut schedule, id, Instant::now());
        }
        self.until_done(&mut schedule, time);
        self.finish(&schedule, start)
    }

    fn each(&mut self, mut heard: impl FnMut(usize, &[u8])) -> &Outcome {
        let start = self.begin();
        let mut nothing = Schedule::closed(Extent::Requests(0), start, 1);
        for first in (0..self.clients.len()).step_by(OPENED_AT_ONCE) {
            let chunk = first..(first + OPENED_AT_ONCE).min(self.clients.len());
            for id in chunk.clone() {
                self.ask(id, USUAL, Instant::now());
            }
            self.until_done(&mut nothing, Duration::ZERO);
            for id in chunk {
                if let Some(told) = self.clients[id].told() {
                    heard(id, told);
                }
            }
        }
        self.finish(&nothing, start)
    }

    fn begin(&mut self) -> Instant {
        let start = Instant::now();
        self.outcome.begin(start);
        self.chance = Rng::with_seed(0);
        for client in &mut self.clients {
            client.sent = 0;
        }
        start
    }

    /// Until there is nothing to send and nothing to wait for, or the budget is up, or after `time`
    /// the server has been silent for too long.
    fn until_done(&mut self, schedule: &mut Schedule, time: Duration) {
        let mut deadline = Instant::now() + time + self.plan.timeout;
        loop {
            let now = Instant::now();
            self.arrive(schedule, now);
            let next = match schedule {
                Schedule::Open(arrivals) => arrivals.wait(now),
                Schedule::Closed { .. } => None,
            };
            let left = deadline.saturating_duration_since(now);
            if self.is_over_budget() || left.is_zero() || self.busy == 0 && next.is_none() {
                return;
            }
            let ready = match next {
                None => self.wait(left),
                Some(next) => self.wait_precisely(next.min(left)),
            };
            for event in 0..ready {
                let id = self.ready[event].data() as usize;
                self.advance(schedule, id);
            }
            if ready > 0 {
                deadline = deadline.max(now + self.plan.timeout);
            }
        }
    }

    /// Lets the clients go on whose time has come.
    fn arrive(&mut self, schedule: &mut Schedule, now: Instant) {
        while let Schedule::Open(arrivals) = schedule
            && let Some(client) = arrivals.next_due(now)
        {
            self.pump(schedule, client, now);
        }
    }

    fn advance(&mut self, schedule: &mut Schedule, id: usize) {
        let client = &mut self.clients[id];
        let (buffer, outcome) = (&mut self.buffer, &mut self.outcome);
        if client.advance(&self.epoll, &self.batches, buffer, outcome) {
            self.busy -= 1;
            self.pump(schedule, id, Instant::now());
        }
    }

    /// Sends what the client has to send, unless it waits for a response.
    fn pump(&mut self, schedule: &mut Schedule, id: usize, now: Instant) {
        while !self.clients[id].is_busy() && !self.is_over_budget() {
            let Some(since) = schedule.take(id, self.clients[id].sent, now) else {
                return;
            };
            let batch = match &self.plan.seldom {
                Some((share, _)) if self.chance.usize(..1000) < *share => SELDOM,
                _ => USUAL,
            };
            self.ask(id, batch, since);
        }
    }

    fn ask(&mut self, id: usize, batch: usize, since: Instant) {
        match self.clients[id].ask(&self.epoll, &self.batches, batch, since) {
            Ok(()) => self.busy += 1,
            Err(failure) => {
                let requests = self.plan.pipeline as u64;
                self.outcome.failures.add(failure, requests);
            }
        }
    }

    fn is_over_budget(&self) -> bool {
        self.outcome.failures.total() > self.plan.budget
    }

    /// Counts what has not been answered, unless the run was broken off.
    fn finish(&mut self, schedule: &Schedule, start: Instant) -> &Outcome {
        let broken_off = self.is_over_budget();
        let batch = self.plan.pipeline as u64;
        for (id, client) in self.clients.iter_mut().enumerate() {
            if let Some(since) = client.since() {
                let missing = client.give_up();
                if !broken_off {
                    self.outcome.silent(since, missing);
                }
            }
            if let Schedule::Open(arrivals) = schedule
                && !broken_off
            {
                for since in arrivals.unsent(id, client.sent) {
                    self.outcome.silent(since, batch);
                }
            }
        }
        self.busy = 0;
        self.outcome.is_over_budget = broken_off;
        self.outcome.elapsed = self.outcome.last_response - start;
        &self.outcome
    }

    fn wait(&mut self, longest: Duration) -> usize {
        // Rounded up: a wait of none would be busy.
        let millis = u16::try_from(longest.as_millis() + 1).unwrap_or(u16::MAX);
        match self.epoll.wait(&mut self.ready, millis) {
            Ok(ready) => ready,
            // The bench was stopped and continued from a shell.
            Err(Errno::EINTR) => 0,
            Err(error) => panic!("epoll_wait(2): {error}"),
        }
    }

    /// As `wait`, but not in milliseconds.
    fn wait_precisely(&mut self, longest: Duration) -> usize {
        let mut readable = [PollFd::new(self.epoll.0.as_fd(), PollFlags::POLLIN)];
        match ppoll(&mut readable, Some(TimeSpec::from_duration(longest)), None) {
            Ok(0) | Err(Errno::EINTR) => 0,
            Ok(_) => match self.epoll.wait(&mut self.ready, EpollTimeout::ZERO) {
                Ok(ready) => ready,
                Err(error) => panic!("epoll_wait(2): {error}"),
            },
            Err(error) => panic!("ppoll(2): {error}"),
        }
    }
}
