//! All counts as text, in the names of OpenTelemetry's conventions for HTTP where there is one.
//!
//! Counters never fall, whatever happens to workers. Gauges of a worker have the label `slot`: of a
//! slot with several workers, the one that was started last. No label has a pid.

mod listeners;
mod own;
pub(super) mod process;
#[cfg(test)]
pub(super) mod tests;
mod text;

use std::collections::BTreeMap;

use self::process::{Process, cpu_of_server};
pub(super) use self::text::Format;
use self::text::Text;
use crate::admin::view::{Page, View};
use crate::id::Slot;
use crate::policy::{ServerState, WorkerState};
use crate::stats::{Count, Gauge, Sum};
use crate::status::{History, Status};

/// The longest of each bucket of the histogram of durations, as a power of two in microseconds:
/// from 128 us to 67 s. Workers count in finer buckets, whose ends these are, so they are exact.
const BUCKETS: std::ops::RangeInclusive<u32> = 7..=26;

const STATES: [(ServerState, &str); 6] = [
    (ServerState::Starting, "starting"),
    (ServerState::Serving, "serving"),
    (ServerState::Reloading, "reloading"),
    (ServerState::Upgrading, "upgrading"),
    (ServerState::Stopping, "stopping"),
    (ServerState::Draining, "draining"),
];

/// The page of `/metrics`.
pub(super) fn page(view: &View, format: Format) -> String {
    let mut text = Text::new(format);
    let sum = view.sum();
    requests(&mut text, &sum);
    connections(&mut text, &sum);
    faults(&mut text, &sum);
    tls(&mut text, &sum);
    let newest = newest(view);
    if let (Some(status), Some(history)) = (view.status(), view.history()) {
        server(&mut text, &status);
        operations(&mut text, history);
        slots(&mut text, &status, &newest);
        listeners::listeners(&mut text, view);
    }
    let pids = view.pages().map(|page| page.worker.pid);
    let cpu_seconds = cpu_of_server(view.master, pids);
    text.counter(
        "prefork_process_cpu_seconds",
        "CPU time of the master and all workers",
        cpu_seconds.map(|seconds| ("", view.cpu_seconds.or(seconds))),
    );
    let version = format!("version=\"{}\"", env!("CARGO_PKG_VERSION"));
    text.gauge("prefork_build_info", "Always 1", [(version, 1.0)]);
    let own = own::sum(view, &newest);
    let refused = of(&sum, Count::OwnMetricsRefused) + own.dropped() as f64;
    text.counter(
        "prefork_own_metrics_refused",
        "Updates of the app's own metrics that went nowhere, and sums without room",
        [("", view.own_refused.or(refused))],
    );
    own::write(&mut text, &own);
    text.finish()
}

fn requests(text: &mut Text, sum: &Sum) {
    let buckets = BUCKETS.map(|power| {
        let micros = 1_u64 << power;
        (micros as f64 / 1e6, sum.latencies.below(micros))
    });
    text.histogram(
        "http_server_request_duration_seconds",
        "Time from the end of the head of a request to the end of its response. Under load one \
         request in sixteen is timed and counted sixteen times",
        buckets,
        sum.latencies.all(),
        of(sum, Count::LatencyMicros) / 1e6,
    );
    text.counter(
        "prefork_http_requests",
        "Requests whose head was complete and well-formed",
        [("", of(sum, Count::Requests))],
    );
    let classes = [
        ("class=\"1xx\"", Count::Informational),
        ("class=\"2xx\"", Count::Success),
        ("class=\"3xx\"", Count::Redirection),
        ("class=\"4xx\"", Count::ClientError),
        ("class=\"5xx\"", Count::ServerError),
    ];
    text.counter(
        "prefork_http_responses",
        "Responses of handlers and of the server itself",
        classes.map(|(labels, count)| (labels, of(sum, count))),
    );
    let received = [
        ("protocol=\"http\"", Count::BytesIn),
        ("protocol=\"tunnel\"", Count::TunnelBytesIn),
    ];
    text.counter(
        "prefork_received_bytes",
        "Bytes read from clients; a tunnel is a connection after an upgrade, such as a WebSocket",
        received.map(|(labels, count)| (labels, of(sum, count))),
    );
    let sent = [
        ("protocol=\"http\"", Count::BytesOut),
        ("protocol=\"tunnel\"", Count::TunnelBytesOut),
    ];
    text.counter(
        "prefork_sent_bytes",
        "Bytes written to clients",
        sent.map(|(labels, count)| (labels, of(sum, count))),
    );
}

fn connections(text: &mut Text, sum: &Sum) {
    text.counter(
        "prefork_connections_accepted",
        "Connections that were accepted",
        [("", of(sum, Count::Connections))],
    );
    let balanced = of(sum, Count::Balanced);
    text.counter(
        "prefork_connections_handed_over",
        "Connections that went from one worker to another",
        [
            ("reason=\"balance\"", balanced),
            (
                "reason=\"drain\"",
                (of(sum, Count::HandedOver) - balanced).max(0.0),
            ),
        ],
    );
    text.counter(
        "prefork_connections_placed",
        "New connections that were given to a worker with fewer",
        [("", of(sum, Count::Placed))],
    );
    let cut = [
        ("reason=\"drain\"", Count::Cut),
        ("reason=\"upgrade_grace\"", Count::UpgradesCut),
    ];
    text.counter(
        "prefork_connections_cut",
        "Connections that were open at the drain timeout, or upgraded ones after their grace time",
        cut.map(|(labels, count)| (labels, of(sum, count))),
    );
    let limited = [
        ("limit=\"client\"", Count::ClientLimited),
        ("limit=\"worker\"", Count::Evicted),
    ];
    text.counter(
        "prefork_connections_limited",
        "New connections of a client that had too many, and idle ones that made room for new ones",
        limited.map(|(labels, count)| (labels, of(sum, count))),
    );
    text.counter(
        "prefork_connections_spent",
        "Connections that ended because of their age or of the number of their requests",
        [("", of(sum, Count::Spent))],
    );
}

fn faults(text: &mut Text, sum: &Sum) {
    let timeouts = [
        ("kind=\"header\"", Count::HeaderTimeouts),
        ("kind=\"body\"", Count::BodyTimeouts),
        ("kind=\"write\"", Count::WriteTimeouts),
        ("kind=\"idle\"", Count::IdleTimeouts),
    ];
    text.counter(
        "prefork_timeouts",
        "Requests and connections that a timeout ended",
        timeouts.map(|(labels, count)| (labels, of(sum, count))),
    );
    text.counter(
        "prefork_panics",
        "Panics of handlers and of response bodies",
        [("", of(sum, Count::Panics))],
    );
    text.counter(
        "prefork_broken_responses",
        "Responses whose body failed before its end",
        [("", of(sum, Count::BrokenResponses))],
    );
    text.gauge(
        "prefork_longest_stall_seconds",
        "The longest time for which the event loop of a worker stood still",
        [("", sum.totals().longest_stall.as_secs_f64())],
    );
}

fn tls(text: &mut Text, sum: &Sum) {
    let resumed = of(sum, Count::TlsResumed);
    let full = (of(sum, Count::TlsHandshakes) - resumed).max(0.0);
    text.counter(
        "prefork_tls_handshakes",
        "TLS handshakes that succeeded",
        [("resumed=\"false\"", full), ("resumed=\"true\"", resumed)],
    );
    text.counter(
        "prefork_tls_handshake_failures",
        "TLS handshakes that failed because of what the client sent",
        [("", of(sum, Count::TlsHandshakeFailures))],
    );
}

fn server(text: &mut Text, status: &Status) {
    let states = STATES.map(|(state, name)| {
        let is_now = f64::from(u8::from(state == status.state));
        (format!("state=\"{name}\""), is_now)
    });
    text.gauge("prefork_state", "1 for the state of the server", states);
    text.gauge(
        "prefork_slots",
        "How many slots the server is to have",
        [("", f64::from(status.workers))],
    );
    text.gauge(
        "prefork_generation",
        "The newest generation of which a worker was ready",
        [("", f64::from(status.generation.0))],
    );
}

fn operations(text: &mut Text, history: &History) {
    let History { exits, .. } = history;
    text.counter(
        "prefork_worker_starts",
        "Worker processes that were started",
        [("", history.starts as f64)],
    );
    text.counter(
        "prefork_worker_exits",
        "Worker processes that exited with 0, exited with another code, or were ended by a signal",
        [
            ("reason=\"clean\"", exits.clean as f64),
            ("reason=\"failed\"", exits.failed as f64),
            ("reason=\"signal\"", exits.signal as f64),
        ],
    );
    text.counter(
        "prefork_worker_hangs",
        "Workers whose event loop stood still while work waited",
        [("", history.hung as f64)],
    );
    for (name, help, operations) in [
        (
            "prefork_reloads",
            "Reloads that have ended",
            history.reloads,
        ),
        (
            "prefork_upgrades",
            "Upgrades that have ended",
            history.upgrades,
        ),
    ] {
        let outcomes = [
            ("outcome=\"finished\"", operations.finished as f64),
            ("outcome=\"abandoned\"", operations.abandoned as f64),
        ];
        text.counter(name, help, outcomes);
    }
    text.counter(
        "prefork_resizes",
        "Changes of the number of slots",
        [("", history.resizes as f64)],
    );
    text.counter(
        "prefork_listeners_reopened",
        "Listeners that were shut down and listen again",
        [("", history.reopened as f64)],
    );
}

/// The worker of each slot that was started last.
fn newest(view: &View) -> BTreeMap<Slot, &Page> {
    let mut newest: BTreeMap<Slot, &Page> = BTreeMap::new();
    for page in view.pages() {
        let held = newest.entry(page.worker.slot).or_insert(page);
        if page.number >= held.number {
            *held = page;
        }
    }
    newest
}

fn slots(text: &mut Text, status: &Status, newest: &BTreeMap<Slot, &Page>) {
    let up = status.slots.iter().map(|slot| {
        let serves = |worker: &&_| matches!(worker, WorkerState::Serving);
        let states = slot.workers.iter().map(|worker| &worker.state);
        (
            label(slot.slot),
            states.filter(serves).count().min(1) as f64,
        )
    });
    text.gauge("prefork_worker_up", "1 if a worker of the slot serves", up);
    let mut of_pages = |name, help, value: &dyn Fn(&Page) -> Option<f64>| {
        let values = newest.iter();
        let values = values.filter_map(|(&slot, page)| Some((label(slot), value(page)?)));
        text.gauge(name, help, values);
    };
    let gauge = |gauge| move |page: &Page| Some(f64::from(page.counts.gauge(gauge)));
    of_pages(
        "prefork_worker_generation",
        "The generation of the worker",
        &|page| Some(f64::from(page.worker.generation.0)),
    );
    of_pages(
        "prefork_worker_connections",
        "Connections that the worker has open",
        &gauge(Gauge::Connections),
    );
    of_pages(
        "prefork_worker_connections_served",
        "Connections that are open and have not been idle for about a second",
        &gauge(Gauge::Served),
    );
    of_pages(
        "prefork_worker_connections_max",
        "How many connections the worker may have open",
        &gauge(Gauge::ConnectionsMax),
    );
    of_pages(
        "http_server_active_requests",
        "Requests that have begun and are not finished",
        &gauge(Gauge::Requests),
    );
    let processes: BTreeMap<Slot, Process> = newest
        .iter()
        .filter_map(|(&slot, page)| Some((slot, Process::of(page.worker.pid)?)))
        .collect();
    let mut of_processes = |name, help, value: &dyn Fn(&Process) -> f64| {
        let values = processes.iter();
        text.gauge(
            name,
            help,
            values.map(|(&slot, process)| (label(slot), value(process))),
        );
    };
    of_processes(
        "prefork_worker_cpu_seconds",
        "CPU time of the worker since it was started",
        &|process| process.cpu_seconds,
    );
    of_processes(
        "prefork_worker_resident_memory_bytes",
        "Memory of the worker, shared memory included",
        &|process| process.resident_bytes,
    );
    of_processes(
        "prefork_worker_open_fds",
        "Descriptors that the worker has open; 0 before Linux 6.2",
        &|process| process.open_fds,
    );
}

fn label(slot: Slot) -> String {
    format!("slot=\"{slot}\"")
}

fn of(sum: &Sum, count: Count) -> f64 {
    sum.of(&[count]) as f64
}
