//! What does it cost a request that it is counted?
//!
//! `busy` is a request of a worker that has many in a tick of its clock, so that one in sixteen is
//! timed. `calm` is one of a few, each of which is timed, so it costs two readings of the clock
//! more (`clock`). On a machine where such a pair took 57 ns `busy` took 6 ns and `calm` 67 ns, at
//! best. With three times as much to do as the machine has CPUs, `busy` took 21 ns in the mean.
//!
//! Not measured: cache lines that a real handler would have pushed out. The counters of a request
//! lie in three.

use std::hint::black_box;
use std::time::Instant;

use criterion::Criterion;
use prefork_server::bench_internals::Counting;

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    let counting = Counting::new();
    let mut group = criterion.benchmark_group("scoreboard");
    group.bench_function("busy", |bencher| {
        bencher.iter(|| black_box(&counting).request(1));
    });
    let mut tick = 1;
    group.bench_function("calm", |bencher| {
        bencher.iter(|| {
            tick += 1;
            black_box(&counting).request(tick);
        });
    });
    group.bench_function("clock", |bencher| {
        bencher.iter(|| Instant::now().elapsed());
    });
    group.finish();
    criterion.final_summary();
}
