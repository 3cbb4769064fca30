//! The tables, best first.

use std::fmt::Write as _;

use super::Results;
use crate::latency::{Curve, QUANTILES};
use crate::series::{FLOOR, OURS, Row, Series, Spread, written};
use crate::slow_clients;

pub(super) struct Table {
    pub(super) title: String,
    head: Vec<String>,
    rows: Vec<Line>,
}

struct Line {
    cells: Vec<String>,
    /// What is said behind the cells.
    remark: Option<String>,
}

pub(super) fn all(results: &Results) -> Vec<Table> {
    let series = |series: &[Series]| series.iter().map(of_series).collect::<Vec<_>>();
    let mut tables = series(&results.cost);
    tables.extend(series(&results.handshakes));
    tables.extend(series(&results.idle));
    tables.extend(results.latency.iter().map(of_curve));
    if !results.slow_clients.is_empty() {
        tables.push(of_crowds(results));
    }
    tables.extend(series(&results.in_memory));
    tables
}

fn of_series(series: &Series) -> Table {
    let ratios = Ratios::of(series);
    let mut head = vec![
        "server".into(),
        series.unit.text().to_owned(),
        "range".into(),
    ];
    head.extend(ratios.head(""));
    head.push("failures".into());
    let rows = ascending(series).into_iter().map(|row| {
        let spread = row.spread();
        let range = spread.map(|it| format!("{}-{}", written(it.least), written(it.most)));
        let mut cells = vec![row.name.to_owned(), cell(row.median()), or_dash(range)];
        cells.extend(ratios.cells(row));
        cells.push(row.failures.to_string());
        line(cells, row)
    });
    Table {
        title: series.title.clone(),
        head,
        rows: rows.collect(),
    }
}

fn of_curve(curve: &Curve) -> Table {
    let p99 = &curve.series[QUANTILES.len() - 3];
    let ratios = Ratios::of(p99);
    let mut head = vec!["server".to_owned()];
    head.extend(QUANTILES.map(|(_, name)| name.to_owned()));
    head.extend(ratios.head("p99, "));
    head.push("failures".into());
    let rows = ascending(p99).into_iter().map(|row| {
        let mut cells = vec![row.name.to_owned()];
        cells.extend(medians(&curve.series, row.name));
        cells.extend(ratios.cells(row));
        cells.push(row.failures.to_string());
        line(cells, row)
    });
    Table {
        title: format!(
            "latency in us at {} requests per second",
            written(curve.rate.into())
        ),
        head,
        rows: rows.collect(),
    }
}

fn of_crowds(results: &Results) -> Table {
    let columns = &results.slow_clients;
    let mut head = vec!["server".to_owned()];
    head.extend(slow_clients::columns().map(str::to_owned));
    head.push("failures".into());
    let rows = ascending(&columns[0]).into_iter().map(|row| {
        let mut cells = vec![row.name.to_owned()];
        cells.extend(medians(columns, row.name));
        cells.push(row.failures.to_string());
        line(cells, row)
    });
    Table {
        title: slow_clients::title(&results.scale),
        head,
        rows: rows.collect(),
    }
}

/// What the other rows are compared with, as far as it is there and comparing means something.
struct Ratios<'a> {
    ours: Option<&'a Row>,
    floor: Option<&'a Row>,
}

impl<'a> Ratios<'a> {
    fn of(series: &'a Series) -> Self {
        let row = |name| match series.unit.is_compared() {
            true => series.row(name),
            false => None,
        };
        Self {
            ours: row(OURS),
            floor: row(FLOOR),
        }
    }

    fn head(&self, before: &str) -> Vec<String> {
        let ours = self.ours.map(|_| format!("{before}ours / it (range)"));
        let floor = self.floor.map(|_| format!("{before}it / floor (range)"));
        ours.into_iter().chain(floor).collect()
    }

    fn cells(&self, row: &Row) -> Vec<String> {
        let text = |ratio: Option<Spread>| or_dash(ratio.map(|it| it.to_string()));
        let ours = self.ours.map(|ours| text(ours.ratio(row)));
        let floor = self.floor.map(|floor| text(row.ratio(floor)));
        ours.into_iter().chain(floor).collect()
    }
}

/// Of one server, a cell for each series.
fn medians(columns: &[Series], name: &str) -> impl Iterator<Item = String> {
    let rows = columns.iter().map(move |series| series.row(name));
    rows.map(|row| cell(row.and_then(Row::median)))
}

/// Those without figures last.
pub(super) fn ascending(series: &Series) -> Vec<&Row> {
    let mut rows: Vec<_> = series.rows.iter().collect();
    let figure = |row: &Row| row.median().unwrap_or(f64::INFINITY);
    rows.sort_by(|a, b| figure(a).total_cmp(&figure(b)));
    rows
}

fn line(cells: Vec<String>, row: &Row) -> Line {
    let first = |trouble: &String| trouble.lines().next().unwrap_or_default().to_owned();
    Line {
        cells,
        remark: row.trouble.as_ref().map(first),
    }
}

fn cell(figure: Option<f64>) -> String {
    or_dash(figure.map(written))
}

fn or_dash(text: Option<String>) -> String {
    text.unwrap_or_else(|| "-".into())
}

impl Table {
    pub(super) fn for_a_terminal(&self) -> String {
        let widths: Vec<_> = (0..self.head.len()).map(|at| self.width(at)).collect();
        let mut text = format!("{}\n", self.title);
        let mut line = |cells: &[String], remark: Option<&str>| {
            for (at, (cell, &width)) in cells.iter().zip(&widths).enumerate() {
                // Writing to a string cannot fail.
                let _ = match at {
                    0 => write!(text, "{cell:<width$}"),
                    _ => write!(text, "  {cell:>width$}"),
                };
            }
            if let Some(remark) = remark {
                let _ = write!(text, "  {remark}");
            }
            text.push('\n');
        };
        line(&self.head, None);
        for row in &self.rows {
            line(&row.cells, row.remark.as_deref());
        }
        text
    }

    pub(super) fn as_markdown(&self) -> String {
        let mut text = format!("| {} |\n|---|", self.head.join(" | "));
        text.push_str(&"---:|".repeat(self.head.len() - 1));
        text.push('\n');
        for Line { cells, remark } in &self.rows {
            let mut cells = cells.clone();
            if let Some(remark) = remark {
                cells[0] = format!("{} ({})", cells[0], remark.replace('|', "/"));
            }
            if cells[0].starts_with(OURS) {
                cells[0] = format!("**{}**", cells[0]);
            }
            let _ = writeln!(text, "| {} |", cells.join(" | "));
        }
        text
    }

    fn width(&self, at: usize) -> usize {
        let cells = self.rows.iter().map(|row| &row.cells[at]);
        let cells = cells.chain([&self.head[at]]);
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    }
}
