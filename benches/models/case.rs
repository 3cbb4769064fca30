//! One server under one load.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::load::{Ask, Driver, Extent, Failure, Failures, Outcome, Rate};
use crate::question::{Question, Spread};
use crate::results::{self, Metric, Round};
use crate::server::{Model, Processes, Server, Workers, pss};

/// The driver comes first: dropped in this order, the server sees its connections closed before it
/// is asked to stop.
pub(crate) struct Case<'a> {
    driver: Driver,
    server: Server,
    workers: Workers,
    question: &'a Question,
    failures: Failures,
    answered: u64,
    answer_bytes: usize,
    spread: Vec<Vec<u64>>,
    rounds: Vec<Round>,
}

impl<'a> Case<'a> {
    pub(crate) fn start(question: &'a Question, model: Model, workers: Workers) -> Self {
        let server = Server::start(model, &question.app, workers);
        let mut driver = Driver::new(question.plan(server.address()));
        let warm = driver.warm();
        Self {
            driver,
            server,
            workers,
            question,
            failures: warm.failures,
            answered: warm.answered,
            answer_bytes: warm.answer_bytes,
            spread: Vec::new(),
            rounds: Vec::new(),
        }
    }

    /// How long that many requests take.
    pub(crate) fn batch(&mut self, requests: u64) -> Duration {
        let outcome = self.driver.closed(Extent::Requests(requests));
        self.count(&outcome);
        // Of those that were sent in vain, if there are any, nobody knows how long they took.
        outcome
            .elapsed
            .div_f64(outcome.answered.max(1) as f64)
            .mul_f64(requests as f64)
    }

    /// So that figures which are worth nothing do not go unnoticed.
    pub(crate) fn tell_failures(&self) {
        if self.failures.total() > 0 {
            let (question, model) = (self.question.name, self.server.model().name());
            println!("{question}/{model}: failed: {}", self.failures);
        }
    }

    /// Right answers in a second, before anything is measured.
    pub(crate) fn trial(&mut self, time: Duration) -> f64 {
        let outcome = self.driver.closed(Extent::For(time));
        self.count(&outcome);
        outcome.per_second()
    }

    /// One turn, on connections of its own: how the kernel spreads 64 connections over listeners is
    /// luck, and a bench that connects once measures one draw.
    pub(crate) fn turn(&mut self, time: Duration, rate: Rate) {
        let mut round = Round::default();
        let idle = self.connect(time);
        self.closed(time, &mut round);
        let open = self.driver.open(rate, time);
        self.count(&open);
        for (metric, quantile) in [
            (Metric::P50, 0.5),
            (Metric::P99, 0.99),
            (Metric::P999, 0.999),
        ] {
            round.set(metric, open.latency(quantile).as_secs_f64() * 1e6);
        }
        if self.question.spread == Spread::Asked && self.server.model().keeps_connections_apart() {
            let spread = self.spread();
            self.spread.push(spread);
        }
        let memory = pss(self.server.processes());
        round.set(Metric::Memory, memory as f64 / 1024.0);
        if let Some(idle) = idle {
            let growth = memory.saturating_sub(idle.before) as f64;
            round.set(Metric::Idle, growth / self.question.idle as f64);
        }
        self.rounds.push(round);
    }

    pub(crate) fn into_results(self, rate: f64) -> results::Case {
        let kinds = Failure::ALL.into_iter();
        let failures = kinds
            .map(|kind| (kind.name().to_owned(), self.failures.count(kind)))
            .filter(|(_, count)| *count > 0)
            .collect::<BTreeMap<_, _>>();
        results::Case {
            question: self.question.name.into(),
            server: self.server.model().name().into(),
            date: format!("{:.0}", jiff::Timestamp::now()),
            workers: self.server.workers(),
            connections: self.question.connections,
            answer_bytes: self.answer_bytes,
            answered: self.answered,
            open_rate: rate,
            failures,
            spread: self.spread,
            rounds: self.rounds,
        }
    }

    /// New connections; with idle ones beside them a new server too.
    fn connect(&mut self, time: Duration) -> Option<Idle> {
        if self.question.idle == 0 {
            self.driver = Driver::new(self.question.plan(self.server.address()));
            let warm = self.driver.warm();
            self.count(&warm);
            return None;
        }
        let server = Server::start(self.server.model(), &self.question.app, self.workers);
        self.driver = Driver::new(self.question.plan(server.address()));
        self.server = server;
        let busy = self.driver.closed(Extent::For(time));
        self.count(&busy);
        let before = pss(self.server.processes());
        let mut driver = Driver::new(self.question.idle_plan(self.server.address()));
        let warm = driver.warm();
        self.count(&warm);
        Some(Idle {
            _connections: driver,
            before,
        })
    }

    fn closed(&mut self, time: Duration, round: &mut Round) {
        let (server, driver) = (self.server.processes(), Processes::this_one());
        let (server_before, driver_before) = (server.used(), driver.used());
        let outcome = self.driver.closed(Extent::For(time));
        let (server_after, driver_after) = (server.used(), driver.used());

        let requests = outcome.answered.max(1) as f64;
        let micros = |time: Duration| time.as_secs_f64() * 1e6 / requests;
        round.set(Metric::PerSecond, outcome.per_second());
        round.set(Metric::Cpu, micros(server_after.since(&server_before)));
        round.set(Metric::Driver, micros(driver_after.since(&driver_before)));
        self.count(&outcome);
        self.answer_bytes = outcome.answer_bytes;
    }

    /// How many of the connections are each worker's.
    fn spread(&mut self) -> Vec<u64> {
        let mut workers = vec![0; self.server.workers()];
        let outcome = self.driver.ask_each(&Ask::get("/who"), |_, told| {
            let number = str::from_utf8(told).ok().and_then(|it| it.parse().ok());
            let number: usize = number.expect("our own handler tells a number");
            workers[number] += 1;
        });
        self.count(&outcome);
        workers
    }

    fn count(&mut self, outcome: &Outcome) {
        self.failures.merge(&outcome.failures);
        self.answered += outcome.answered;
    }
}

/// Connections at rest.
struct Idle {
    _connections: Driver,
    /// What the server had in memory before they came, in bytes.
    before: u64,
}
