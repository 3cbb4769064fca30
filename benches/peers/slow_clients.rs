//! How long others' responses take while a crowd of slow clients comes and stays.
//!
//! It is p95, because what else runs on a machine now and then holds a CPU for more than one per
//! cent of two seconds, and each p99 would tell whether it did.

use crate::cost::{hello, plan};
use crate::crowd::{Crowd, Slow};
use crate::load::{Driver, Rate};
use crate::peer::{Allocator, Peer};
use crate::process::Trouble;
use crate::question::Figure;
use crate::session::Session;
use crate::support::turns::Turn;

/// Of the server alone, and beside each kind of crowd, also as times that.
pub(crate) fn figures() -> Vec<Figure> {
    let beside = Slow::ALL.into_iter().flat_map(|slow| {
        let key = slow.key();
        [
            Figure::compared(format!("slow_{key}"), key, "us"),
            Figure::told(format!("slow_{key}_times"), "times", "times"),
        ]
    });
    [Figure::compared("slow_none", "alone", "us")]
        .into_iter()
        .chain(beside)
        .collect()
}

pub(crate) fn turn(session: &Session, peer: Peer) -> Result<Turn, Trouble> {
    let server = session.start(peer, Allocator::Mimalloc)?;
    let (rate, time) = (session.scale.rates[0], session.scale.at_a_rate);
    let mut driver = Driver::new(plan(&server, hello()));
    driver.warm();
    let mut turn = Turn::default();
    let mut p95 = |time| {
        let outcome = driver.open(Rate::per_second(rate.into()), time);
        turn.failures.merge(&outcome.failures);
        outcome.latency(0.95).as_secs_f64() * 1e6
    };
    // Not the first that it sees of this rate.
    p95(time / 5);
    let alone = p95(time);
    let mut figures = vec![("slow_none".to_owned(), alone)];
    for slow in Slow::ALL {
        let mut crowd = Crowd::start(slow, server.address, session.scale.crowd, time / 2)?;
        let beside = p95(time);
        crowd.have_come()?;
        drop(crowd);
        let key = slow.key();
        figures.push((format!("slow_{key}"), beside));
        figures.push((format!("slow_{key}_times"), beside / alone));
        // The server has noticed that they are gone.
        p95(time / 5);
    }
    turn.round.extend(figures);
    Ok(turn)
}
