//! Two commits side by side.

use std::fmt::Write;

use crate::results::{Case, Metric, Results, Sample};

/// The server that is the same in both, and so tells how much the machine has changed.
const YARDSTICK: &str = "multi_thread";

const METRICS: [Metric; 7] = [
    Metric::PerSecond,
    Metric::Cpu,
    Metric::P50,
    Metric::P99,
    Metric::P999,
    Metric::Memory,
    Metric::Idle,
];

pub(crate) fn print(before: &Results, after: &Results) {
    println!("first:  {}: {}", before.commit, before.machine);
    println!("second: {}: {}", after.commit, after.machine);
    if before.machine.cpu != after.machine.cpu || before.machine.cores != after.machine.cores {
        println!("These are different machines: only `net` means anything.");
    }
    println!(
        "\nratio: second to first, each round of one by each of the other: median and range \
         without the outer tenths\n\
         net: the same of the ratios to {YARDSTICK} within a round, which no commit of ours \
         changes: without\nwhat the machine did meanwhile; in brackets if the range includes 1, so \
         that there may be no difference\n"
    );
    println!(
        "{:<31} {:<14} {:>10} {:>10}  {:<18} {:<18}",
        "case", "figure", "first", "second", "ratio", "net"
    );
    for case in &after.cases {
        match before.find(&case.question, &case.server) {
            Some(earlier) => print!("{}", lines(earlier, case, before, after)),
            None => println!("{:<31} only in the second", name(case)),
        }
    }
    for case in &before.cases {
        if after.find(&case.question, &case.server).is_none() {
            println!("{:<31} only in the first", name(case));
        }
    }
}

fn lines(earlier: &Case, later: &Case, before: &Results, after: &Results) -> String {
    let mut text = String::new();
    for metric in METRICS {
        let samples = earlier.sample(metric).zip(later.sample(metric));
        let Some((first, second)) = samples else {
            continue;
        };
        let ratio = second.by(&first).map(Sample::inner);
        let net = net((before, earlier), (after, later), metric);
        writeln!(
            text,
            "{:<31} {:<14} {:>10.2} {:>10.2}  {:<18} {:<18}",
            name(later),
            metric.name(),
            first.median(),
            second.median(),
            ratio.map_or_else(|| "-".into(), |ratio| ratio.to_string()),
            net.map_or_else(|| "-".into(), |net| bracketed(&net)),
        )
        .expect("a string takes everything");
    }
    let (first, second) = (earlier.failed(), later.failed());
    if (first, second) != (0, 0) {
        let name = name(later);
        writeln!(text, "{name:<31} {:<14} {first:>10} {second:>10}", "failed")
            .expect("a string takes everything");
    }
    text
}

/// What is left of the ratio without the machine's part.
fn net(before: (&Results, &Case), after: (&Results, &Case), metric: Metric) -> Option<Sample> {
    let to_yardstick = |(results, case): (&Results, &Case)| {
        let yardstick = results.find(&case.question, YARDSTICK)?;
        (case.server != YARDSTICK).then(|| case.ratios(yardstick, metric))?
    };
    let ratio = to_yardstick(after)?.by(&to_yardstick(before)?)?;
    Some(ratio.inner())
}

fn bracketed(net: &Sample) -> String {
    match net.least() <= 1.0 && net.most() >= 1.0 {
        true => format!("[{net}]"),
        false => net.to_string(),
    }
}

fn name(case: &Case) -> String {
    format!("{}/{}", case.question, case.server)
}
