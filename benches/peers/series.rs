//! One figure of every server in every round, and how they compare.

use std::fmt;

use crate::peer::Peer;

/// What the ratios are to.
pub(crate) const OURS: &str = Peer::Prefork.text();
pub(crate) const FLOOR: &str = Peer::Floor.text();

/// One question's answers. The same index in two rows is the same round.
#[derive(Debug)]
pub(crate) struct Series {
    /// Unique, and the same from run to run.
    pub(crate) key: String,
    pub(crate) title: String,
    pub(crate) unit: Unit,
    pub(crate) rows: Vec<Row>,
}

/// What the figures are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    Micros,
    /// Of memory.
    Bytes,
    /// Told, and not compared: they explain other figures.
    ToldBytes,
    /// A ratio already.
    Times,
}

#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) rounds: Vec<Option<f64>>,
    /// Requests that failed, over all rounds.
    pub(crate) failures: u64,
    /// Why rounds are missing.
    pub(crate) trouble: Option<String>,
}

/// Median and range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    pub(crate) least: f64,
    pub(crate) median: f64,
    pub(crate) most: f64,
}

impl Series {
    pub(crate) fn row(&self, name: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.name == name)
    }
}

impl Unit {
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Micros => "us",
            Self::Bytes | Self::ToldBytes => "bytes",
            Self::Times => "times",
        }
    }

    /// Whether less is better, and by how much is worth telling.
    pub(crate) fn is_compared(self) -> bool {
        matches!(self, Self::Micros | Self::Bytes)
    }
}

impl Row {
    pub(crate) fn spread(&self) -> Option<Spread> {
        Spread::of(self.rounds.iter().flatten().copied())
    }

    pub(crate) fn median(&self) -> Option<f64> {
        self.spread().map(|it| it.median)
    }

    /// Round by round.
    pub(crate) fn ratio(&self, to: &Row) -> Option<Spread> {
        let pairs = self.rounds.iter().zip(&to.rounds);
        Spread::of(pairs.filter_map(|(ours, theirs)| Some((*ours)? / (*theirs)?)))
    }
}

impl Spread {
    fn of(figures: impl Iterator<Item = f64>) -> Option<Self> {
        let mut figures: Vec<f64> = figures.filter(|it| it.is_finite()).collect();
        figures.sort_by(f64::total_cmp);
        Some(Self {
            least: *figures.first()?,
            median: figures[figures.len() / 2],
            most: *figures.last()?,
        })
    }
}

/// As ratios are written.
impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2} ({:.2}-{:.2})", self.median, self.least, self.most)
    }
}

/// Three digits and no more: the fourth is noise.
pub(crate) fn written(figure: f64) -> String {
    match figure.abs() {
        it if it >= 100.0 => grouped(figure),
        it if it >= 10.0 => format!("{figure:.1}"),
        _ => format!("{figure:.2}"),
    }
}

/// Like `12,345`.
fn grouped(figure: f64) -> String {
    let digits = format!("{:.0}", figure.abs());
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    match figure < 0.0 {
        true => format!("-{text}"),
        false => text,
    }
}
