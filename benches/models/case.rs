//! One server under one load.

use std::mem;
use std::time::Duration;

use nix::time::ClockId;

use crate::columns;
use crate::greedy::Greedy;
use crate::load::{Ask, Driver, Extent, Failures, Plan};
use crate::questions::{Loop, Question};
use crate::server::{Model, Server};
use crate::support::process::Trouble;
use crate::support::tree::time_of;
use crate::support::turns::Turn;

/// The driver comes first: dropped in this order, the server sees its connections closed before it
/// is stopped.
pub(crate) struct Case<'a> {
    driver: Driver,
    server: Server,
    cpus: &'a [usize],
    question: &'a Question,
    /// Since the last turn.
    failures: Failures,
}

impl<'a> Case<'a> {
    pub(crate) fn start(
        question: &'a Question,
        model: Model,
        cpus: &'a [usize],
    ) -> Result<Self, Trouble> {
        let server = Server::start(model, &question.app, cpus)?;
        let mut driver = Driver::new(server.address, question.plan.clone());
        let failures = driver.warm().failures;
        Ok(Self {
            driver,
            server,
            cpus,
            question,
            failures,
        })
    }

    /// Right responses in a second, before anything is measured.
    pub(crate) fn trial(&mut self, time: Duration) -> f64 {
        let outcome = self.driver.closed(Extent::For(time));
        self.failures.merge(&outcome.failures);
        outcome.per_second()
    }

    /// One turn, on connections of its own: how the kernel spreads 64 connections over listeners is
    /// luck, and a bench that connects once measures one draw.
    pub(crate) fn turn(&mut self, time: Duration, per_second: f64) -> Result<Turn, Trouble> {
        let mut turn = Turn::default();
        let idle = self.connect(time)?;
        let greedy = self.question.greedy.clone();
        let greedy = greedy.map(|ask| Greedy::start(self.server.address, ask));
        self.settle(Loop::Closed, time, per_second);
        self.closed(time, &mut turn);
        self.settle(Loop::Open, time, per_second);
        let open = self.driver.open(per_second, time);
        self.failures.merge(&open.failures);
        for (figure, quantile) in [
            (columns::P50, 0.5),
            (columns::P99, 0.99),
            (columns::P999, 0.999),
        ] {
            turn.set(figure, open.latency(quantile).as_secs_f64() * 1e6);
        }
        if let Some(greedy) = greedy {
            self.failures.merge(&greedy.stop());
        }
        if self.question.tells_workers(self.server.model) {
            turn.set(columns::BUSIEST, self.busiest());
        }
        let memory = self.server.tree().memory();
        turn.set(columns::MEMORY, memory as f64 / 1024.0);
        if let Some((_connections, before)) = idle {
            let growth = memory.saturating_sub(before) as f64;
            turn.set(columns::IDLE, growth / self.question.idle as f64);
        }
        turn.failures = mem::take(&mut self.failures);
        Ok(turn)
    }

    /// New connections; with idle ones beside them a new server too. Gives the idle ones, and what
    /// the server had in memory before they came, in bytes.
    fn connect(&mut self, time: Duration) -> Result<Option<(Driver, u64)>, Trouble> {
        let question = self.question;
        if question.idle == 0 {
            self.driver = Driver::new(self.server.address, question.plan.clone());
            let warm = self.driver.warm();
            self.failures.merge(&warm.failures);
            return Ok(None);
        }
        let server = Server::start(self.server.model, &question.app, self.cpus)?;
        self.driver = Driver::new(server.address, question.plan.clone());
        self.server = server;
        let busy = self.driver.closed(Extent::For(time));
        let before = self.server.tree().memory();
        let plan = Plan::new(question.idle, question.plan.usual.clone());
        let mut driver = Driver::new(self.server.address, plan);
        let warm = driver.warm();
        self.failures.merge(&busy.failures);
        self.failures.merge(&warm.failures);
        Ok(Some((driver, before)))
    }

    /// The same load as in the loop that comes next, if the server needs it. Nothing is measured.
    fn settle(&mut self, next: Loop, time: Duration, per_second: f64) {
        if self.question.settles_before != Some(next) {
            return;
        }
        let time = 4 * time;
        let outcome = match next {
            Loop::Closed => self.driver.closed(Extent::For(time)),
            Loop::Open => self.driver.open(per_second, time),
        };
        self.failures.merge(&outcome.failures);
    }

    fn closed(&mut self, time: Duration, turn: &mut Turn) {
        let used = || {
            let driver = time_of(ClockId::CLOCK_PROCESS_CPUTIME_ID);
            [self.server.tree().cpu_time(), driver]
        };
        let before = used();
        let outcome = self.driver.closed(Extent::For(time));
        let after = used();

        let requests = outcome.answered.max(1) as f64;
        let micros = |time: Duration| time.as_secs_f64() * 1e6 / requests;
        turn.set(columns::PER_SECOND, outcome.per_second());
        turn.set(columns::CPU, micros(after[0] - before[0]));
        turn.set(columns::DRIVER, micros(after[1] - before[1]));
        turn.set(columns::RESPONSE, outcome.response_bytes as f64);
        self.failures.merge(&outcome.failures);
    }

    /// The share of the connections, in per cent, that the worker with the most has.
    fn busiest(&mut self) -> f64 {
        let mut workers = vec![0_u32; self.server.workers];
        let outcome = self.driver.ask_each(&Ask::get("/who"), |_, told| {
            let number = str::from_utf8(told).ok().and_then(|it| it.parse().ok());
            let number: usize = number.expect("our own handler tells a number");
            workers[number] += 1;
        });
        self.failures.merge(&outcome.failures);
        let most = workers.iter().max().copied().unwrap_or_default();
        100.0 * f64::from(most) / f64::from(workers.iter().sum::<u32>().max(1))
    }
}
