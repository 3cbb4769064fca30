//! One commit's figures as a document.

use crate::columns::{self, YARDSTICK};
use crate::support::report::{Results, Row};

const OURS: &str = "prefork";

/// What is compared in the lists of wins and losses, and whether more is better.
const JUDGED: [(&str, &str, bool); 7] = [
    (columns::PER_SECOND, "requests/s", true),
    (columns::CPU, "CPU per request", false),
    (columns::P50, "p50", false),
    (columns::P99, "p99", false),
    (columns::P999, "p99.9", false),
    (columns::MEMORY, "memory", false),
    (columns::IDLE, "memory of an idle connection", false),
];

pub(crate) fn of(results: &Results) -> String {
    let dates = || results.sheets.iter().map(|sheet| sheet.date.as_str());
    let failed = results
        .sheets
        .iter()
        .flat_map(|sheet| &sheet.rows)
        .map(Row::failed);
    let facts = results
        .facts
        .iter()
        .map(|(name, fact)| format!("- {name}: {fact}\n"));
    let mut text = format!(
        "# Results\n\nWritten by `cargo bench --bench results -- report` from what `cargo bench \
         --bench models` has kept; not\nedited by hand. `results/columns.rs` says what each column \
         is.\n\n- commit: {}\n{}- measured: {} to {}\n- failed requests: {}\n",
        results.commit,
        facts.collect::<String>(),
        dates().min().unwrap_or_default(),
        dates().max().unwrap_or_default(),
        failed.sum::<u64>(),
    );
    for (wins, head) in [(false, "Where prefork loses"), (true, "Where prefork wins")] {
        let judged = judged(results, wins);
        let list = match judged.is_empty() {
            true => "Nowhere in these figures.\n",
            false => &judged,
        };
        text += &format!(
            "\n## {head}\n\nAgainst `{YARDSTICK}`, where every round agrees; the ratio's median \
             and range.\n\n{list}"
        );
    }
    text += &format!(
        "\n## All figures\n\nMedians of the rounds; ratios to `{YARDSTICK}` within a round.\n"
    );
    for sheet in &results.sheets {
        let table = columns::table(sheet).as_markdown(OURS);
        text += &format!("\n### {}\n\n{}\n\n{table}", sheet.question, sheet.about);
    }
    text
}

/// A line for each question in which all rounds of some figures are wins, or losses.
fn judged(results: &Results, wins: bool) -> String {
    let mut text = String::new();
    for sheet in &results.sheets {
        let Some((ours, theirs)) = sheet.row(OURS).zip(sheet.row(YARDSTICK)) else {
            continue;
        };
        let figures = JUDGED.iter().filter_map(|&(figure, name, more_is_better)| {
            let ratios = ours.ratios(theirs, figure)?;
            let is_wanted = match more_is_better == wins {
                true => ratios.least() > 1.0,
                false => ratios.most() < 1.0,
            };
            is_wanted.then(|| format!("{name} {ratios}"))
        });
        let figures: Vec<String> = figures.collect();
        if !figures.is_empty() {
            text += &format!("- `{}`: {}\n", sheet.question, figures.join(", "));
        }
    }
    text
}
