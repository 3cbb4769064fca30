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
        "\nratio: second to first, the median of the rounds and their range\n\
         machine: the same of {YARDSTICK}, which no commit of ours changes: it shows the noise\n\
         net: ratio by machine; in brackets if it may be noise: the range includes 1, or that of \
         the machine\nincludes the ratio\n"
    );
    println!(
        "{:<36} {:<15} {:>10} {:>10}  {:<18} {:<18} {:>8}",
        "case", "figure", "first", "second", "ratio", "machine", "net"
    );
    for case in &after.cases {
        match before.find(&case.question, &case.server) {
            Some(earlier) => print!("{}", lines(earlier, case, before, after)),
            None => println!("{:<36} only in the second", name(case)),
        }
    }
    for case in &before.cases {
        if after.find(&case.question, &case.server).is_none() {
            println!("{:<36} only in the first", name(case));
        }
    }
}

fn lines(earlier: &Case, later: &Case, before: &Results, after: &Results) -> String {
    let machine = |metric| {
        let earlier = before.find(&earlier.question, YARDSTICK)?;
        let later = after.find(&later.question, YARDSTICK)?;
        later.ratios(earlier, metric)
    };
    let mut text = String::new();
    for metric in METRICS {
        let figures = (earlier.sample(metric), later.sample(metric));
        let (Some(first), Some(second)) = figures else {
            continue;
        };
        let Some(ratios) = later.ratios(earlier, metric) else {
            continue;
        };
        let machine = machine(metric);
        let shown = machine
            .as_ref()
            .map_or_else(|| "-".into(), Sample::to_string);
        writeln!(
            text,
            "{:<36} {:<15} {:>10.2} {:>10.2}  {:<18} {shown:<18} {:>8}",
            name(later),
            metric.name(),
            first.median(),
            second.median(),
            ratios.to_string(),
            net(&ratios, machine.as_ref()),
        )
        .expect("a string takes everything");
    }
    if (earlier.failed(), later.failed()) != (0, 0) {
        let (first, second) = (earlier.failed(), later.failed());
        writeln!(
            text,
            "{:<36} failed          {first:>10} {second:>10}",
            name(later)
        )
        .expect("a string takes everything");
    }
    text
}

/// What is left of the ratio without the machine's part.
fn net(ratios: &Sample, machine: Option<&Sample>) -> String {
    let drift = machine.map_or(1.0, Sample::median);
    let net = ratios.median() / drift;
    let is_noise = ratios.least() <= 1.0 && ratios.most() >= 1.0
        || machine.is_some_and(|machine| machine.least() <= ratios.median())
            && machine.is_some_and(|machine| machine.most() >= ratios.median());
    match is_noise {
        true => format!("({net:.2})"),
        false => format!("{net:.2}"),
    }
}

fn name(case: &Case) -> String {
    format!("{}/{}", case.question, case.server)
}
