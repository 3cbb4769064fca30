//! What the HTTP benches share: the same load against three servers, first under criterion, then
//! in turn.
//!
//! Criterion measures one server after the other, which is right for following one of them over
//! time and wrong for comparing them: the machine drifts in between. So the table comes from rounds
//! in which every server has its turn, and shows medians of what happened within a round.

mod answer;
mod cpu;
mod driver;
mod opponents;
mod report;
mod server;

use std::time::{Duration, Instant};

use criterion::{Criterion, SamplingMode};

use self::cpu::Processes;
use self::driver::{Driver, Request, Requests};
use self::report::{Figures, Row};
use self::server::{Model, Server};

/// The binary's allocator, so that it does not make a difference here.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Odd, so that a median is one of them.
const ROUNDS: usize = 9;

/// Long against the ticks of `/proc/PID/stat`, should that be the clock; short against the drift.
const TURN: Duration = Duration::from_millis(300);

/// The `main` of a bench: sends `request` to every server that the command line selects.
pub(crate) fn compare(question: &str, request: &'static [u8]) {
    server::become_server_if_asked();

    let mut criterion = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_secs(1))
        .measurement_time(Duration::from_secs(4))
        .configure_from_args();
    let mut cases = under_criterion(&mut criterion, question, Request(request));
    criterion.final_summary();

    // Under `--test` criterion asks for one batch only, and under `--list` for none.
    cases.retain(|case| case.batches > 1);
    if !cases.is_empty() {
        report::print(question, &in_turn(&mut cases));
    }
}

/// One server under load. The driver comes first: dropped in this order, the server sees its
/// connections closed before it is asked to stop.
struct Case {
    driver: Driver,
    server: Server,
    request: Request,
    batches: usize,
    /// How long one request took in the last batch, to fit a turn into its time.
    pace: Duration,
    checked: u64,
}

fn under_criterion(criterion: &mut Criterion, question: &str, request: Request) -> Vec<Case> {
    let mut group = criterion.benchmark_group(question);
    group.sampling_mode(SamplingMode::Flat);
    let mut cases = Vec::new();
    for model in Model::ALL {
        // Started by the first batch: what the filter leaves out starts no server.
        let mut case = None;
        group.bench_function(model.name(), |bencher| {
            let case = case.get_or_insert_with(|| Case::start(model, request));
            bencher.iter_custom(|iterations| case.batch(Requests(iterations)));
        });
        cases.extend(case);
    }
    group.finish();
    cases
}

fn in_turn(cases: &mut [Case]) -> Vec<Row> {
    let mut rounds: Vec<Vec<Figures>> = cases.iter().map(|_| Vec::new()).collect();
    for _ in 0..ROUNDS {
        for (case, figures) in cases.iter_mut().zip(&mut rounds) {
            figures.push(case.turn());
        }
    }
    let rows = cases.iter().zip(rounds);
    rows.map(|(case, rounds)| case.row(rounds)).collect()
}

impl Case {
    fn start(model: Model, request: Request) -> Self {
        let server = Server::start(model);
        Self {
            driver: Driver::warm(server.address(), request),
            server,
            request,
            batches: 0,
            pace: Duration::ZERO,
            checked: 0,
        }
    }

    fn batch(&mut self, requests: Requests) -> Duration {
        let start = Instant::now();
        self.driver.run(requests);
        let wall = start.elapsed();

        self.batches += 1;
        self.checked += requests.0;
        self.pace = wall.div_f64(requests.0 as f64);
        wall
    }

    /// One turn, on connections of its own: how the kernel spreads 64 connections over listeners is
    /// luck, and a bench that connects once measures one draw.
    fn turn(&mut self) -> Figures {
        self.driver = Driver::warm(self.server.address(), self.request);
        let requests = TURN.div_duration_f64(self.pace).max(1.0);
        let requests = Requests(requests as u64);
        let (server, driver) = (self.server.processes(), Processes::this_one());

        let (server_before, driver_before) = (server.used(), driver.used());
        let wall = self.batch(requests);
        let (server_after, driver_after) = (server.used(), driver.used());

        Figures {
            wall: wall.div_f64(requests.0 as f64),
            server: server_after
                .since(&server_before)
                .div_f64(requests.0 as f64),
            driver: driver_after
                .since(&driver_before)
                .div_f64(requests.0 as f64),
        }
    }

    fn row(&self, rounds: Vec<Figures>) -> Row {
        Row {
            model: self.server.model(),
            workers: self.server.workers(),
            clock: self.server.processes().clock(),
            answer_bytes: self.driver.answer_bytes(),
            checked: self.checked,
            rounds,
        }
    }
}
