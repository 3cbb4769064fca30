//! Which case is at work, how many are left and how long they take, on standard error.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

/// How often a log, where nothing can be overwritten, is told.
const TOLD_IN_A_LOG: Duration = Duration::from_secs(20);

pub(crate) struct Progress {
    phase: &'static str,
    steps: usize,
    begun: usize,
    start: Instant,
    told: Option<Instant>,
    is_terminal: bool,
}

impl Progress {
    pub(crate) fn new(phase: &'static str, steps: usize) -> Self {
        Self {
            phase,
            steps,
            begun: 0,
            start: Instant::now(),
            told: None,
            is_terminal: io::stderr().is_terminal(),
        }
    }

    /// The next step begins.
    pub(crate) fn step(&mut self, question: &str, server: &str) {
        self.begun += 1;
        let since_told = self.told.map(|told| told.elapsed());
        if !self.is_terminal && since_told.is_some_and(|time| time < TOLD_IN_A_LOG) {
            return;
        }
        self.told = Some(Instant::now());
        let (start, end) = match self.is_terminal {
            true => ("\r\x1b[2K", ""),
            false => ("", "\n"),
        };
        let (phase, begun, steps) = (self.phase, self.begun, self.steps);
        let left = self.left();
        eprint!("{start}{phase} {begun}/{steps}: {question}/{server}{left}{end}");
        // Nothing depends on whether it can be seen.
        let _ = io::stderr().flush();
    }

    /// Leaves the line to others.
    pub(crate) fn clear(&self) {
        if self.is_terminal {
            eprint!("\r\x1b[2K");
        }
    }

    pub(crate) fn end(&self) {
        self.clear();
        if self.steps > 1 {
            let took = self.start.elapsed().as_secs();
            eprintln!("{}: {} steps in {took} s", self.phase, self.steps);
        }
    }

    /// As if the steps to come took as long as those that are over.
    fn left(&self) -> String {
        let over = self.begun - 1;
        if over == 0 {
            return String::new();
        }
        let left = self.steps.saturating_sub(over) as f64;
        let left = self.start.elapsed().as_secs_f64() / over as f64 * left;
        match left.round() as u64 {
            seconds @ 0..100 => format!(", about {seconds} s left"),
            seconds => format!(", about {} min left", seconds.div_ceil(60)),
        }
    }
}
