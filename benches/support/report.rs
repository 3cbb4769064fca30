//! The table after the benches: time and CPU per request, side by side.

use std::fmt;
use std::time::Duration;

use super::cpu::Clock;
use super::server::Model;

/// What the others are compared with: what most Rust servers run on.
const YARDSTICK: Model = Model::MultiThread;

/// What one request cost in one turn.
pub(crate) struct Figures {
    /// From the first request to the last answer, divided: the inverse of requests per second.
    pub(crate) wall: Duration,
    /// User and system time of all the server's processes.
    pub(crate) server: Duration,
    /// The same of the driver. Where it equals `wall`, the driver was the bottleneck and `wall`
    /// says nothing about the server.
    pub(crate) driver: Duration,
}

pub(crate) struct Row {
    pub(crate) model: Model,
    pub(crate) workers: usize,
    pub(crate) clock: Clock,
    pub(crate) answer_bytes: usize,
    pub(crate) checked: u64,
    /// One for each round; the same index in another row is the same round.
    pub(crate) rounds: Vec<Figures>,
}

pub(crate) fn print(question: &str, rows: &[Row]) {
    let yardstick = rows.iter().find(|row| row.model == YARDSTICK);
    println!(
        "{:<32} {:>7} {:>9} {:>6} {:>9} {:>18} {:>9} {:>7} {:>9}",
        "us per request, medians",
        "workers",
        "wall",
        "ratio",
        "CPU",
        "ratio (range)",
        "driver's",
        "bytes",
        "checked",
    );
    for row in rows {
        let name = format!("{question}/{}", row.model.name());
        let (wall_ratio, cpu_ratio) = match yardstick {
            Some(yardstick) => (
                format!("{:.2}", row.ratios(yardstick, |it| it.wall).median()),
                row.ratios(yardstick, |it| it.server).to_string(),
            ),
            None => ("-".into(), "-".into()),
        };
        println!(
            "{name:<32} {:>7} {:>9.2} {wall_ratio:>6} {:>9.2} {cpu_ratio:>18} {:>9.2} {:>7} {:>9}",
            row.workers,
            row.micros(|it| it.wall).median(),
            row.micros(|it| it.server).median(),
            row.micros(|it| it.driver).median(),
            row.answer_bytes,
            row.checked,
        );
    }
    if let Some(row) = rows.first() {
        println!(
            "{} rounds in turn; ratios to {} within a round; CPU from {}; a failed request would \
             have ended the bench\n",
            row.rounds.len(),
            YARDSTICK.name(),
            row.clock,
        );
    }
}

impl Row {
    fn micros(&self, pick: fn(&Figures) -> Duration) -> Sample {
        let rounds = self.rounds.iter();
        Sample::new(rounds.map(|round| pick(round).as_secs_f64() * 1e6))
    }

    fn ratios(&self, yardstick: &Row, pick: fn(&Figures) -> Duration) -> Sample {
        let rounds = self.rounds.iter().zip(&yardstick.rounds);
        Sample::new(rounds.map(|(ours, theirs)| pick(ours).div_duration_f64(pick(theirs))))
    }
}

/// One figure from every round, in ascending order.
struct Sample(Vec<f64>);

impl Sample {
    fn new(figures: impl Iterator<Item = f64>) -> Self {
        let mut figures: Vec<f64> = figures.collect();
        figures.sort_by(f64::total_cmp);
        Self(figures)
    }

    fn median(&self) -> f64 {
        self.0[self.0.len() / 2]
    }
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (least, most) = (self.0[0], self.0[self.0.len() - 1]);
        write!(f, "{:.2} ({least:.2}-{most:.2})", self.median())
    }
}
