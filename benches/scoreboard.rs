//! What does it cost a request that it is counted?
//!
//! `busy` is a request of a worker that has many in a tick of its clock, so that one in sixteen is
//! timed; `calm` is one of a few, each of which is timed, so it costs two readings of the clock
//! more (`clock`). On a machine where such a pair took 57 ns `busy` took 6 ns and `calm` 67 ns, at
//! best; with three times as much to do as it has CPUs, `busy` took 21 ns in the mean.
//!
//! Not measured: cache lines that a real handler would have pushed out. The counters of a request
//! lie in three.

#[allow(
    dead_code,
    unreachable_pub,
    unused_imports,
    reason = "the library does not show its rows; the bench has its own copy"
)]
#[path = "../src/stats/mod.rs"]
mod stats;

use std::hint::black_box;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use criterion::Criterion;

use self::stats::{Count, Stopwatch, WORDS, Words, WorkerStats};

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    let words: Words = [const { AtomicU64::new(0) }; WORDS];
    // As a worker's: shared, and never given back.
    let stats = WorkerStats::shared(Box::leak(Box::new(words)));
    let stopwatch = Stopwatch::new();
    let mut group = criterion.benchmark_group("scoreboard");
    group.bench_function("busy", |bencher| {
        bencher.iter(|| request(black_box(&stats), &stopwatch, 1));
    });
    let mut tick = 1;
    group.bench_function("calm", |bencher| {
        bencher.iter(|| {
            tick += 1;
            request(black_box(&stats), &stopwatch, tick);
        });
    });
    group.bench_function("clock", |bencher| {
        bencher.iter(|| Instant::now().elapsed());
    });
    group.finish();
    criterion.final_summary();
}

/// All that is counted of one request and its answer.
fn request(stats: &WorkerStats, stopwatch: &Stopwatch, tick: u64) {
    stats.add(Count::BytesIn, 100);
    stats.request_begins();
    let timing = stopwatch.start(tick);
    stats.add(Count::Success, 1);
    stats.request_ends(timing);
    stats.add(Count::BytesOut, 200);
}
