use std::sync::atomic::Ordering::Relaxed;

use metrics::{
    counter, describe_counter, describe_histogram, gauge, histogram, with_local_recorder,
};

use super::*;
use crate::protocol::own_metrics::Entry;
use crate::protocol::scoreboard::{Page, join_own};
use crate::stats;

fn recorder(options: Metrics) -> Recorder {
    let part = Page::new().and_then(join_own).expect("memory");
    Recorder::new(&options, part, WorkerStats::own())
}

fn refused(recorder: &Recorder) -> u64 {
    recorder.stats.count(stats::Count::OwnMetricsRefused)
}

/// The values of the metric with this name, of each series.
fn values(recorder: &Recorder, name: &str) -> Vec<Vec<u64>> {
    let entries = recorder.part.entries();
    let named = entries.filter_map(|Entry { key, values, .. }| match key {
        Key::Series(series) if series.name == name => {
            Some(values.iter().map(|value| value.load(Relaxed)).collect())
        }
        _ => None,
    });
    named.collect()
}

#[test]
fn what_the_app_counts_is_in_the_page() {
    let recorder = recorder(Metrics::new().buckets("took.seconds", [1.0, 2.0]));
    with_local_recorder(&recorder, || {
        for kind in ["tea", "milk", "tea"] {
            counter!("orders_total", "kind" => kind, "shop" => "1").increment(2);
            // The order of the labels does not matter.
            counter!("orders_total", "shop" => "1", "kind" => kind).increment(1);
        }
        // It is the same metric.
        counter!("orders", "kind" => "milk", "shop" => "1").absolute(100);
        gauge!("waiting").set(2);
        gauge!("waiting").increment(1.5);
        gauge!("waiting").decrement(3);
        let took = histogram!("took.seconds");
        took.record(1.0);
        took.record(1.5);
        took.record_many(7, 3);
        took.record(f64::NAN);
    });
    assert_eq!(values(&recorder, "orders"), [[6], [100]]);
    assert_eq!(values(&recorder, "waiting"), [[0.5_f64.to_bits()]]);
    let took = [1, 1, 3, 23.5_f64.to_bits()];
    assert_eq!(values(&recorder, "took_seconds"), [took]);
    assert_eq!(refused(&recorder), 1, "what is no number");
}

#[test]
fn threads_lose_no_update() {
    let recorder = recorder(Metrics::new());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                with_local_recorder(&recorder, || {
                    for _ in 0..1000 {
                        counter!("orders").increment(1);
                        gauge!("waiting").increment(1);
                        histogram!("took").record(0.5);
                    }
                });
            });
        }
    });
    assert_eq!(values(&recorder, "orders"), [[4000]]);
    assert_eq!(values(&recorder, "waiting"), [[4000_f64.to_bits()]]);
    let took = values(&recorder, "took").remove(0);
    assert_eq!(took.last(), Some(&2000_f64.to_bits()));
    assert_eq!(took.iter().filter(|&&count| count == 4000).count(), 1);
}

#[test]
fn what_cannot_be_counted_is_counted_as_refused() {
    let recorder = recorder(Metrics::new().per_slot("pool"));
    let before = with_local_recorder(&recorder, || {
        counter!("orders").increment(1);
        histogram!("took").record(1);
        gauge!("pool").set(1);
        recorder.part.entries().count()
    });
    let long = "x".repeat(2048);
    let updates: [&dyn Fn(); 10] = [
        &|| counter!("prefork_panics").increment(1),
        &|| counter!("").increment(1),
        &|| gauge!("http_server_active_requests").set(1),
        &|| gauge!("orders").increment(1),
        &|| gauge!("orders_total").decrement(1),
        &|| gauge!("took_count").set(1),
        &|| counter!("orders", "path" => long.clone()).increment(1),
        &|| counter!("orders", "a.b" => "1", "a_b" => "2").increment(1),
        &|| histogram!("took", "le" => "1").record(1),
        &|| gauge!("pool", "slot" => "0").set(1),
    ];
    with_local_recorder(&recorder, || {
        for (at, update) in updates.iter().enumerate() {
            update();
            assert_eq!(refused(&recorder), at as u64 + 1);
        }
        // A handle too.
        let orders = gauge!("orders");
        orders.set(1);
        orders.set(2);
    });
    assert_eq!(refused(&recorder), updates.len() as u64 + 2);
    assert_eq!(recorder.part.entries().count(), before);
}

#[test]
fn a_full_page_refuses_what_is_new_and_counts_what_it_has() {
    let recorder = recorder(Metrics::new());
    with_local_recorder(&recorder, || {
        for path in 0..100_000 {
            counter!("orders", "path" => path.to_string()).increment(1);
        }
    });
    let counted = values(&recorder, "orders").len() as u64;
    assert!(counted > 2000, "{counted}");
    assert_eq!(counted + refused(&recorder), 100_000);
    assert!(recorder.counters.read().expect("no panic").len() as u64 == counted);
    with_local_recorder(&recorder, || {
        counter!("orders", "path" => "0").increment(1);
        describe_counter!("orders", "x".repeat(100));
    });
    assert_eq!(values(&recorder, "orders")[0], [2]);
}

#[test]
fn a_metric_is_described_once() {
    let recorder = recorder(Metrics::new());
    with_local_recorder(&recorder, || {
        for text in ["Time of an order", "again"] {
            describe_histogram!("took", Unit::Seconds, text);
        }
        // It is cut between two letters.
        describe_counter!("orders_total", "µ".repeat(TEXT_MAX));
        describe_counter!("prefork_panics", "not of the app");
    });
    let described = recorder.part.entries().map(|entry| entry.key);
    let expected = [
        ("took", "seconds", "Time of an order".to_owned()),
        ("orders", "", "µ".repeat(TEXT_MAX / 2)),
    ];
    let expected = expected.map(|(name, unit, text)| {
        Key::Description(Description {
            name: name.into(),
            unit: unit.into(),
            text,
        })
    });
    assert!(described.eq(expected));
    assert_eq!(refused(&recorder), 0);
}
