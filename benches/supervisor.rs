//! What does the master's deciding cost?
//!
//! `fact` is one event that changes nothing, the least that a step can be. `respawn` is a worker's
//! exit, its successor and that one's readiness, with every action taken out. `reload` is all of a
//! reload, worker by worker. Each with 4, 64 and 1,024 workers: a step looks at every slot, so a
//! reload grows with the square of their number.
//!
//! Not measured: carrying the actions out, which takes a fork and an exec each (`lifecycle`).

use std::time::Duration;

use criterion::{BatchSize, BenchmarkId, Criterion};
use prefork_server::bench_internals::Deciding;

fn main() {
    let mut criterion = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2))
        .configure_from_args();
    let mut group = criterion.benchmark_group("supervisor");
    for workers in [4, 64, 1024] {
        group.bench_function(BenchmarkId::new("fact", workers), |bencher| {
            let mut deciding = Deciding::serving(workers);
            bencher.iter(|| deciding.spawned());
        });
        group.bench_function(BenchmarkId::new("respawn", workers), |bencher| {
            let mut deciding = Deciding::serving(workers);
            bencher.iter(|| deciding.respawn());
        });
    }
    for workers in [4, 64] {
        group.bench_function(BenchmarkId::new("reload", workers), |bencher| {
            bencher.iter_batched_ref(
                || Deciding::serving(workers),
                Deciding::reload,
                BatchSize::SmallInput,
            );
        });
    }
    group.finish();
    criterion.final_summary();
}
