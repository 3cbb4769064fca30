//! Which case is at work, how many are left and how long they take, on standard error.

use std::time::{Duration, Instant};

/// How often a line is written.
const PAUSE: Duration = Duration::from_secs(10);

pub(crate) struct Progress {
    bench: &'static str,
    steps: usize,
    begun: usize,
    start: Instant,
    last_line: Option<Instant>,
}

impl Progress {
    pub(crate) fn new(bench: &'static str, steps: usize) -> Self {
        Self {
            bench,
            steps,
            begun: 0,
            start: Instant::now(),
            last_line: None,
        }
    }

    /// The next step begins. Estimates as if the steps to come took as long as those before.
    pub(crate) fn step(&mut self, question: &str, server: &str) {
        let over = self.begun;
        self.begun += 1;
        if self.last_line.is_some_and(|line| line.elapsed() < PAUSE) {
            return;
        }
        self.last_line = Some(Instant::now());
        let (bench, begun, steps) = (self.bench, self.begun, self.steps);
        let left = steps.saturating_sub(over) as f64 / over.max(1) as f64;
        let left = self.start.elapsed().mul_f64(left).as_secs();
        let left = match over {
            0 => String::new(),
            _ => format!(", about {left} s left"),
        };
        eprintln!("{bench} {begun}/{steps}: {question}/{server}{left}");
    }
}
