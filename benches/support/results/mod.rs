//! The figures of a run as a file, so that two commits can be compared and tables made of them.
//!
//! One JSON object for each commit, in the target directory beneath `bench-results`. A case that is
//! measured again replaces its older figures; the others of the same commit stay.

mod columns;
mod json;
mod machine;

use std::collections::BTreeMap;
use std::env;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) use self::columns::{markdown, print};
pub(crate) use self::machine::Machine;

/// What one round of one case tells. The discriminants index a [`Round`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Metric {
    /// Right answers in a second, closed loop.
    PerSecond,
    /// CPU time of all the server's processes for a request, in microseconds.
    Cpu,
    /// The same of the driver. Close to a request's share of the wall clock, the driver was the
    /// bottleneck, and only the server's CPU time says something about the server.
    Driver,
    /// Latencies of the open loop, in microseconds.
    P50,
    P99,
    P999,
    /// Proportional set size of all the server's processes while the connections were open, KiB.
    Memory,
    /// What an idle connection adds to that, in bytes.
    Idle,
}

impl Metric {
    pub(crate) const ALL: [Self; 8] = [
        Self::PerSecond,
        Self::Cpu,
        Self::Driver,
        Self::P50,
        Self::P99,
        Self::P999,
        Self::Memory,
        Self::Idle,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::PerSecond => "requests_per_s",
            Self::Cpu => "cpu_us",
            Self::Driver => "driver_us",
            Self::P50 => "p50_us",
            Self::P99 => "p99_us",
            Self::P999 => "p999_us",
            Self::Memory => "memory_kib",
            Self::Idle => "idle_bytes",
        }
    }
}

/// The figures of one turn of one server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Round([Option<f64>; Metric::ALL.len()]);

impl Round {
    pub(crate) fn set(&mut self, metric: Metric, value: f64) {
        self.0[metric as usize] = Some(value);
    }

    pub(crate) fn get(&self, metric: Metric) -> Option<f64> {
        self.0[metric as usize]
    }
}

/// One server's answer to one question.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) question: String,
    pub(crate) server: String,
    /// When it was over, RFC 3339.
    pub(crate) date: String,
    pub(crate) workers: usize,
    pub(crate) connections: usize,
    /// The length of an answer with its head. Servers that send more headers do more work.
    pub(crate) answer_bytes: usize,
    /// Right answers, checked to the last byte, in all rounds.
    pub(crate) answered: u64,
    /// The open loop's requests in a second: the same for all servers of a question.
    pub(crate) open_rate: f64,
    /// Failed requests by kind.
    pub(crate) failures: BTreeMap<String, u64>,
    /// How many connections each worker had, round by round. Empty where none can be told.
    pub(crate) spread: Vec<Vec<u64>>,
    /// The same index in another case of the same question is the same round.
    pub(crate) rounds: Vec<Round>,
}

impl Case {
    /// The figures of all rounds that have one.
    pub(crate) fn sample(&self, metric: Metric) -> Option<Sample> {
        Sample::new(self.rounds.iter().filter_map(|round| round.get(metric)))
    }

    /// To another case, round by round.
    pub(crate) fn ratios(&self, to: &Self, metric: Metric) -> Option<Sample> {
        let rounds = self.rounds.iter().zip(&to.rounds);
        Sample::new(rounds.filter_map(|(ours, theirs)| {
            let ratio = ours.get(metric)? / theirs.get(metric)?;
            ratio.is_finite().then_some(ratio)
        }))
    }

    pub(crate) fn failed(&self) -> u64 {
        self.failures.values().sum()
    }
}

/// One figure from each round, in ascending order. Never empty.
#[derive(Clone, Debug)]
pub(crate) struct Sample(Vec<f64>);

impl Sample {
    pub(crate) fn new(figures: impl Iterator<Item = f64>) -> Option<Self> {
        let mut figures: Vec<f64> = figures.collect();
        figures.sort_by(f64::total_cmp);
        (!figures.is_empty()).then_some(Self(figures))
    }

    pub(crate) fn median(&self) -> f64 {
        let (lower, upper) = ((self.0.len() - 1) / 2, self.0.len() / 2);
        self.0[lower].midpoint(self.0[upper])
    }

    pub(crate) fn least(&self) -> f64 {
        self.0[0]
    }

    pub(crate) fn most(&self) -> f64 {
        self.0[self.0.len() - 1]
    }
}

impl Sample {
    /// By each figure of another: what the ratio might be, where rounds of different runs have
    /// nothing in common but their number.
    pub(crate) fn by(&self, other: &Self) -> Option<Self> {
        let ratios = self
            .0
            .iter()
            .flat_map(|ours| other.0.iter().map(move |theirs| ours / theirs));
        Self::new(ratios.filter(|ratio| ratio.is_finite()))
    }

    /// Without the lowest tenth and the highest.
    pub(crate) fn inner(self) -> Self {
        let outside = self.0.len() / 10;
        let inside = self.0.len() - 2 * outside;
        Self(self.0.into_iter().skip(outside).take(inside).collect())
    }
}

/// The median and the range.
impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (median, least, most) = (self.median(), self.least(), self.most());
        write!(f, "{median:.2} ({least:.2}-{most:.2})")
    }
}

/// All that is known of one commit.
#[derive(Clone, Debug)]
pub(crate) struct Results {
    /// With `-dirty` if the sources were others.
    pub(crate) commit: String,
    pub(crate) machine: Machine,
    pub(crate) cases: Vec<Case>,
}

impl Results {
    /// Those of the sources as they are, with what earlier runs have left in `path`.
    pub(crate) fn of_this_commit(path: &Path) -> Self {
        let earlier = Self::read(path).map_or_else(|_| Vec::new(), |results| results.cases);
        Self {
            commit: commit(),
            machine: Machine::this_one(),
            cases: earlier,
        }
    }

    /// In place of older figures of the same server and question.
    pub(crate) fn put(&mut self, case: Case) {
        let same = |it: &Case| it.question == case.question && it.server == case.server;
        match self.cases.iter_mut().find(|it| same(it)) {
            Some(older) => *older = case,
            None => self.cases.push(case),
        }
    }

    pub(crate) fn find(&self, question: &str, server: &str) -> Option<&Case> {
        let mut cases = self.cases.iter();
        cases.find(|case| case.question == question && case.server == server)
    }

    /// In the order in which they were first measured.
    pub(crate) fn questions(&self) -> Vec<&str> {
        let mut questions = Vec::new();
        for case in &self.cases {
            if !questions.contains(&case.question.as_str()) {
                questions.push(case.question.as_str());
            }
        }
        questions
    }

    pub(crate) fn read(path: &Path) -> io::Result<Self> {
        let malformed = || io::Error::other("these are no results of a bench");
        let value = serde_json::from_slice(&fs::read(path)?)?;
        json::results(&value).ok_or_else(malformed)
    }

    /// Whole or not at all: a bench may be killed while it writes.
    pub(crate) fn write(&self, path: &Path) -> io::Result<()> {
        fs::create_dir_all(path.parent().expect("a file in a directory"))?;
        let text = serde_json::to_string_pretty(&json::value(self))?;
        let unfinished = path.with_extension("unfinished");
        fs::write(&unfinished, text + "\n")?;
        fs::rename(&unfinished, path)
    }
}

/// Where the results of this commit are, such as `target/bench-results/48da937.json`.
pub(crate) fn path(suffix: &str) -> PathBuf {
    directory().join(format!("{}{suffix}.json", commit()))
}

/// `bench-results` beside the directory of the profile that this executable was built with.
pub(crate) fn directory() -> PathBuf {
    let this = env::current_exe().expect("proc(5) is mounted");
    // target/release/deps/models-0123
    let target = this.ancestors().nth(3).expect("cargo has built this");
    target.join("bench-results")
}

fn commit() -> String {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).output().ok()?;
        let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        output.status.success().then_some(text)
    };
    let Some(commit) = git(&["rev-parse", "--short", "HEAD"]) else {
        return "unknown".into();
    };
    match git(&["status", "--porcelain", "--untracked-files=no"]) {
        Some(changes) if changes.is_empty() => commit,
        _ => commit + "-dirty",
    }
}
