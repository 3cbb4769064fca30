//! `status --watch`: the state of the server, again and again, with what has happened between.

use std::collections::HashMap;
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde_json::Value;

use super::summary::{slots, summary, text, workers};
use super::{Failure, Server, print};

/// Moves the cursor to the top left, and clears what is below it (ECMA-48).
const HOME: &str = "\x1b[H\x1b[J";

/// Ends when the reader of standard output has left, or the server has ended.
pub(super) fn watch(server: &Server, pause: Duration) -> Result<(), Failure> {
    let is_terminal = io::stdout().is_terminal();
    let mut before = Look::of(&server.status()?);
    loop {
        wait(pause);
        let status = server.status()?;
        let now = Look::of(&status);
        let lines = summary(&status) + &now.since(&before, &status);
        match is_terminal {
            true => print(&(HOME.to_owned() + &lines))?,
            false => print(&(lines + "\n"))?,
        }
        before = now;
    }
}

/// Waits for so long, or until the reader of standard output has left.
fn wait(pause: Duration) {
    let output = io::stdout();
    // No event is asked for: an error is reported all the same.
    let mut reader = [PollFd::new(output.as_fd(), PollFlags::empty())];
    let _ = poll(
        &mut reader,
        PollTimeout::try_from(pause).unwrap_or(PollTimeout::MAX),
    );
}

/// The counts at one moment.
struct Look {
    at: Instant,
    requests: u64,
    /// By the pid of the worker.
    of_workers: HashMap<u64, u64>,
}

impl Look {
    fn of(status: &Value) -> Self {
        let count = |value: &Value| value.as_u64().unwrap_or_default();
        Self {
            at: Instant::now(),
            requests: count(&status["totals"]["requests"]),
            of_workers: slots(status)
                .flat_map(workers)
                .map(|worker| (count(&worker["pid"]), count(&worker["requests_so_far"])))
                .collect(),
        }
    }

    /// Requests a second, of the server and of each worker, as bars.
    fn since(&self, before: &Self, status: &Value) -> String {
        let seconds = self.at.duration_since(before.at).as_secs_f64().max(0.001);
        let rate = |now: u64, then: u64| (now.saturating_sub(then) as f64 / seconds).round();
        let mut lines = format!("\n  {} requests/s\n", rate(self.requests, before.requests));
        let rates = slots(status).flat_map(workers).map(|worker| {
            let pid = worker["pid"].as_u64().unwrap_or_default();
            let now = self.of_workers.get(&pid).copied().unwrap_or_default();
            let then = before.of_workers.get(&pid).copied().unwrap_or_default();
            (text(&worker["slot"]), rate(now, then))
        });
        let rates: Vec<_> = rates.collect();
        let most = rates
            .iter()
            .fold(1.0, |most: f64, (_, rate)| most.max(*rate));
        for (slot, rate) in rates {
            let bar = "#".repeat((rate / most * 40.0).round() as usize);
            lines.push_str(&format!("  {slot:>4}  {rate:>9}  {bar}\n"));
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn rates_are_of_the_time_between_two_looks() {
        let status = |requests: u64| {
            // None is under way.
            let worker = json!({
                "slot": 3, "pid": 7, "requests": 0, "requests_so_far": requests
            });
            json!({ "totals": { "requests": requests }, "slots": [{ "workers": [worker] }] })
        };
        let mut before = Look::of(&status(10));
        let now = Look::of(&status(210));
        before.at = now.at - Duration::from_secs(2);
        let lines = now.since(&before, &status(210));
        assert!(lines.contains("100 requests/s"), "{lines}");
        assert!(lines.contains("   3        100  ####"), "{lines}");
    }
}
