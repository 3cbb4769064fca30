//! What happens in a turn of each question, and where its figures are shown.

use std::time::Duration;

use crate::crowd::{Crowd, Size, Slow};
use crate::load::{Ask, Driver, Extent, Handshakes, Plan, Tls};
use crate::options::Scale;
use crate::peer::{Allocator, BODY, Peer, Running};
use crate::process::Trouble;
use crate::question::Shown;
use crate::report::written;
use crate::session::Session;
use crate::support::tree::Tree;
use crate::support::turns::Turn;

/// Enough to keep a server busy, few enough to stay in the caches.
const CONNECTIONS: usize = 64;

/// The share of the requests that took no longer, and what it is called.
const QUANTILES: [(f64, &str); 5] = [
    (0.5, "p50"),
    (0.9, "p90"),
    (0.99, "p99"),
    (0.999, "p99.9"),
    (1.0, "max"),
];

/// The one whose ratios are told.
const P99: usize = 2;

/// The request that every server can respond to.
pub(crate) fn hello() -> Ask {
    Ask::get("/").expecting(BODY)
}

const LOADS: [(&str, &str); 5] = [
    (
        "cpu_keep_alive",
        "CPU per request, 64 kept-alive connections",
    ),
    (
        "cpu_browsing",
        "CPU per request, 64 kept-alive connections, requests as a browser sends them",
    ),
    (
        "cpu_posting",
        "CPU per request, 64 kept-alive connections, bodies of 1 KiB as a service sends them",
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

const LENGTH: &str = "response_length";

pub(crate) fn cost_tables() -> Vec<Shown> {
    let length = "length of a kept-alive response: a server that sends more headers does more";
    let tables = LOADS.map(|(key, title)| Shown::compared(key, title, "us"));
    let length = Shown::told(LENGTH, length, "bytes");
    tables.into_iter().chain([length]).collect()
}

pub(crate) fn cost(session: &Session, peer: Peer) -> Result<Turn, Trouble> {
    let server = session.start(peer, Allocator::Mimalloc)?;
    let mut turn = Turn::default();
    let kept = Plan::new(CONNECTIONS, hello());
    let browsing = Plan::new(CONNECTIONS, Ask::browsing().expecting(BODY));
    let posting = Plan::new(CONNECTIONS, Ask::posting().expecting(BODY));
    let mut pipelined = kept.clone();
    pipelined.pipeline = 16;
    let closing = Plan::new(CONNECTIONS, hello().closing());
    let plans = [kept, browsing, posting, pipelined, closing];
    for ((key, _), plan) in LOADS.into_iter().zip(plans) {
        let length = cpu_of_load(&server, plan, session.scale.turn, (key, &mut turn))?;
        turn.round.entry(LENGTH.into()).or_insert(length as f64);
    }
    Ok(turn)
}

/// Sets the figure to the CPU time of a request of this load: that of the server, divided by the
/// requests with a right response. First the server sees the load for a while: its pools and the
/// branch predictors too. Gives the length of a response.
pub(crate) fn cpu_of_load(
    server: &Running,
    plan: Plan,
    time: Duration,
    (figure, turn): (&str, &mut Turn),
) -> Result<usize, Trouble> {
    let mut driver = Driver::new(server.address, plan);
    driver.warm();
    driver.closed(Extent::For(time / 5));
    let (used, outcome) = server.cpu_of(|| driver.closed(Extent::For(time)));
    if outcome.is_over_budget || outcome.answered == 0 {
        let (failures, log) = (outcome.failures, server.processes.log());
        return Err(Trouble::Stuck(format!("{failures}\n{log}")));
    }
    turn.failures.merge(&outcome.failures);
    turn.set(figure, used.as_secs_f64() * 1e6 / outcome.answered as f64);
    Ok(outcome.response_bytes)
}

const HANDSHAKES: [(Handshakes, &str, &str); 2] = [
    (Handshakes::Full, "cpu_handshake", "full"),
    (Handshakes::Resumed, "cpu_resumption", "resumed"),
];

pub(crate) fn handshake_tables() -> Vec<Shown> {
    let title = |kind| {
        format!("CPU per connection within TLS 1.3, 64 at a time: a {kind} handshake and a request")
    };
    HANDSHAKES
        .map(|(_, key, kind)| Shown::compared(key, title(kind), "us"))
        .into()
}

/// A connection is a handshake, one request and the end. In the one case no client keeps a ticket,
/// and the server signs each handshake with its key on P-256; in the other each resumes by the
/// ticket of its connection before. A handshake of the other kind counts as a failure.
pub(crate) fn handshakes(session: &Session, peer: Peer) -> Result<Turn, Trouble> {
    let server = session.start_private(peer)?;
    let mut turn = Turn::default();
    for (handshakes, key, _) in HANDSHAKES {
        let mut plan = Plan::new(CONNECTIONS, hello().closing());
        plan.tls = Some(Tls::trusting(session.pem.trusted.clone(), handshakes));
        cpu_of_load(&server, plan, session.scale.turn, (key, &mut turn))?;
    }
    Ok(turn)
}

pub(crate) fn idle_tables(scale: &Scale) -> Vec<Shown> {
    let idle = written(scale.idle as f64);
    let memory = format!("memory per connection, {idle} idle ones");
    let before = "memory of the same servers before";
    vec![
        Shown::compared("idle_memory", memory, "bytes"),
        Shown::told("idle_memory_none", before, "bytes"),
    ]
}

/// The memory of a server at rest that has so many connections open.
pub(crate) fn full_at_rest(processes: Tree, idle: usize) -> Result<u64, Trouble> {
    let full = processes.memory_at_rest()?;
    if processes.descriptors() < idle {
        return Err(Trouble::Stuck("it closed idle connections".into()));
    }
    Ok(full)
}

pub(crate) fn idle(session: &Session, peer: Peer) -> Result<Turn, Trouble> {
    let mut turn = Turn::default();
    let idle = session.scale.idle;
    let server = session.start(peer, Allocator::System)?;
    let processes = server.processes.tree();
    let empty = processes.memory_at_rest()?;
    let mut crowd = Driver::new(server.address, Plan::new(idle, hello()));
    turn.failures.merge(&crowd.warm().failures);
    let full = full_at_rest(processes, idle)?;
    let growth = full.saturating_sub(empty);
    turn.set("idle_memory", growth as f64 / idle as f64);
    turn.set("idle_memory_none", empty as f64);
    Ok(turn)
}

fn latency_key(rate: u32, quantile: &str) -> String {
    format!("latency_{rate}_{quantile}")
}

pub(crate) fn latency_tables(scale: &Scale) -> Vec<Shown> {
    let of_rate = |&rate: &u32| {
        let columns = QUANTILES.map(|(_, name)| (name.to_owned(), latency_key(rate, name)));
        let rate = written(rate.into());
        Shown {
            title: format!("latency in us at {rate} requests per second"),
            columns: columns.into(),
            main: P99,
            is_compared: true,
        }
    };
    scale.rates.iter().map(of_rate).collect()
}

/// At constant rates, from the moment a request was meant to be sent.
pub(crate) fn latency(session: &Session, peer: Peer) -> Result<Turn, Trouble> {
    let server = session.start(peer, Allocator::Mimalloc)?;
    let mut turn = Turn::default();
    for &rate in session.scale.rates {
        let mut driver = Driver::new(server.address, Plan::new(CONNECTIONS, hello()));
        driver.warm();
        let per_second = f64::from(rate);
        // Not the first that it sees of this rate.
        driver.open(per_second, session.scale.at_a_rate / 5);
        let outcome = driver.open(per_second, session.scale.at_a_rate);
        turn.failures.merge(&outcome.failures);
        for (quantile, name) in QUANTILES {
            let micros = outcome.latency(quantile).as_secs_f64() * 1e6;
            turn.set(latency_key(rate, name), micros);
        }
    }
    Ok(turn)
}

/// Of the server alone, and beside each kind of crowd, also as times that.
pub(crate) fn slow_client_tables(scale: &Scale) -> Vec<Shown> {
    let mut columns = vec![("alone".to_owned(), "slow_none".to_owned())];
    for name in Slow::ALL.iter().map(|slow| slow.name()) {
        columns.push((name.to_owned(), format!("slow_{name}")));
        columns.push(("times".to_owned(), format!("slow_{name}_times")));
    }
    let (rate, crowd) = (written(scale.rates[0].into()), written(scale.crowd as f64));
    vec![Shown {
        title: format!(
            "p95 latency at {rate} requests per second in us, alone and beside {crowd} slow clients"
        ),
        columns,
        main: 0,
        is_compared: false,
    }]
}

/// How long others' responses take while a crowd of slow clients comes and stays.
///
/// It is p95: now and then another program holds a CPU for more than one per cent of two seconds,
/// and each p99 would tell whether it did.
pub(crate) fn slow_clients(session: &Session, peer: Peer) -> Result<Turn, Trouble> {
    let server = session.start(peer, Allocator::Mimalloc)?;
    let (rate, time) = (session.scale.rates[0], session.scale.at_a_rate);
    let mut driver = Driver::new(server.address, Plan::new(CONNECTIONS, hello()));
    driver.warm();
    let mut turn = Turn::default();
    let mut p95 = |time| {
        let outcome = driver.open(rate.into(), time);
        turn.failures.merge(&outcome.failures);
        outcome.latency(0.95).as_secs_f64() * 1e6
    };
    // Not the first that it sees of this rate.
    p95(time / 5);
    let alone = p95(time);
    let mut figures = vec![("slow_none".to_owned(), alone)];
    let size = Size {
        address: server.address,
        clients: session.scale.crowd,
        ramp: time / 2,
    };
    for &slow in Slow::ALL {
        let mut crowd = Crowd::start(slow, size)?;
        let beside = p95(time);
        crowd.have_come()?;
        drop(crowd);
        let key = slow.name();
        figures.push((format!("slow_{key}"), beside));
        figures.push((format!("slow_{key}_times"), beside / alone));
        // The server has noticed that they are gone.
        p95(time / 5);
    }
    turn.round.extend(figures);
    Ok(turn)
}
