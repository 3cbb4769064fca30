//! One figure of several rounds.

use std::fmt;

/// Figures in ascending order, one from each round. Never empty.
#[derive(Clone, Debug)]
pub(crate) struct Sample(Vec<f64>);

impl Sample {
    /// Of those that are finite; `None` if none is.
    pub(crate) fn new(figures: impl Iterator<Item = f64>) -> Option<Self> {
        let mut figures: Vec<f64> = figures.filter(|figure| figure.is_finite()).collect();
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

    /// By each figure of another: what the ratio might be, where rounds of different runs have
    /// nothing in common but their number.
    pub(crate) fn by(&self, other: &Self) -> Option<Self> {
        let by_each = |ours: &f64| {
            other
                .0
                .iter()
                .map(|theirs| ours / theirs)
                .collect::<Vec<_>>()
        };
        Self::new(self.0.iter().flat_map(by_each))
    }

    /// Without the lowest tenth and the highest.
    pub(crate) fn inner(self) -> Self {
        let outside = self.0.len() / 10;
        let inside = self.0.len() - 2 * outside;
        Self(self.0.into_iter().skip(outside).take(inside).collect())
    }
}

/// The median and the range, as ratios are written.
impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (median, least, most) = (self.median(), self.least(), self.most());
        write!(f, "{median:.2} ({least:.2}-{most:.2})")
    }
}

/// Three digits and no more, as the fourth is noise: `0.50`, `12.0`, `12,345`.
pub(crate) fn written(figure: f64) -> String {
    match figure.abs() {
        it if it >= 100.0 => grouped(figure),
        it if it >= 10.0 => format!("{figure:.1}"),
        _ => format!("{figure:.2}"),
    }
}

/// A number of things, with every digit: `0`, `12,345`.
pub(crate) fn counted(count: usize) -> String {
    grouped(count as f64)
}

fn grouped(figure: f64) -> String {
    let mut text = format!("{figure:.0}");
    let mut at = text.len();
    let first = usize::from(figure < 0.0) + 3;
    while at > first {
        at -= 3;
        text.insert(at, ',');
    }
    text
}
