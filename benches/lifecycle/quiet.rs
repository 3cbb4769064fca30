//! How long a change takes without load.

use std::time::{Duration, Instant};

use crate::contender::{Event, Name};
use crate::process::Trouble;
use crate::report::{median, millis};

/// How long `count` changes of a quiet server with two workers take, each.
pub(crate) fn print_duration(name: Name, event: Event, count: usize) {
    let outcome = durations(name, event, count);
    print!("{:<19} {:<8} ", name.text(), event.name());
    match outcome {
        Ok(times) => println!(
            "{:>7.1} ms, median of {count} ({:.1} to {:.1})",
            millis(median(&times)),
            millis(times.iter().min().copied().unwrap_or_default()),
            millis(times.iter().max().copied().unwrap_or_default()),
        ),
        Err(trouble) => println!("{trouble}"),
    }
}

fn durations(name: Name, event: Event, count: usize) -> Result<Vec<Duration>, Trouble> {
    let mut server = name.start(2)?;
    let mut times = Vec::new();
    for _ in 0..count {
        let start = Instant::now();
        match event {
            Event::Upgrade => server.upgrade()?,
            _ => server.reload()?,
        }
        times.push(start.elapsed());
    }
    Ok(times)
}
