//! How long others' answers take while a crowd of slow clients comes and stays.

use std::time::Duration;

use crate::command_line::Scale;
use crate::cost::{CONNECTIONS, hello};
use crate::crowd::{Crowd, Slow};
use crate::files;
use crate::load::{Driver, Plan, Rate};
use crate::peer::{Allocator, Peer};
use crate::process::Trouble;
use crate::series::{Series, Unit, written};
use crate::session::{Session, Turn, series};

/// What the series are: of the server alone, and beside each kind of crowd, also as times that.
pub(crate) fn columns() -> impl Iterator<Item = &'static str> {
    let beside = Slow::ALL.into_iter().flat_map(|slow| [slow.key(), "times"]);
    ["alone"].into_iter().chain(beside)
}

pub(crate) fn measure(session: &mut Session) -> Vec<Series> {
    session.scale.crowd = files::allowed(session.scale.crowd);
    let peers: Vec<_> = parsing(&session.peers).collect();
    let (rounds, time) = (session.scale.rounds.third(), expected(&session.scale));
    let taken = session.in_turn_of(&peers, "slow clients", rounds, time, turn);
    let what = what(&session.scale);
    let alone = [("slow_none".into(), format!("{what}, alone"), Unit::Micros)];
    let crowd = written(session.scale.crowd as f64);
    let beside = Slow::ALL.into_iter().flat_map(|slow| {
        let key = slow.key();
        let title = format!("{what}, beside {crowd} clients with a slow {key}");
        let times = format!("{title}: times that alone");
        [
            (format!("slow_{key}"), title, Unit::Micros),
            (format!("slow_{key}_times"), times, Unit::Times),
        ]
    });
    series(&taken, alone.into_iter().chain(beside))
}

pub(crate) fn title(scale: &Scale) -> String {
    let crowd = written(scale.crowd as f64);
    format!(
        "{} in us, alone and beside {crowd} slow clients",
        what(scale)
    )
}

fn what(scale: &Scale) -> String {
    let rate = written(scale.rates[0].into());
    format!("p95 latency at {rate} requests per second")
}

/// Those that are asked: the floor answers whatever comes.
pub(crate) fn parsing(peers: &[Peer]) -> impl Iterator<Item = Peer> {
    peers.iter().copied().filter(|&peer| peer != Peer::Floor)
}

/// How long a turn should take.
pub(crate) fn expected(scale: &Scale) -> Duration {
    let windows = 1.0 + 1.3 * Slow::ALL.len() as f64;
    Duration::from_millis(500) + scale.at_a_rate.mul_f64(windows)
}

fn turn(session: &Session, peer: Peer) -> Result<Turn, Trouble> {
    let server = session.start(peer, Allocator::Mimalloc)?;
    let (rate, time) = (session.scale.rates[0], session.scale.at_a_rate);
    let rate = Rate::per_second(rate.into());
    let mut driver = Driver::new(Plan::new(server.address, CONNECTIONS, hello()));
    driver.warm();
    let mut failures = 0;
    let mut p95 = |time| {
        let outcome = driver.open(rate, time);
        failures += outcome.failures.total();
        outcome.latency(0.95).as_secs_f64() * 1e6
    };
    // Not the first that it sees of this rate.
    p95(time / 5);
    let alone = p95(time);
    let mut figures = vec![alone];
    for slow in Slow::ALL {
        let mut crowd = Crowd::start(slow, server.address, session.scale.crowd, time / 2)?;
        let beside = p95(time);
        crowd.have_come()?;
        drop(crowd);
        figures.extend([beside, beside / alone]);
        // The server has noticed that they are gone.
        p95(time / 5);
    }
    Ok(Turn { figures, failures })
}
