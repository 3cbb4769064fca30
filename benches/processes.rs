//! How long does it take until a worker serves?
//!
//! | case | from | to |
//! |---|---|---|
//! | `start_to_serving` | the master is started | all workers are ready |
//! | `spawn_to_ready` | one slot more is asked for (TTIN) | its worker is ready |
//! | `kill_to_serving` | the only worker is killed (KILL) | a request, sent at once, is answered |
//! | `reload` | HUP | every slot has a worker of the new generation |
//!
//! The server is this executable with the library, two workers but for `kill_to_serving`, and no
//! load. What comes back to the bench is a line on a pipe, or a response.
//!
//! Not measured: the same under load, which is `lifecycle`'s, and programs that take long to
//! prepare themselves: these workers have nothing to do before they are ready.

#[allow(dead_code, unused_imports, reason = "shared by several benches")]
#[path = "support/server/mod.rs"]
mod server;
#[path = "support/mod.rs"]
mod support;

use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use criterion::{Criterion, SamplingMode};
use nix::sys::signal::Signal;

use self::server::{App, BODY, Model, Server, Workers};
use self::support::load::{Ask, Driver, Extent, Plan};

const TWO: Workers = Workers::Exactly(NonZeroUsize::new(2).expect("not 0"));

fn main() {
    server::become_server_if_asked();

    let mut criterion = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(3))
        .configure_from_args();
    let mut group = criterion.benchmark_group("processes");
    group.sampling_mode(SamplingMode::Flat);
    group.bench_function("start_to_serving", |bencher| {
        bencher.iter_custom(|times| repeat(times, start_to_serving));
    });
    group.bench_function("spawn_to_ready", |bencher| {
        let mut server = Server::start(Model::Prefork, &App::Handlers, TWO);
        bencher.iter_custom(|times| repeat(times, || spawn_to_ready(&mut server)));
    });
    group.bench_function("kill_to_serving", |bencher| {
        let one = Workers::Exactly(NonZeroUsize::MIN);
        let mut server = Server::start(Model::Prefork, &App::Handlers, one);
        bencher.iter_custom(|times| repeat(times, || kill_to_serving(&mut server)));
    });
    group.bench_function("reload", |bencher| {
        let mut server = Server::start(Model::Prefork, &App::Handlers, TWO);
        bencher.iter_custom(|times| repeat(times, || reload(&mut server)));
    });
    group.finish();
    criterion.final_summary();
}

fn repeat(times: u64, mut once: impl FnMut() -> Duration) -> Duration {
    (0..times).map(|_| once()).sum()
}

fn start_to_serving() -> Duration {
    let start = Instant::now();
    let server = Server::start(Model::Prefork, &App::Handlers, TWO);
    let took = start.elapsed();
    drop(server);
    took
}

fn spawn_to_ready(server: &mut Server) -> Duration {
    let start = Instant::now();
    server.signal(Signal::SIGTTIN);
    server.wait_for("worker_ready");
    let took = start.elapsed();
    // Back to as many as before, and until that one is gone.
    server.signal(Signal::SIGTTOU);
    server.wait_for("worker_exited");
    took
}

fn kill_to_serving(server: &mut Server) -> Duration {
    let ask = Ask::get("/").expecting(BODY);
    let mut driver = Driver::new(Plan::new(server.address, 1, ask));
    let start = Instant::now();
    server.kill_a_worker();
    let outcome = driver.closed(Extent::Requests(1));
    let took = start.elapsed();
    assert_eq!(outcome.answered, 1, "failed: {}", outcome.failures);
    took
}

fn reload(server: &mut Server) -> Duration {
    let start = Instant::now();
    server.signal(Signal::SIGHUP);
    let (mut took, mut left) = (None, 0);
    // The old workers leave before the next reload, which might have to wait for them.
    server.wait_until("reloaded", |notice| {
        match notice {
            "reload_finished" => took = Some(start.elapsed()),
            "worker_exited" => left += 1,
            _ => {}
        }
        took.is_some() && left == 2
    });
    took.expect("it was waited for")
}
