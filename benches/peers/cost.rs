//! What a request costs a server in CPU time: user and system time of all its processes and
//! threads, divided by the requests that were answered.

use std::time::Duration;

use crate::load::{Ask, Driver, End, Extent, Pipeline, Plan};
use crate::peer::{Allocator, BODY, Peer, Running};
use crate::process::Trouble;
use crate::series::{Series, Unit};
use crate::session::{Session, Turn, series};

/// Enough to keep a server busy, few enough to stay in the caches.
pub(crate) const CONNECTIONS: usize = 64;

const PIPELINE: Pipeline = Pipeline(16);

/// How requests come.
#[derive(Clone, Copy)]
enum Load {
    KeepAlive,
    Pipelined,
    Close,
}

impl Load {
    const ALL: [Self; 3] = [Self::KeepAlive, Self::Pipelined, Self::Close];

    fn key(self) -> &'static str {
        match self {
            Self::KeepAlive => "cpu_keep_alive",
            Self::Pipelined => "cpu_pipelined",
            Self::Close => "cpu_close",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::KeepAlive => "CPU per request, 64 kept-alive connections",
            Self::Pipelined => "CPU per request, 64 connections, 16 requests at once",
            Self::Close => "CPU per request, 64 at a time, a connection each",
        }
    }

    fn plan(self, server: &Running) -> Plan {
        let plan = |ask| Plan::new(server.address, CONNECTIONS, ask);
        match self {
            Self::KeepAlive => plan(hello()),
            Self::Pipelined => plan(hello()).pipelined(PIPELINE),
            Self::Close => plan(hello().closing()),
        }
    }
}

/// What one request cost, how long its answer was, and how many failed meanwhile.
pub(crate) struct Cost {
    pub(crate) micros: f64,
    pub(crate) answer_bytes: usize,
    pub(crate) failures: u64,
}

pub(crate) fn measure(session: &mut Session) -> Vec<Series> {
    let taken = session.in_turn(
        "CPU",
        session.scale.rounds,
        expected(session.scale.turn),
        turn,
    );
    let loads = Load::ALL.map(|load| (load.key().into(), load.title().into(), Unit::Micros));
    let length = (
        "answer_length".into(),
        "length of a kept-alive answer: who sends more headers does more".into(),
        Unit::ToldBytes,
    );
    series(&taken, loads.into_iter().chain([length]))
}

/// How long a turn should take.
pub(crate) fn expected(turn: Duration) -> Duration {
    expected_of(turn, Load::ALL.len())
}

/// The same, of so many loads.
pub(crate) fn expected_of(turn: Duration, loads: usize) -> Duration {
    Duration::from_millis(300) + turn.mul_f64(1.2) * loads as u32
}

/// The request that every server can answer.
pub(crate) fn hello() -> Ask {
    Ask::get("/").expecting(BODY)
}

fn turn(session: &Session, peer: Peer) -> Result<Turn, Trouble> {
    let server = session.start(peer, Allocator::Mimalloc)?;
    let mut turn = Turn {
        figures: Vec::new(),
        failures: 0,
    };
    let mut lengths = Vec::new();
    for load in Load::ALL {
        let cost = of_load(&server, load.plan(&server), session.scale.turn)?;
        turn.figures.push(cost.micros);
        turn.failures += cost.failures;
        lengths.push(cost.answer_bytes as f64);
    }
    turn.figures.push(lengths[0]);
    Ok(turn)
}

/// What a request of this load costs, once the server has seen it for a while.
pub(crate) fn of_load(server: &Running, plan: Plan, time: Duration) -> Result<Cost, Trouble> {
    let mut driver = Driver::new(plan);
    driver.warm();
    // Its pools and the branch predictors have seen this load before it is measured.
    let _ = driver.closed(Extent::For(time / 5));
    of(server, &mut driver, time)
}

/// What a request costs while `driver` asks for `time`.
pub(crate) fn of(server: &Running, driver: &mut Driver, time: Duration) -> Result<Cost, Trouble> {
    let processes = server.cpu();
    let before = processes.used();
    let outcome = driver.closed(Extent::For(time));
    let used = processes.used().since(&before);
    if outcome.end == End::OverBudget || outcome.answered == 0 {
        let failures = outcome.failures;
        return Err(Trouble::Stuck(format!("{failures}\n{}", server.log())));
    }
    Ok(Cost {
        micros: used.as_secs_f64() * 1e6 / outcome.answered as f64,
        answer_bytes: outcome.answer_bytes,
        failures: outcome.failures.total(),
    })
}
