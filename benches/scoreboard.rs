//! What does it cost a request that it is counted? And what does an update of the app's own metrics
//! cost?
//!
//! `busy` is a request of a worker that has many in a tick of its clock, so that one in sixteen is
//! timed. `calm` is one of a few, each of which is timed, so it costs two readings of the clock
//! more (`clock`). On a machine where such a pair took 57 ns `busy` took 6 ns and `calm` 67 ns, at
//! best. With three times as much to do as the machine has CPUs, `busy` took 21 ns in the mean.
//!
//! `own_counter` adds one by a handle that the app keeps, `own_gauge` and `own_histogram` are the
//! same for the other kinds. `own_counter_macro` finds the handle by the name first, as
//! `counter!("name").increment(1)` does. `own_counter_labels` finds it by a name and two labels,
//! one of which is not known at compile time. On a machine where `clock` took 48 ns they took 2, 5,
//! 11, 13 and 53 ns, and `busy` 7.
//!
//! Not measured: cache lines that a real handler would have pushed out. The counters of a request
//! lie in three.

use std::hint::black_box;
use std::time::Instant;

use criterion::Criterion;
use metrics::{counter, gauge, histogram};
use prefork_server::bench_internals::Counting;
use prefork_server::{Metrics, Response, TestServer, handler};

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
    own(&mut criterion);
    criterion.final_summary();
}

/// As in a worker: in memory that can be shared.
fn own(criterion: &mut Criterion) {
    let server = TestServer::start_with(|server| {
        let app = async |_worker| Ok(handler(async |_request| Ok(Response::default())));
        server.metrics(Metrics::new()).serve(app)
    });
    let mut group = criterion.benchmark_group("scoreboard");
    let held = counter!("orders_total");
    group.bench_function("own_counter", |bencher| {
        bencher.iter(|| black_box(&held).increment(1));
    });
    let held = gauge!("waiting");
    group.bench_function("own_gauge", |bencher| {
        bencher.iter(|| black_box(&held).increment(1));
    });
    let held = histogram!("took_seconds");
    group.bench_function("own_histogram", |bencher| {
        bencher.iter(|| black_box(&held).record(black_box(0.25)));
    });
    group.bench_function("own_counter_macro", |bencher| {
        bencher.iter(|| counter!("orders_total").increment(1));
    });
    let kind = String::from("tea");
    group.bench_function("own_counter_labels", |bencher| {
        bencher.iter(|| {
            counter!("labelled_total", "shop" => "1", "kind" => kind.clone()).increment(1);
        });
    });
    group.finish();
    drop(server);
}
