//! One server under one load.

use std::mem;
use std::time::Duration;

use crate::columns;
use crate::load::{Ask, Driver, Extent, Failures, Outcome, Rate};
use crate::question::Question;
use crate::server::{Model, Server, Workers};
use crate::support::cpu::Processes;
use crate::support::memory::pss;
use crate::support::turns::Turn;

/// The driver comes first: dropped in this order, the server sees its connections closed before it
/// is asked to stop.
pub(crate) struct Case<'a> {
    driver: Driver,
    server: Server,
    workers: Workers,
    question: &'a Question,
    /// Since the last turn.
    failures: Failures,
}

impl<'a> Case<'a> {
    pub(crate) fn start(question: &'a Question, model: Model, workers: Workers) -> Self {
        let server = Server::start(model, &question.app, workers);
        let mut driver = Driver::new(question.plan(server.address));
        let failures = driver.warm().failures;
        Self {
            driver,
            server,
            workers,
            question,
            failures,
        }
    }

    /// Right responses in a second, before anything is measured.
    pub(crate) fn trial(&mut self, time: Duration) -> f64 {
        let outcome = self.driver.closed(Extent::For(time));
        self.failures.merge(&outcome.failures);
        outcome.per_second()
    }

    /// One turn, on connections of its own: how the kernel spreads 64 connections over listeners is
    /// luck, and a bench that connects once measures one draw.
    pub(crate) fn turn(&mut self, time: Duration, rate: Rate) -> Turn {
        let mut turn = Turn::default();
        let idle = self.connect(time);
        self.closed(time, &mut turn);
        let open = self.driver.open(rate, time);
        self.failures.merge(&open.failures);
        for (figure, quantile) in [
            (columns::P50, 0.5),
            (columns::P99, 0.99),
            (columns::P999, 0.999),
        ] {
            turn.set(figure, open.latency(quantile).as_secs_f64() * 1e6);
        }
        if self.question.tells_workers(self.server.model) {
            turn.set(columns::BUSIEST, self.busiest());
        }
        let memory = pss(self.server.processes());
        turn.set(columns::MEMORY, memory as f64 / 1024.0);
        if let Some(idle) = idle {
            let growth = memory.saturating_sub(idle.before) as f64;
            turn.set(columns::IDLE, growth / self.question.idle as f64);
        }
        turn.failures = mem::take(&mut self.failures);
        turn
    }

    /// New connections; with idle ones beside them a new server too.
    fn connect(&mut self, time: Duration) -> Option<Idle> {
        if self.question.idle == 0 {
            self.driver = Driver::new(self.question.plan(self.server.address));
            let warm = self.driver.warm();
            self.failures.merge(&warm.failures);
            return None;
        }
        let server = Server::start(self.server.model, &self.question.app, self.workers);
        self.driver = Driver::new(self.question.plan(server.address));
        self.server = server;
        let busy = self.driver.closed(Extent::For(time));
        let before = pss(self.server.processes());
        let mut driver = Driver::new(self.question.idle_plan(self.server.address));
        let warm = driver.warm();
        self.failures.merge(&busy.failures);
        self.failures.merge(&warm.failures);
        Some(Idle {
            _connections: driver,
            before,
        })
    }

    fn closed(&mut self, time: Duration, turn: &mut Turn) {
        let (server, driver) = (self.server.processes(), Processes::this_one());
        let (server_before, driver_before) = (server.used(), driver.used());
        let outcome = self.driver.closed(Extent::For(time));
        let (server_after, driver_after) = (server.used(), driver.used());

        let requests = outcome.answered.max(1) as f64;
        let micros = |time: Duration| time.as_secs_f64() * 1e6 / requests;
        turn.set(columns::PER_SECOND, outcome.per_second());
        turn.set(columns::CPU, micros(server_after.since(&server_before)));
        turn.set(columns::DRIVER, micros(driver_after.since(&driver_before)));
        turn.set(columns::RESPONSE, outcome.response_bytes as f64);
        self.failures.merge(&outcome.failures);
    }

    /// The share of the connections, in per cent, that the worker with the most has.
    fn busiest(&mut self) -> f64 {
        let mut workers = vec![0_u32; self.server.workers];
        let outcome: Outcome = self.driver.ask_each(&Ask::get("/who"), |_, told| {
            let number = str::from_utf8(told).ok().and_then(|it| it.parse().ok());
            let number: usize = number.expect("our own handler tells a number");
            workers[number] += 1;
        });
        self.failures.merge(&outcome.failures);
        let most = workers.iter().max().copied().unwrap_or_default();
        100.0 * f64::from(most) / f64::from(workers.iter().sum::<u32>().max(1))
    }
}

/// Connections at rest.
struct Idle {
    _connections: Driver,
    /// What the server had in memory before they came, in bytes.
    before: u64,
}
