//! How long responses take at constant rates, from the moment a request was meant to be sent.

use crate::cost::{hello, plan};
use crate::load::{Driver, Rate};
use crate::options::Scale;
use crate::peer::{Allocator, Peer};
use crate::process::Trouble;
use crate::question::Figure;
use crate::session::Session;
use crate::support::turns::Turn;

/// The share of the requests that took no longer, and what it is called.
pub(crate) const QUANTILES: [(f64, &str); 5] = [
    (0.5, "p50"),
    (0.9, "p90"),
    (0.99, "p99"),
    (0.999, "p99.9"),
    (1.0, "max"),
];

pub(crate) fn key(rate: u32, quantile: &str) -> String {
    format!("latency_{rate}_{quantile}")
}

pub(crate) fn figures(scale: &Scale) -> Vec<Figure> {
    let figure = |rate: &u32, name| Figure::compared(key(*rate, name), name, "us");
    let of_rate = |rate| QUANTILES.map(|(_, name)| figure(rate, name));
    scale.rates.iter().flat_map(of_rate).collect()
}

pub(crate) fn turn(session: &Session, peer: Peer) -> Result<Turn, Trouble> {
    let server = session.start(peer, Allocator::Mimalloc)?;
    let mut turn = Turn::default();
    for &rate in session.scale.rates {
        let mut driver = Driver::new(plan(&server, hello()));
        driver.warm();
        let per_second = Rate::per_second(f64::from(rate));
        // Not the first that it sees of this rate.
        let _ = driver.open(per_second, session.scale.at_a_rate / 5);
        let outcome = driver.open(per_second, session.scale.at_a_rate);
        turn.failures.merge(&outcome.failures);
        for (quantile, name) in QUANTILES {
            turn.set(
                key(rate, name),
                outcome.latency(quantile).as_secs_f64() * 1e6,
            );
        }
    }
    Ok(turn)
}
