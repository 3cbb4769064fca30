//! What connections at rest hold in a server's memory, and what they cost those that are not.

use crate::cost::{self, hello, plan};
use crate::load::{Driver, Plan};
use crate::options::Scale;
use crate::peer::{Allocator, Peer};
use crate::process::Trouble;
use crate::question::Figure;
use crate::report::written;
use crate::session::Session;
use crate::support::memory::{descriptors, pss_at_rest};
use crate::support::turns::Turn;

pub(crate) fn figures(scale: &Scale) -> Vec<Figure> {
    let idle = written(scale.idle as f64);
    let beside = format!("CPU per request, 64 connections beside {idle} idle ones");
    let times = format!("{beside}: times that alone");
    let memory = format!("memory per connection, {idle} idle ones");
    vec![
        Figure::compared("idle_memory", memory, "bytes"),
        Figure::told(
            "idle_memory_none",
            "memory of the same servers before",
            "bytes",
        ),
        Figure::compared("idle_cpu_beside", beside, "us"),
        Figure::compared("idle_cpu_alone", "CPU per request, the same 64 alone", "us"),
        Figure::told("idle_cpu_ratio", times, "times"),
    ]
}

/// Two servers: one with idle connections and one without, because one that has let them go is not
/// what it was before.
pub(crate) fn turn(session: &Session, peer: Peer) -> Result<Turn, Trouble> {
    let mut turn = Turn::default();
    let idle = session.scale.idle;
    let crowded = session.start(peer, Allocator::System)?;
    let empty = pss_at_rest(crowded.cpu())?;
    let mut crowd = Driver::new(Plan::new(crowded.address, idle, hello()));
    turn.failures.merge(&crowd.warm().failures);
    let full = pss_at_rest(crowded.cpu())?;

    let alone = session.start(peer, Allocator::System)?;
    let servers = [&crowded, &alone];
    let mut drivers = servers.map(|server| {
        let mut driver = Driver::new(plan(server, hello()));
        driver.warm();
        driver
    });
    let mut micros = [0.0; 2];
    for at in [0, 1, 1, 0] {
        let time = session.scale.turn;
        let (cost, _) = cost::of(servers[at], &mut drivers[at], time, &mut turn)?;
        micros[at] += cost / 2.0;
    }
    if descriptors(crowded.cpu()) < idle {
        return Err(Trouble::Stuck("it closed idle connections".into()));
    }
    turn.set(
        "idle_memory",
        full.saturating_sub(empty) as f64 / idle as f64,
    );
    turn.set("idle_memory_none", empty as f64);
    turn.set("idle_cpu_beside", micros[0]);
    turn.set("idle_cpu_alone", micros[1]);
    turn.set("idle_cpu_ratio", micros[0] / micros[1]);
    Ok(turn)
}
