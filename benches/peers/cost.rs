//! What a request costs a server in CPU time: user and system time of all its processes and
//! threads, divided by the requests that were answered.

use std::time::Duration;

use crate::load::{Ask, Driver, End, Extent, Pipeline, Plan};
use crate::peer::{Allocator, BODY, Peer, Running};
use crate::process::Trouble;
use crate::question::Figure;
use crate::session::Session;
use crate::support::turns::Turn;

/// Enough to keep a server busy, few enough to stay in the caches.
pub(crate) const CONNECTIONS: usize = 64;

const LOADS: [(&str, &str); 3] = [
    (
        "cpu_keep_alive",
        "CPU per request, 64 kept-alive connections",
    ),
    (
        "cpu_pipelined",
        "CPU per request, 64 connections, 16 requests at once",
    ),
    (
        "cpu_close",
        "CPU per request, 64 at a time, a connection each",
    ),
];

const LENGTH: (&str, &str) = (
    "answer_length",
    "length of a kept-alive answer: who sends more headers does more",
);

pub(crate) fn figures() -> Vec<Figure> {
    let mut figures: Vec<_> = LOADS
        .map(|(key, title)| Figure::compared(key, title, "us"))
        .into();
    figures.push(Figure::told(LENGTH.0, LENGTH.1, "bytes"));
    figures
}

/// The request that every server can answer.
pub(crate) fn hello() -> Ask {
    Ask::get("/").expecting(BODY)
}

pub(crate) fn plan(server: &Running, ask: Ask) -> Plan {
    Plan::new(server.address, CONNECTIONS, ask)
}

pub(crate) fn turn(session: &Session, peer: Peer) -> Result<Turn, Trouble> {
    let server = session.start(peer, Allocator::Mimalloc)?;
    let mut turn = Turn::default();
    let plans = [
        plan(&server, hello()),
        plan(&server, hello()).pipelined(Pipeline(16)),
        plan(&server, hello().closing()),
    ];
    for ((key, _), plan) in LOADS.into_iter().zip(plans) {
        let length = of_load(&server, plan, session.scale.turn, (key, &mut turn))?;
        turn.round.entry(LENGTH.0.into()).or_insert(length as f64);
    }
    Ok(turn)
}

/// Sets the figure to what a request of this load costs, once the server has seen it for a while.
/// Gives the length of a response.
pub(crate) fn of_load(
    server: &Running,
    plan: Plan,
    time: Duration,
    (figure, turn): (&str, &mut Turn),
) -> Result<usize, Trouble> {
    let mut driver = Driver::new(plan);
    driver.warm();
    // Its pools and the branch predictors have seen this load before it is measured.
    let _ = driver.closed(Extent::For(time / 5));
    let (micros, length) = of(server, &mut driver, time, turn)?;
    turn.set(figure, micros);
    Ok(length)
}

/// What a request costs while `driver` asks for `time`, and the length of a response.
pub(crate) fn of(
    server: &Running,
    driver: &mut Driver,
    time: Duration,
    turn: &mut Turn,
) -> Result<(f64, usize), Trouble> {
    let processes = server.cpu();
    let before = processes.used();
    let outcome = driver.closed(Extent::For(time));
    let used = processes.used().since(&before);
    if outcome.end == End::OverBudget || outcome.answered == 0 {
        let failures = outcome.failures;
        return Err(Trouble::Stuck(format!("{failures}\n{}", server.log())));
    }
    turn.failures.merge(&outcome.failures);
    let micros = used.as_secs_f64() * 1e6 / outcome.answered as f64;
    Ok((micros, outcome.answer_bytes))
}
