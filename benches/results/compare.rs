//! Two commits side by side.

use std::collections::BTreeSet;

use crate::support::report::{Results, Row, Sample, Sheet, Table, written};

/// What no commit of ours changes, so that it tells how much the machine has changed: one in
/// `models`, one in `peers`.
const YARDSTICKS: [&str; 2] = ["multi_thread", "raw epoll"];

const LEGEND: &str = "\
ratio: second to first, each round of one by each of the other: median and range without the outer
tenths
net: the same of the ratios to multi_thread (in peers: to raw epoll) within a round, which no
commit of ours changes: without what the machine did meanwhile; in brackets if the range includes 1,
so that there may be no difference
";

pub(crate) fn text(before: &Results, after: &Results) -> String {
    let facts = |results: &Results| {
        let facts = results
            .facts
            .iter()
            .map(|(name, fact)| format!("{name} {fact}"));
        facts.collect::<Vec<_>>().join(", ")
    };
    let title = format!(
        "first:  {}: {}\nsecond: {}: {}\n\n{LEGEND}",
        before.commit,
        facts(before),
        after.commit,
        facts(after),
    );
    let head = ["case", "figure", "first", "second", "ratio", "net"];
    let mut table = Table::empty(title, &head);
    for later in &after.sheets {
        for row in &later.rows {
            let case = format!("{}/{}", later.question, row.server);
            let earlier = before.sheet(&later.question);
            match earlier.and_then(|sheet| Some((sheet, sheet.row(&row.server)?))) {
                Some(earlier) => lines(&case, earlier, (later, row), &mut table),
                None => table.push(&case, Err("only in the second")),
            }
        }
    }
    for sheet in &before.sheets {
        for row in &sheet.rows {
            let later = after
                .sheet(&sheet.question)
                .and_then(|sheet| sheet.row(&row.server));
            if later.is_none() {
                let case = format!("{}/{}", sheet.question, row.server);
                table.push(&case, Err("only in the first"));
            }
        }
    }
    table.for_a_terminal()
}

fn lines(case: &str, first: (&Sheet, &Row), second: (&Sheet, &Row), table: &mut Table) {
    let figures: BTreeSet<&String> = second
        .1
        .rounds
        .iter()
        .flat_map(|round| round.keys())
        .collect();
    for figure in figures {
        let samples = first.1.sample(figure).zip(second.1.sample(figure));
        let Some((before, after)) = samples else {
            continue;
        };
        let ratio = after.by(&before).map(Sample::inner);
        let net = to_yardstick(second, figure).zip(to_yardstick(first, figure));
        let net = net.and_then(|(after, before)| Some(after.by(&before)?.inner()));
        let cells = [
            figure.clone(),
            written(before.median()),
            written(after.median()),
            ratio.map_or_else(|| "-".into(), |ratio| ratio.to_string()),
            net.map_or_else(|| "-".into(), |net| bracketed(&net)),
        ];
        table.push(case, Ok::<_, &str>(&cells));
    }
    let (before, after) = (first.1.failures(), second.1.failures());
    if (before.as_str(), after.as_str()) != ("0", "0") {
        let cells = ["failed", &before, &after].map(str::to_owned);
        table.push(case, Ok::<_, &str>(&cells));
    }
}

/// What is left of a figure without the machine's part.
fn to_yardstick((sheet, row): (&Sheet, &Row), figure: &str) -> Option<Sample> {
    let yardstick = YARDSTICKS.into_iter().find_map(|name| sheet.row(name))?;
    (row.server != yardstick.server).then(|| row.ratios(yardstick, figure))?
}

fn bracketed(net: &Sample) -> String {
    match net.least() <= 1.0 && net.most() >= 1.0 {
        true => format!("[{net}]"),
        false => net.to_string(),
    }
}
