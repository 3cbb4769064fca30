//! The live stream, which the page at `/` shows: the state of the server, then once a second what
//! has changed, and each notice as on `/events`. A change is a JSON merge patch (RFC 7396), and the
//! first event is one to an empty object.
//!
//! All clients share one measurement a second. Without a client nothing is measured.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::iter::once;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Map, Value, json};
use tokio::task::spawn_local;
use tokio::time::{Instant, sleep};

use crate::address::Address;
use crate::admin::events::{Listeners, Page};
use crate::admin::metrics::process::{Process, since_boot};
use crate::admin::view::View;
use crate::protocol::admin::AcceptQueue;
use crate::stats::{Count, Gauge, Latencies, Sum};
use crate::status::{Status, WorkerStatus};

/// The time between two changes.
const INTERVAL: Duration = Duration::from_secs(1);

/// The quantiles and the errors are those of so many intervals: one alone has few requests.
const WINDOW: usize = 10;

/// The clients of the stream, and what they know.
#[derive(Debug, Default)]
pub(super) struct Live {
    listeners: Listeners,
    /// `None` while no [`Meter`] runs.
    known: Option<Map<String, Value>>,
}

/// Compares the counts with earlier ones.
#[derive(Default)]
struct Meter {
    /// At the end of each interval of the window, the oldest first.
    samples: VecDeque<Sample>,
    /// The requests of each worker at the last sample, by its pid.
    requests: BTreeMap<u32, u64>,
}

/// What was counted up to a moment.
struct Sample {
    at: Instant,
    requests: u64,
    server_errors: u64,
    latencies: Latencies,
}

impl Live {
    /// Tells a notice.
    pub(super) fn tell(&mut self, event: &Bytes) {
        self.listeners.tell(event);
    }
}

/// A stream with the notices after the one with this number. `None` if too many clients listen.
pub(super) fn join(view: &Rc<RefCell<View>>, after: u64) -> Option<Page> {
    let this = Rc::clone(view);
    let view = &mut *view.borrow_mut();
    let known = view.live.known.take().unwrap_or_else(|| {
        let mut meter = Meter::default();
        let known = meter.measure(view, Instant::now());
        spawn_local(tell_changes(this, meter));
        known
    });
    let begin = event(&known);
    view.live.known = Some(known);
    let notices = view.notices_after(after);
    view.live.listeners.join(once(begin).chain(notices))
}

/// Measures until nobody listens.
async fn tell_changes(view: Rc<RefCell<View>>, mut meter: Meter) {
    loop {
        sleep(INTERVAL).await;
        let view = &mut *view.borrow_mut();
        let Some(known) = view.live.known.take_if(|_| !view.live.listeners.is_empty()) else {
            view.live.known = None;
            return;
        };
        let now = meter.measure(view, Instant::now());
        // Also if it is nearly empty: the page sees that the server runs.
        view.live.tell(&event(&patch(&known, &now)));
        view.live.known = Some(now);
    }
}

fn event(state: &Map<String, Value>) -> Bytes {
    let data = serde_json::to_string(state).expect("its keys are text");
    format!("event: live\ndata: {data}\n\n").into()
}

/// The merge patch from one state to the next.
fn patch(from: &Map<String, Value>, to: &Map<String, Value>) -> Map<String, Value> {
    let gone = from.keys().filter(|key| !to.contains_key(*key));
    let changed = to
        .iter()
        .filter(|(key, value)| from.get(*key) != Some(value));
    let changed = changed.map(|(key, value)| {
        let value = match (from.get(key), value) {
            (Some(Value::Object(from)), Value::Object(to)) => patch(from, to).into(),
            _ => value.clone(),
        };
        (key.clone(), value)
    });
    gone.map(|key| (key.clone(), Value::Null))
        .chain(changed)
        .collect()
}

impl Meter {
    /// The state of the server, with what was counted since the last call. What is not known is
    /// null.
    fn measure(&mut self, view: &View, at: Instant) -> Map<String, Value> {
        let Some(status) = view.status() else {
            return Map::new();
        };
        // The queues, for the next call. The master may be busy: then they are those of before.
        let _ = view.look();
        let now = Sample::of(&view.sum(), at);
        let seconds = self.samples.back().map(|last| now.seconds_since(last));
        let mut state = of_server(view, &status);
        state.extend(now.compared_to(self.samples.back(), self.samples.front()));
        state.insert("slots".to_owned(), self.slots(view, &status, seconds));
        self.samples.push_back(now);
        if self.samples.len() > WINDOW {
            self.samples.pop_front();
        }
        state
    }

    /// `seconds` have passed since the last call; `None` in the first one.
    fn slots(&mut self, view: &View, status: &Status, seconds: Option<f64>) -> Value {
        let before = std::mem::take(&mut self.requests);
        let slots = status.slots.iter().map(|slot| {
            let workers = slot.workers.iter().map(|worker| {
                let pid = worker.worker.pid;
                let page = view.page(pid);
                let requests = page.map_or(0, |page| page.counts.requests_so_far());
                self.requests.insert(pid, requests);
                let last = before.get(&pid).copied().unwrap_or_default();
                let rate = seconds.map(|seconds| rate(requests, last, seconds));
                (pid.to_string(), of_worker(view, worker, rate))
            });
            let of_slot = json!({
                "adopted_by": slot.adopted_by.map(|by| by.0),
                "backing_off": slot.backing_off,
                "queue": waiting(view, |queue| queue.slot == Some(slot.slot)),
                "workers": workers.collect::<Map<_, _>>(),
            });
            (slot.slot.to_string(), of_slot)
        });
        Value::Object(slots.collect())
    }
}

impl Sample {
    fn of(sum: &Sum, at: Instant) -> Self {
        Self {
            at,
            requests: sum.of(&[Count::Requests]),
            server_errors: sum.of(&[Count::ServerError]),
            latencies: sum.latencies.clone(),
        }
    }

    fn seconds_since(&self, earlier: &Self) -> f64 {
        (self.at - earlier.at).as_secs_f64()
    }

    /// `last` is the end of the interval before, `begin` that of the window.
    fn compared_to(&self, last: Option<&Self>, begin: Option<&Self>) -> Map<String, Value> {
        let rate = last.map(|last| rate(self.requests, last.requests, self.seconds_since(last)));
        let window = begin.map(|begin| self.latencies.since(&begin.latencies));
        let window = window.filter(|window| window.all() > 0);
        let quantile = |percent| Some(window.as_ref()?.quantile(percent).as_secs_f64());
        let errors = begin.map(|begin| self.server_errors.saturating_sub(begin.server_errors));
        object([
            ("requests", self.requests.into()),
            ("requests_per_second", rate.into()),
            ("latency_p50", quantile(50).into()),
            ("latency_p99", quantile(99).into()),
            ("server_errors", self.server_errors.into()),
            ("server_errors_lately", errors.into()),
        ])
    }
}

/// The connections in these accept queues; `None` if there is no such queue.
fn waiting(view: &View, wanted: impl Fn(&AcceptQueue) -> bool) -> Option<u64> {
    let queues = view.queues().iter().filter(|queue| wanted(queue));
    let lengths = queues.map(|queue| u64::from(queue.connections));
    lengths.reduce(|sum, length| sum + length)
}

fn of_server(view: &View, status: &Status) -> Map<String, Value> {
    let addresses: Vec<_> = status.addresses.iter().map(Address::to_string).collect();
    let master = Process::of(view.master.as_raw().unsigned_abs());
    let server = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "addresses": addresses,
        "pid": view.master.as_raw(),
        "started": master.map(|master| master.started),
    });
    let connections = view.pages().map(|page| page.counts.connections());
    object([
        ("at", since_boot().into()),
        ("server", server),
        ("state", status.state.to_string().into()),
        ("why", view.readiness().why().into()),
        ("generation", status.generation.0.into()),
        (
            "connections",
            connections.map(u64::from).sum::<u64>().into(),
        ),
        ("queue", waiting(view, |_| true).into()),
    ])
}

fn of_worker(view: &View, worker: &WorkerStatus, rate: Option<f64>) -> Value {
    let counts = view.page(worker.worker.pid).map(|page| &page.counts);
    let gauge = |gauge| counts.map(|counts| counts.gauge(gauge));
    let process = Process::of(worker.worker.pid);
    json!({
        "state": worker.state.to_string(),
        "generation": worker.worker.generation.0,
        "connections": worker.connections,
        "served": gauge(Gauge::Served),
        "max": gauge(Gauge::ConnectionsMax),
        "requests_per_second": rate,
        "started": process.as_ref().map(|process| process.started),
        // In steps of 0.1 MiB, so that it seldom changes.
        "memory_mib": process.map(|process| tenths(process.resident_bytes / f64::from(1 << 20))),
    })
}

/// A hostile worker may write a smaller number than before.
fn rate(now: u64, before: u64, seconds: f64) -> f64 {
    tenths(now.saturating_sub(before) as f64 / seconds.max(0.001))
}

fn object<const N: usize>(fields: [(&str, Value); N]) -> Map<String, Value> {
    fields
        .map(|(name, value)| (name.to_owned(), value))
        .into_iter()
        .collect()
}

fn tenths(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::metrics::tests::view;

    #[test]
    fn a_patch_has_what_is_new_what_has_changed_and_what_is_gone() {
        let from = object([
            ("a", 1.into()),
            ("b", json!([1])),
            ("c", json!({ "d": 1, "e": 2 })),
            ("f", json!({ "g": 1 })),
        ]);
        let to = object([
            ("a", 1.into()),
            ("b", json!([2])),
            ("c", json!({ "d": 1, "e": 3 })),
            ("h", json!({ "i": 4 })),
        ]);
        let expected = json!({ "b": [2], "c": { "e": 3 }, "f": null, "h": { "i": 4 } });
        assert_eq!(Value::Object(patch(&from, &to)), expected);
        assert!(patch(&to, &to).is_empty());
    }

    #[test]
    fn a_rate_is_per_second_and_never_negative() {
        assert_eq!(rate(150, 100, 2.0), 25.0);
        assert_eq!(rate(100, 150, 2.0), 0.0);
    }

    #[test]
    fn rates_and_quantiles_are_those_of_the_time_before() {
        let (view, stats) = view();
        let mut meter = Meter::default();
        let mut at = Instant::now();
        let begin = meter.measure(&view, at);
        let none = |state: &Map<String, Value>, name: &str| assert_eq!(state[name], Value::Null);
        for name in ["requests_per_second", "latency_p99", "server_errors_lately"] {
            none(&begin, name);
        }
        stats.add(Count::ServerError, 1);
        stats.add(Count::Requests, 50);
        stats.note_latency(Duration::from_millis(1), 50);
        at += 2 * INTERVAL;
        let busy = meter.measure(&view, at);
        assert_eq!(busy["requests_per_second"], 25.0);
        let pid = std::process::id().to_string();
        let worker = &busy["slots"]["1"]["workers"][pid];
        assert_eq!(worker["requests_per_second"], 25.0);
        assert_eq!(busy["server_errors_lately"], 1);
        assert_eq!(busy["queue"], 3);
        assert_eq!(busy["slots"]["1"]["queue"], 3);
        none(busy["slots"]["0"].as_object().expect("a slot"), "queue");
        let p99 = busy["latency_p99"].as_f64().expect("a number");
        assert!((p99 - 0.001).abs() < 0.0001, "{p99}");
        for _ in 0..WINDOW {
            at += INTERVAL;
            meter.measure(&view, at);
        }
        let idle = meter.measure(&view, at + INTERVAL);
        none(&idle, "latency_p99");
        assert_eq!(idle["requests_per_second"], 0.0);
        assert_eq!(idle["server_errors_lately"], 0);
        assert_eq!(idle["server_errors"], 1);
        assert_eq!(meter.samples.len(), WINDOW);
    }
}
