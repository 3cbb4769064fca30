//! What happens in a turn of each question, and what its figures are.

use std::fs;
use std::time::Duration;

use crate::crowd::{Crowd, Slow};
use crate::load::{Ask, Driver, End, Extent, Handshakes, Pipeline, Plan, Rate, Tls};
use crate::options::Scale;
use crate::peer::{Allocator, BODY, Peer, Pem, Running};
use crate::process::Trouble;
use crate::question::Figure;
use crate::report::written;
use crate::session::Session;
use crate::support::memory::{descriptors, pss_at_rest};
use crate::support::turns::Turn;

/// Enough to keep a server busy, few enough to stay in the caches.
const CONNECTIONS: usize = 64;

/// The share of the requests that took no longer, and what it is called.
pub(crate) const QUANTILES: [(f64, &str); 5] = [
    (0.5, "p50"),
    (0.9, "p90"),
    (0.99, "p99"),
    (0.999, "p99.9"),
    (1.0, "max"),
];

/// The request that every server can answer.
fn hello() -> Ask {
    Ask::get("/").expecting(BODY)
}

fn plan(server: &Running, ask: Ask) -> Plan {
    Plan::new(server.address, CONNECTIONS, ask)
}

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

const LENGTH: &str = "answer_length";

pub(crate) fn cost_figures() -> Vec<Figure> {
    let length = "length of a kept-alive response: a server that sends more headers does more";
    let length = Figure::told(LENGTH, length, "bytes");
    let figures = LOADS.map(|(key, title)| Figure::compared(key, title, "us"));
    figures.into_iter().chain([length]).collect()
}

pub(crate) fn cost(session: &Session, peer: Peer) -> Result<Turn, Trouble> {
    let server = session.start(peer, Allocator::Mimalloc)?;
    let mut turn = Turn::default();
    let plans = [
        plan(&server, hello()),
        plan(&server, hello()).pipelined(Pipeline(16)),
        plan(&server, hello().closing()),
    ];
    for ((key, _), plan) in LOADS.into_iter().zip(plans) {
        let length = cpu_of_load(&server, plan, session.scale.turn, (key, &mut turn))?;
        turn.round.entry(LENGTH.into()).or_insert(length as f64);
    }
    Ok(turn)
}

/// Sets the figure to the CPU time of a request of this load, once the server has seen the load for
/// a while: its pools and the branch predictors too. Gives the length of a response.
fn cpu_of_load(
    server: &Running,
    plan: Plan,
    time: Duration,
    (figure, turn): (&str, &mut Turn),
) -> Result<usize, Trouble> {
    let mut driver = Driver::new(plan);
    driver.warm();
    let _ = driver.closed(Extent::For(time / 5));
    let (micros, length) = cpu(server, &mut driver, time, turn)?;
    turn.set(figure, micros);
    Ok(length)
}

/// User and system time of all the server's processes and threads while `driver` asks for `time`,
/// divided by the requests that were answered; and the length of a response.
fn cpu(
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
    Ok((micros, outcome.response_bytes))
}

const HANDSHAKES: [(Handshakes, &str, &str); 2] = [
    (Handshakes::Full, "cpu_handshake", "full"),
    (Handshakes::Resumed, "cpu_resumption", "resumed"),
];

pub(crate) fn handshake_figures() -> Vec<Figure> {
    let title = |kind| {
        format!("CPU per connection within TLS 1.3, 64 at a time: a {kind} handshake and a request")
    };
    HANDSHAKES
        .map(|(_, key, kind)| Figure::compared(key, title(kind), "us"))
        .into()
}

/// A connection is a handshake, one request and the end. In the one case no client keeps a ticket,
/// and the server signs each handshake with its key on P-256; in the other each resumes by the
/// ticket of its connection before. A handshake of the other kind counts as a failure.
pub(crate) fn handshakes(session: &Session, peer: Peer) -> Result<Turn, Trouble> {
    let identity = &session.identity;
    let dir = tempfile::tempdir()?;
    let pem = Pem {
        certificate: dir.path().join("certificate.pem"),
        key: dir.path().join("key.pem"),
    };
    fs::write(&pem.certificate, &identity.certificate)?;
    fs::write(&pem.key, &identity.key)?;
    let server = session.start_private(peer, &pem)?;
    let mut turn = Turn::default();
    for (handshakes, key, _) in HANDSHAKES {
        let tls = Tls::trusting(identity.certificate(), handshakes);
        let plan = plan(&server, hello().closing()).within(tls);
        cpu_of_load(&server, plan, session.scale.turn, (key, &mut turn))?;
    }
    Ok(turn)
}

pub(crate) fn idle_figures(scale: &Scale) -> Vec<Figure> {
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
pub(crate) fn idle(session: &Session, peer: Peer) -> Result<Turn, Trouble> {
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
        micros[at] += cpu(servers[at], &mut drivers[at], time, &mut turn)?.0 / 2.0;
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

/// Of a figure of [`latency`].
pub(crate) fn latency_key(rate: u32, quantile: &str) -> String {
    format!("latency_{rate}_{quantile}")
}

pub(crate) fn latency_figures(scale: &Scale) -> Vec<Figure> {
    let figure = |rate: u32, name| Figure::compared(latency_key(rate, name), name, "us");
    let of_rate = |&rate| QUANTILES.map(|(_, name)| figure(rate, name));
    scale.rates.iter().flat_map(of_rate).collect()
}

/// At constant rates, from the moment a request was meant to be sent.
pub(crate) fn latency(session: &Session, peer: Peer) -> Result<Turn, Trouble> {
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
            let micros = outcome.latency(quantile).as_secs_f64() * 1e6;
            turn.set(latency_key(rate, name), micros);
        }
    }
    Ok(turn)
}

/// Of the server alone, and beside each kind of crowd, also as times that.
pub(crate) fn slow_client_figures() -> Vec<Figure> {
    let beside = Slow::ALL.iter().flat_map(|slow| {
        let key = slow.name();
        [
            Figure::compared(format!("slow_{key}"), key, "us"),
            Figure::told(format!("slow_{key}_times"), "times", "times"),
        ]
    });
    let alone = Figure::compared("slow_none", "alone", "us");
    [alone].into_iter().chain(beside).collect()
}

/// How long others' responses take while a crowd of slow clients comes and stays.
///
/// It is p95: now and then another program holds a CPU for more than one per cent of two seconds,
/// and each p99 would tell whether it did.
pub(crate) fn slow_clients(session: &Session, peer: Peer) -> Result<Turn, Trouble> {
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
    for &slow in Slow::ALL {
        let mut crowd = Crowd::start(slow, server.address, session.scale.crowd, time / 2)?;
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
