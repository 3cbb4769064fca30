//! Which pictures there are.

use super::Results;
use super::bars::{Bar, Bars};
use super::lines::{Line, Lines};
use super::table::ascending;
use crate::latency::{Curve, QUANTILES};
use crate::series::{Row, Series, written};

pub(super) struct Picture {
    pub(super) file: String,
    pub(super) title: String,
    pub(super) svg: String,
}

pub(super) fn all(results: &Results) -> Vec<Picture> {
    let bars = results.cost.iter().chain(&results.handshakes);
    let bars = bars
        .chain(&results.idle)
        .chain(&results.in_memory)
        .filter(|series| series.unit.is_compared());
    let mut pictures: Vec<_> = bars.map(of_series).collect();
    if let Some(slowest) = results.latency.last() {
        pictures.push(by_rate(&results.latency, slowest));
    }
    pictures.extend(results.latency.iter().map(of_curve));
    pictures
}

fn of_series(series: &Series) -> Picture {
    let bar = |row: &Row| {
        let figure = row.median()?;
        Some(Bar {
            name: row.name,
            figure,
        })
    };
    let bars = Bars {
        title: &series.title,
        unit: series.unit.text(),
        bars: ascending(series).into_iter().filter_map(bar).collect(),
    };
    Picture {
        file: format!("{}.svg", series.key),
        title: series.title.clone(),
        svg: bars.draw(),
    }
}

/// From the fastest answer to the slowest, at one rate.
fn of_curve(curve: &Curve) -> Picture {
    let title = format!(
        "latency at {} requests per second",
        written(curve.rate.into())
    );
    let line = |row: &Row| Line {
        name: row.name,
        figures: curve
            .series
            .iter()
            .map(|series| series.row(row.name).and_then(Row::median))
            .collect(),
    };
    let lines = Lines {
        title: &title,
        across: "share of the requests that took no longer",
        up: "us, logarithmic",
        places: QUANTILES
            .iter()
            .map(|(_, name)| (*name).to_owned())
            .collect(),
        lines: curve.series[0].rows.iter().map(line).collect(),
    };
    Picture {
        file: format!("latency_{}.svg", curve.rate),
        svg: lines.draw(),
        title,
    }
}

/// One in a hundred answers, at all rates.
fn by_rate(curves: &[Curve], any: &Curve) -> Picture {
    const P99: usize = 2;
    let title = "p99 latency by rate";
    let line = |row: &Row| Line {
        name: row.name,
        figures: curves
            .iter()
            .map(|curve| curve.series[P99].row(row.name).and_then(Row::median))
            .collect(),
    };
    let lines = Lines {
        title,
        across: "requests per second",
        up: "us, logarithmic",
        places: curves
            .iter()
            .map(|curve| written(curve.rate.into()))
            .collect(),
        lines: any.series[P99].rows.iter().map(line).collect(),
    };
    Picture {
        file: "latency_by_rate.svg".into(),
        title: title.into(),
        svg: lines.draw(),
    }
}
