//! The figures of a run: as a file, so that two runs can be compared, and as tables and pictures.
//!
//! A run makes a sheet for each question, with a row for each server.

mod sample;
mod svg;
mod table;

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

pub(crate) use self::sample::{Sample, counted, written};
pub(crate) use self::svg::{Bar, Look, bars};
pub(crate) use self::table::{Cell, Table};
use super::load::{Failure, Failures};
use super::machine::Fact;

/// The figures of one turn of one server, by name.
pub(crate) type Round = BTreeMap<String, f64>;

/// What one server did.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Row {
    pub(crate) server: String,
    /// The same index in another row of the same sheet is the same round. Empty where the server
    /// did not get through.
    pub(crate) rounds: Vec<Round>,
    /// Requests that failed, by kind.
    pub(crate) failures: BTreeMap<String, u64>,
    /// Why rounds are empty.
    pub(crate) trouble: Option<String>,
}

impl Row {
    pub(crate) fn of(server: &str) -> Self {
        Self {
            server: server.to_owned(),
            ..Self::default()
        }
    }

    /// A figure of all rounds that have it.
    pub(crate) fn sample(&self, figure: &str) -> Option<Sample> {
        Sample::new(self.rounds.iter().filter_map(|it| it.get(figure).copied()))
    }

    pub(crate) fn median(&self, figure: &str) -> Option<f64> {
        self.sample(figure).map(|sample| sample.median())
    }

    /// The ratios of a figure to another row's, round by round.
    pub(crate) fn ratios(&self, to: &Self, figure: &str) -> Option<Sample> {
        let rounds = self.rounds.iter().zip(&to.rounds);
        Sample::new(
            rounds.filter_map(|(ours, theirs)| Some(ours.get(figure)? / theirs.get(figure)?)),
        )
    }

    pub(crate) fn count(&mut self, failures: &Failures) {
        for &kind in Failure::ALL {
            if failures.count(kind) > 0 {
                *self.failures.entry(kind.name().into()).or_default() += failures.count(kind);
            }
        }
    }

    pub(crate) fn failed(&self) -> u64 {
        self.failures.values().sum()
    }

    /// `0`, or like `3 reset, 1 eof`.
    pub(crate) fn failures(&self) -> String {
        let kinds = self.failures.iter();
        let kinds: Vec<_> = kinds
            .map(|(kind, count)| format!("{count} {kind}"))
            .collect();
        match kinds.is_empty() {
            true => "0".into(),
            false => kinds.join(", "),
        }
    }
}

/// What came of one question.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Sheet {
    pub(crate) question: String,
    /// What the load was.
    pub(crate) about: String,
    /// When it was over, RFC 3339.
    pub(crate) date: String,
    pub(crate) rows: Vec<Row>,
}

impl Sheet {
    pub(crate) fn new(question: &str, about: String, rows: Vec<Row>) -> Self {
        Self {
            question: question.to_owned(),
            about,
            date: Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            rows,
        }
    }

    pub(crate) fn row(&self, server: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.server == server)
    }
}

/// All that is known of one commit.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Results {
    /// With `-dirty` if the sources were others.
    pub(crate) commit: String,
    /// What the figures belong to: the machine, and the versions of what was measured.
    pub(crate) facts: Vec<Fact>,
    pub(crate) sheets: Vec<Sheet>,
}

impl Results {
    /// Those of the sources as they are.
    pub(crate) fn new(facts: Vec<Fact>) -> Self {
        Self {
            commit: commit(),
            facts,
            sheets: Vec::new(),
        }
    }

    /// In place of older rows of the same server and question. The others stay.
    pub(crate) fn put(&mut self, sheet: Sheet) {
        let mut sheets = self.sheets.iter_mut();
        let Some(older) = sheets.find(|it| it.question == sheet.question) else {
            return self.sheets.push(sheet);
        };
        (older.about, older.date) = (sheet.about, sheet.date);
        for row in sheet.rows {
            match older.rows.iter_mut().find(|it| it.server == row.server) {
                Some(older) => *older = row,
                None => older.rows.push(row),
            }
        }
    }

    pub(crate) fn sheet(&self, question: &str) -> Option<&Sheet> {
        self.sheets.iter().find(|sheet| sheet.question == question)
    }

    pub(crate) fn read(path: &Path) -> io::Result<Self> {
        Ok(serde_json::from_slice(&fs::read(path)?)?)
    }

    /// Whole or not at all: a bench may be killed while it writes.
    pub(crate) fn write(&self, path: &Path) -> io::Result<()> {
        fs::create_dir_all(path.parent().expect("a file in a directory"))?;
        let unfinished = path.with_extension("unfinished");
        fs::write(&unfinished, serde_json::to_string_pretty(self)? + "\n")?;
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
