//! One commit's figures as a document.

use std::fmt::Write;

use crate::results::{Case, Metric, Results, markdown};

const YARDSTICK: &str = "multi_thread";
const OURS: &str = "prefork";

/// What is compared in the lists of wins and losses, and which way is good.
const JUDGED: [(Metric, &str, Better); 7] = [
    (Metric::PerSecond, "requests/s", Better::More),
    (Metric::Cpu, "CPU per request", Better::Less),
    (Metric::P50, "p50", Better::Less),
    (Metric::P99, "p99", Better::Less),
    (Metric::P999, "p99.9", Better::Less),
    (Metric::Memory, "memory", Better::Less),
    (Metric::Idle, "memory of an idle connection", Better::Less),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Better {
    More,
    Less,
}

/// Which side of 1 all rounds were on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Win,
    Loss,
}

pub(crate) fn document(results: &Results) -> String {
    let mut text = format!(
        "# Results\n\nWritten by `cargo bench --bench results -- report` from what `cargo bench \
         --bench models` has kept; not\nedited by hand. [README.md](README.md) says what each \
         column is and what is not measured.\n\n\
         - commit: {}\n- machine: {}\n- measured: {}\n- failed requests: {}\n",
        results.commit,
        results.machine,
        dates(results),
        results.cases.iter().map(Case::failed).sum::<u64>(),
    );
    for (verdict, head, none) in [
        (
            Verdict::Loss,
            "Where prefork loses",
            "Nowhere in these figures.",
        ),
        (
            Verdict::Win,
            "Where prefork wins",
            "Nowhere in these figures.",
        ),
    ] {
        let judged = judged(results, verdict);
        let list = if judged.is_empty() { none } else { &judged };
        write!(
            text,
            "\n## {head}\n\nAgainst `{YARDSTICK}`, where every round agrees; the ratio's median \
             and range.\n\n{list}\n"
        )
        .expect("a string takes everything");
    }
    text += "\n## All figures\n\nMedians of the rounds; ratios to `multi_thread` within a round.\n";
    for question in results.questions() {
        let cases = results.cases.iter();
        let cases: Vec<&Case> = cases.filter(|case| case.question == question).collect();
        let first = cases.first().expect("a question has been asked");
        write!(
            text,
            "\n### {question}\n\n{} connections, {} rounds, open loop at {:.0} requests/s\n\n{}",
            first.connections,
            first.rounds.len(),
            first.open_rate,
            markdown(&cases, YARDSTICK)
        )
        .expect("a string takes everything");
    }
    text
}

fn dates(results: &Results) -> String {
    let mut dates: Vec<&str> = results
        .cases
        .iter()
        .map(|case| case.date.as_str())
        .collect();
    dates.sort_unstable();
    match dates.as_slice() {
        [] => "never".into(),
        [only] => (*only).to_owned(),
        [first, .., last] => format!("{first} to {last}"),
    }
}

fn judged(results: &Results, wanted: Verdict) -> String {
    let mut text = String::new();
    for question in results.questions() {
        let ours = results.find(question, OURS);
        let Some((ours, theirs)) = ours.zip(results.find(question, YARDSTICK)) else {
            continue;
        };
        let figures = JUDGED.iter().filter_map(|&(metric, name, better)| {
            let ratios = ours.ratios(theirs, metric)?;
            let verdict = match (ratios.least() > 1.0, ratios.most() < 1.0) {
                (true, _) if better == Better::More => Verdict::Win,
                (_, true) if better == Better::Less => Verdict::Win,
                (true, _) | (_, true) => Verdict::Loss,
                (false, false) => return None,
            };
            (verdict == wanted).then(|| format!("{name} {ratios}"))
        });
        let figures: Vec<String> = figures.collect();
        if !figures.is_empty() {
            let figures = figures.join(", ");
            writeln!(text, "- `{question}`: {figures}").expect("a string takes everything");
        }
    }
    text.trim_end().to_owned()
}
