//! A question's table: one server a row, for the terminal and for a document.

use std::fmt::Write;

use super::{Case, Metric, Sample};

/// What a column shows of a case, beside the one that ratios are made to.
struct Column {
    head: &'static str,
    text: fn(&Case, Option<&Case>) -> String,
}

const COLUMNS: [Column; 14] = [
    Column {
        head: "server",
        text: |case, _| case.server.clone(),
    },
    Column {
        head: "requests/s",
        text: |case, _| median(case, Metric::PerSecond, 0),
    },
    Column {
        head: "ratio",
        text: |case, to| ratio(case, to, Metric::PerSecond),
    },
    Column {
        head: "CPU us",
        text: |case, _| median(case, Metric::Cpu, 2),
    },
    Column {
        head: "ratio (range)",
        text: |case, to| ratio_and_range(case, to, Metric::Cpu),
    },
    Column {
        head: "p50 us",
        text: |case, _| median(case, Metric::P50, 0),
    },
    Column {
        head: "p99 us",
        text: |case, _| median(case, Metric::P99, 0),
    },
    Column {
        head: "p99.9 us",
        text: |case, _| median(case, Metric::P999, 0),
    },
    Column {
        head: "memory MiB",
        text: |case, _| match case.sample(Metric::Memory) {
            Some(sample) => format!("{:.1}", sample.median() / 1024.0),
            None => "-".into(),
        },
    },
    Column {
        head: "idle B",
        text: |case, _| median(case, Metric::Idle, 0),
    },
    Column {
        head: "busiest worker",
        text: |case, _| busiest(case),
    },
    Column {
        head: "driver us",
        text: |case, _| median(case, Metric::Driver, 2),
    },
    Column {
        head: "answer B",
        text: |case, _| case.answer_bytes.to_string(),
    },
    Column {
        head: "failed",
        text: |case, _| failed(case),
    },
];

/// For the terminal.
pub(crate) fn print(question: &str, cases: &[Case], yardstick: &str) {
    let rows = rows(&cases.iter().collect::<Vec<_>>(), yardstick);
    let mut text = format!("{question}\n");
    for row in &rows {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let width = rows.iter().map(|row| row[column].chars().count()).max();
            let width = width.expect("there is a head");
            match column {
                0 => write!(line, "{cell:<width$}"),
                _ => write!(line, "  {cell:>width$}"),
            }
            .expect("a string takes everything");
        }
        text += line.trim_end();
        text += "\n";
    }
    println!("{text}");
}

/// For a document in Markdown.
pub(crate) fn markdown(cases: &[&Case], yardstick: &str) -> String {
    let mut lines = rows(cases, yardstick)
        .into_iter()
        .map(|row| format!("| {} |\n", row.join(" | ")));
    let head = lines.next().expect("there is a head");
    let rule = format!("|---|{}\n", "--:|".repeat(COLUMNS.len() - 1));
    head + &rule + &lines.collect::<String>()
}

/// The head, and the cases.
fn rows(cases: &[&Case], yardstick: &str) -> Vec<Vec<String>> {
    let to = cases.iter().find(|case| case.server == yardstick).copied();
    let mut rows = vec![COLUMNS.iter().map(|it| it.head.to_owned()).collect()];
    for case in cases {
        rows.push(COLUMNS.iter().map(|it| (it.text)(case, to)).collect());
    }
    rows
}

fn median(case: &Case, metric: Metric, digits: usize) -> String {
    match case.sample(metric) {
        Some(sample) => format!("{:.digits$}", sample.median()),
        None => "-".into(),
    }
}

fn ratio(case: &Case, to: Option<&Case>, metric: Metric) -> String {
    match to.and_then(|to| case.ratios(to, metric)) {
        Some(ratios) => format!("{:.2}", ratios.median()),
        None => "-".into(),
    }
}

fn ratio_and_range(case: &Case, to: Option<&Case>, metric: Metric) -> String {
    match to.and_then(|to| case.ratios(to, metric)) {
        Some(ratios) => ratios.to_string(),
        None => "-".into(),
    }
}

/// The share of the connections that the worker with the most had: 50 % is even with two workers.
fn busiest(case: &Case) -> String {
    let shares = case.spread.iter().filter_map(|round| {
        let all: u64 = round.iter().sum();
        let most = round.iter().max()?;
        (all > 0).then(|| 100.0 * *most as f64 / all as f64)
    });
    match Sample::new(shares) {
        Some(shares) => format!(
            "{:.0} % ({:.0}-{:.0})",
            shares.median(),
            shares.least(),
            shares.most()
        ),
        None => "-".into(),
    }
}

fn failed(case: &Case) -> String {
    let kinds = case.failures.iter();
    let kinds: Vec<_> = kinds
        .map(|(kind, count)| format!("{count} {kind}"))
        .collect();
    match kinds.is_empty() {
        true => "0".into(),
        false => kinds.join(", "),
    }
}
