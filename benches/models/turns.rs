//! Rounds in which every server has its turn.

use std::env;
use std::fmt;
use std::time::Duration;

use crate::case::Case;
use crate::command_line::Extent;
use crate::load::Rate;
use crate::progress::Progress;
use crate::question::Question;
use crate::results;
use crate::server::Model;

/// How many rounds, instead of the usual number.
const ROUNDS: &str = "PREFORK_BENCH_ROUNDS";

/// The open loop's share of what the slowest server can do. All servers of a question are asked
/// equally often, and none is near its end: latency at the end is the queue's, not the server's.
const OPEN_SHARE: f64 = 0.5;

pub(crate) struct Turns {
    rounds: usize,
    /// Of a closed loop, and of an open one.
    time: Duration,
}

impl Turns {
    pub(crate) fn of(extent: Extent) -> Self {
        let (rounds, millis) = match extent {
            Extent::Smoke => (1, 20),
            Extent::Quick => (1, 100),
            Extent::Full => (5, 1000),
        };
        let wanted = env::var(ROUNDS).ok().map(|text| {
            let rounds = text.parse().ok().filter(|&rounds| rounds > 0);
            rounds.unwrap_or_else(|| panic!("{ROUNDS}: \"{text}\" is no number of rounds"))
        });
        Self {
            rounds: wanted.unwrap_or(rounds),
            time: Duration::from_millis(millis),
        }
    }

    /// One more than are measured: the first finds the open loop's rate.
    pub(crate) fn all_rounds(&self) -> usize {
        self.rounds + 1
    }

    pub(crate) fn take(
        &self,
        question: &Question,
        models: &[Model],
        progress: &mut Progress,
    ) -> Vec<results::Case> {
        let (_neighbour, workers) = question.place.prepare();
        let mut cases = Vec::new();
        let mut slowest = f64::INFINITY;
        for &model in models {
            progress.step(question.name, model.name());
            let mut case = Case::start(question, model, workers);
            slowest = slowest.min(case.trial(self.time / 2));
            cases.push(case);
        }
        // A server that answers nothing at all has failures to tell, and the others go on.
        let rate = (slowest * OPEN_SHARE).max(1.0);
        for _ in 0..self.rounds {
            for (case, model) in cases.iter_mut().zip(models) {
                progress.step(question.name, model.name());
                case.turn(self.time, Rate::per_second(rate));
            }
        }
        let cases = cases.into_iter();
        cases.map(|case| case.into_results(rate)).collect()
    }
}

impl fmt::Display for Turns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = self.time.as_millis();
        write!(
            f,
            "{} rounds in turn, each {millis} ms closed loop (requests/s, CPU) and {millis} ms \
             open loop at half of what the slowest can do (latencies); medians; ratios within a \
             round",
            self.rounds
        )
    }
}
