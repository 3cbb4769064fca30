//! What connections at rest hold in a server's memory, and what they cost those that are not.

use std::fs;
use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::cost::{self, CONNECTIONS, hello};
use crate::cpu::Processes;
use crate::load::{Driver, Plan};
use crate::memory;
use crate::peer::{Allocator, Peer};
use crate::process::Trouble;
use crate::series::{Series, Unit, written};
use crate::session::{Session, Turn};

/// Descriptors that a process needs besides.
const SPARE: u64 = 500;

pub(crate) fn measure(session: &mut Session) -> Vec<Series> {
    session.scale.idle = allowed(session.scale.idle);
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
    let series = what.into_iter().enumerate();
    let series = series.map(|(index, (key, title, unit))| Series {
        key: key.into(),
        title,
        unit,
        rows: taken.iter().map(|taken| taken.row(index)).collect(),
    });
    series.collect()
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
    if files_of(crowded.cpu()) < idle {
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

/// As many connections as this process and what it starts may have open, up to `wanted`.
pub(crate) fn allowed(wanted: usize) -> usize {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else {
        return wanted;
    };
    let needed = wanted as u64 + SPARE;
    if soft < needed {
        // Then the soft limit is what there is.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, needed.min(hard), hard);
    }
    let allowed = needed.min(hard.max(soft)).saturating_sub(SPARE);
    usize::try_from(allowed).unwrap_or(wanted)
}

/// Open descriptors of all processes of a server.
fn files_of(server: Processes) -> usize {
    let mut count = 0;
    server.each(|process| {
        // One that has ended has none.
        count += fs::read_dir(format!("/proc/{process}/fd")).map_or(0, Iterator::count);
    });
    count
}
