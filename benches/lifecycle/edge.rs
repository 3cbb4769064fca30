//! The edge of a drain: requests that are sent in the very moment when idle connections are closed.
//!
//! A request and an end of file can cross on the way, and then no server can answer. How many do is
//! a matter of how long the server has not looked when it closes, so it is a figure, not a verdict.

use std::time::{Duration, Instant};

use nix::poll::{PollTimeout, poll};

use crate::chance::Chance;
use crate::contender::Contender;
use crate::kept::Kept;
use crate::prefork::{Mode, Prefork};
use crate::process::Trouble;

/// Connections that are idle when the drain begins.
const CONNECTIONS: usize = 200;

/// When the first requests are sent, after the first worker began to drain. Idle connections are
/// closed after 100 ms, those of the second worker a reload's length later.
const FROM: Duration = Duration::from_millis(96);

/// For how long requests are sent.
const SPREAD_MILLIS: usize = 16;

#[derive(Default)]
struct Counts {
    answered: usize,
    /// Before the request was sent, which is no loss.
    closed: usize,
    lost: usize,
}

/// Prints what became of them in so many drains.
pub(crate) fn print(rounds: usize, seed: u64) -> Result<(), Trouble> {
    let counts = count(rounds, &mut Chance::new(seed));
    match &counts {
        Ok(counts) => println!(
            "edge of a drain: {} requests sent as idle connections were closed, {} lost ({} \
             connections were closed before)",
            counts.answered + counts.lost,
            counts.lost,
            counts.closed,
        ),
        Err(trouble) => println!("edge of a drain: {trouble}"),
    }
    counts.map(drop)
}

fn count(rounds: usize, chance: &mut Chance) -> Result<Counts, Trouble> {
    let mut server = Prefork::start(Mode::PerSlot, 2)?;
    let mut counts = Counts::default();
    for _ in 0..rounds {
        let mut idle = Vec::new();
        for number in 0..CONNECTIONS {
            let connection = Kept::answering(server.address(), &token(number))?;
            let at = FROM + chance.millis_below(SPREAD_MILLIS);
            idle.push((at, number, connection));
        }
        idle.sort_unstable_by_key(|&(at, number, _)| (at, number));
        server.begin_reload()?;
        send_at_the_edge(idle, Instant::now(), &mut counts)?;
        server.end_reload()?;
    }
    Ok(counts)
}

fn send_at_the_edge(
    idle: Vec<(Duration, usize, Kept)>,
    began: Instant,
    counts: &mut Counts,
) -> Result<(), Trouble> {
    let mut asked = Vec::new();
    for (at, number, mut connection) in idle {
        while began.elapsed() < at {
            poll(&mut [], PollTimeout::from(1_u8))?;
        }
        if !connection.is_open() {
            counts.closed += 1;
        } else if connection.send(&token(number)).is_ok() {
            asked.push((number, connection));
        } else {
            counts.lost += 1;
        }
    }
    for (number, mut connection) in asked {
        match connection.receive(&token(number))? {
            Some(_) => counts.answered += 1,
            None => counts.lost += 1,
        }
    }
    Ok(())
}

/// It appears nowhere else in an answer.
fn token(number: usize) -> String {
    format!("<the echo of request {number}>")
}
