//! What connections at rest hold in a server's memory, and what they cost those that are not.

use std::time::Duration;

use crate::cost::{self, CONNECTIONS, hello};
use crate::files;
use crate::load::{Driver, Plan};
use crate::memory;
use crate::peer::{Allocator, Peer};
use crate::process::Trouble;
use crate::series::{Series, Unit, written};
use crate::session::{Session, Turn, series};

pub(crate) fn measure(session: &mut Session) -> Vec<Series> {
    session.scale.idle = files::allowed(session.scale.idle);
    let idle = written(session.scale.idle as f64);
    let (rounds, time) = (session.scale.rounds.third(), expected(session.scale.turn));
    let taken = session.in_turn("idle connections", rounds, time, turn);
    let beside = format!("CPU per request, 64 connections beside {idle} idle ones");
    let what = [
        (
            "idle_memory",
            format!("memory per connection, {idle} idle ones"),
            Unit::Bytes,
        ),
        (
            "idle_memory_none",
            "memory of the same servers before".into(),
            Unit::ToldBytes,
        ),
        ("idle_cpu_beside", beside.clone(), Unit::Micros),
        (
            "idle_cpu_alone",
            "CPU per request, the same 64 alone".into(),
            Unit::Micros,
        ),
        (
            "idle_cpu_ratio",
            format!("{beside}: times that alone"),
            Unit::Times,
        ),
    ];
    let figures = what.map(|(key, title, unit)| (key.into(), title, unit));
    series(&taken, figures)
}

/// How long a turn should take.
pub(crate) fn expected(turn: Duration) -> Duration {
    Duration::from_millis(6500) + turn * 5
}

/// Two servers of a kind, one with idle connections and one without, because one that has let them
/// go is not what it was before.
fn turn(session: &Session, peer: Peer) -> Result<Turn, Trouble> {
    let idle = session.scale.idle;
    let crowded = session.start(peer, Allocator::System)?;
    let empty = memory::at_rest(crowded.cpu())?;
    let mut crowd = Driver::new(Plan::new(crowded.address, idle, hello()));
    let mut failures = crowd.warm().failures.total();
    let full = memory::at_rest(crowded.cpu())?;

    let alone = session.start(peer, Allocator::System)?;
    let servers = [&crowded, &alone, &alone, &crowded];
    let mut drivers = [&crowded, &alone].map(|server| {
        let mut driver = Driver::new(Plan::new(server.address, CONNECTIONS, hello()));
        driver.warm();
        driver
    });
    let mut micros = [0.0; 2];
    for (server, which) in servers.into_iter().zip([0, 1, 1, 0]) {
        let cost = cost::of(server, &mut drivers[which], session.scale.turn)?;
        micros[which] += cost.micros / 2.0;
        failures += cost.failures;
    }
    if files::of(crowded.cpu()) < idle {
        return Err(Trouble::Stuck("it closed idle connections".into()));
    }
    let memory = full.0.saturating_sub(empty.0) as f64 / idle as f64;
    Ok(Turn {
        figures: vec![
            memory,
            empty.0 as f64,
            micros[0],
            micros[1],
            micros[0] / micros[1],
        ],
        failures,
    })
}
