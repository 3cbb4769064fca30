//! How long answers take at constant rates, from the moment a request was meant to be sent.

use std::time::Duration;

use crate::command_line::Scale;
use crate::cost::{CONNECTIONS, hello};
use crate::load::{Driver, Plan, Rate};
use crate::peer::{Allocator, Peer};
use crate::process::Trouble;
use crate::series::{Series, Unit, written};
use crate::session::{Session, Turn};

/// The share of the requests that took no longer, and what it is called.
pub(crate) const QUANTILES: [(f64, &str); 5] = [
    (0.5, "p50"),
    (0.9, "p90"),
    (0.99, "p99"),
    (0.999, "p99.9"),
    (1.0, "max"),
];

/// One rate's figures: a series for each of [`QUANTILES`].
pub(crate) struct Curve {
    pub(crate) rate: u32,
    pub(crate) series: Vec<Series>,
}

pub(crate) fn measure(session: &mut Session) -> Vec<Curve> {
    let rates = session.scale.rates;
    let (rounds, time) = (session.scale.rounds.third(), expected(&session.scale));
    let taken = session.in_turn("latency", rounds, time, turn);
    let curves = rates.iter().enumerate().map(|(at, &rate)| {
        let quantiles = QUANTILES.iter().enumerate();
        let series = quantiles.map(|(index, (_, name))| Series {
            key: format!("latency_{rate}_{name}"),
            title: format!(
                "{name} latency at {} requests per second",
                written(rate.into())
            ),
            unit: Unit::Micros,
            rows: taken
                .iter()
                .map(|taken| taken.row(at * QUANTILES.len() + index))
                .collect(),
        });
        Curve {
            rate,
            series: series.collect(),
        }
    });
    curves.collect()
}

/// How long a turn should take.
pub(crate) fn expected(scale: &Scale) -> Duration {
    Duration::from_millis(300) + scale.at_a_rate.mul_f64(1.3) * scale.rates.len() as u32
}

fn turn(session: &Session, peer: Peer) -> Result<Turn, Trouble> {
    let server = session.start(peer, Allocator::Mimalloc)?;
    let mut turn = Turn {
        figures: Vec::new(),
        failures: 0,
    };
    for &rate in session.scale.rates {
        let mut driver = Driver::new(Plan::new(server.address, CONNECTIONS, hello()));
        driver.warm();
        let rate = Rate::per_second(f64::from(rate));
        // Not the first that it sees of this rate.
        let _ = driver.open(rate, session.scale.at_a_rate / 5);
        let outcome = driver.open(rate, session.scale.at_a_rate);
        turn.failures += outcome.failures.total();
        for (quantile, _) in QUANTILES {
            turn.figures
                .push(outcome.latency(quantile).as_secs_f64() * 1e6);
        }
    }
    Ok(turn)
}
