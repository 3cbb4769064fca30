//! The table: what was lost, in numbers and per thousand events.

use std::time::Duration;

use crate::case::Case;
use crate::tally::Loss;

/// How many losses of our own are told in full.
const LOSSES_TOLD: usize = 12;

pub(crate) fn print_head() {
    print!(
        "{:<19} {:<8} {:>6} {:>9}",
        "server", "event", "events", "answered"
    );
    for loss in Loss::ALL {
        print!(" {:>10}", loss.name());
    }
    println!(" {:>11} {:>9}", "per 1,000", "median");
}

pub(crate) fn print_row(case: &Case) {
    let events = case.took.len();
    print!("{:<19} {:<8}", case.name.text(), case.event.name());
    match &case.trouble {
        Some(trouble) if events == 0 => {
            return println!(
                " {}",
                trouble.to_string().lines().next().unwrap_or_default()
            );
        }
        _ => print!(" {events:>6} {:>9}", case.tally.answered),
    }
    for loss in Loss::ALL {
        print!(" {:>10}", case.tally.count(loss));
    }
    let per_thousand = case.tally.avoidable() as f64 * 1000.0 / events as f64;
    println!(
        " {per_thousand:>11.1} {:>6.0} ms",
        millis(median(&case.took))
    );
}

/// What helps to find the cause.
pub(crate) fn print_losses(cases: &[Case]) {
    for case in cases.iter().filter(|case| case.is_failure()) {
        println!("\n{} of {}:", case.event.name(), case.name.text());
        if let Some(trouble) = &case.trouble {
            println!("  {trouble}");
        }
        println!("{}", case.log);
        let lost = case.tally.lost.iter();
        for lost in lost
            .filter(|lost| lost.loss.is_avoidable())
            .take(LOSSES_TOLD)
        {
            println!("  {lost}");
        }
    }
}

pub(crate) fn print_legend(seed: u64) {
    println!(
        "\nseed {seed}; per 1,000: requests lost per thousand events, without (held), which are \
         the open requests\nof killed workers; median: from the signal until the next event could \
         begin, under load"
    );
}

pub(crate) fn median(times: &[Duration]) -> Duration {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}

pub(crate) fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
