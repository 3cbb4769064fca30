use std::collections::BTreeSet;
use std::os::fd::OwnedFd;

use nix::unistd::Pid;

use super::*;
use crate::handle::{Command, Handle};
use crate::hooks::{Notice, WorkerExit, WorkerInfo};
use crate::id::Generation;
use crate::policy::WorkerState;
use crate::protocol::admin::{AcceptQueue, AdminChannel, Fact, ServerView};
use crate::protocol::own_metrics::{Key, Kind, Series};
use crate::protocol::scoreboard::{Page, Scoreboard, join, join_own};
use crate::stats::{WORDS, WorkerStats};
use crate::status::{SlotStatus, WorkerStatus};
use crate::sys::memory;

/// A server with two slots, one of them without a worker, and the counts of the worker.
pub(in crate::admin) fn view() -> (View, WorkerStats) {
    view_in(ServerState::Serving)
}

fn view_in(state: ServerState) -> (View, WorkerStats) {
    let (_, channel) = AdminChannel::pair().expect("a pair");
    view_by(channel, state)
}

/// The same of a process that has this channel.
pub(in crate::admin) fn view_by(channel: AdminChannel, state: ServerState) -> (View, WorkerStats) {
    let address = "127.0.0.1:9180".parse().expect("an address");
    let (handle, _commands) = Handle::pair().expect("a pair");
    let mut view = View::new(Pid::this(), channel, address, handle);
    let ended = Scoreboard::new().and_then(|board| board.copy());
    let ended = ended.expect("memory").read_only();
    let ended = ended.expect("/proc is there");
    view.apply(Fact::Ended, Some(ended)).expect("a page");
    let worker = worker();
    let page = Page::new().expect("memory");
    let stats = join(page.share()).expect("the same layout");
    let readable = page.read_only().expect("/proc is there");
    view.apply(Fact::Worker(worker), Some(readable))
        .expect("a page");
    view.apply(Fact::View, Some(told(state))).expect("a view");
    (view, stats)
}

fn worker() -> WorkerInfo {
    WorkerInfo::new(Slot(1), Generation(7), std::process::id())
}

/// What the master tells of a server in this state.
pub(in crate::admin) fn told(state: ServerState) -> OwnedFd {
    let worker = worker();
    let history = history(worker);
    let slot = |slot, workers| SlotStatus {
        slot: Slot(slot),
        workers,
        adopted_by: None,
        backing_off: false,
    };
    let worker = WorkerStatus {
        worker,
        state: WorkerState::Serving,
        connections: 0,
        requests: 0,
    };
    let status = Status {
        state,
        addresses: Vec::new(),
        workers: 2,
        generation: Generation(7),
        slots: vec![slot(0, Vec::new()), slot(1, vec![worker])],
        totals: sum_of_nothing(),
    };
    let server = ServerView {
        status,
        admin: Vec::new(),
        history,
        operations: crate::status::Operations::default(),
        queues: vec![AcceptQueue {
            address: "unix:/a\"b".parse().expect("an address"),
            slot: Some(Slot(1)),
            connections: 3,
            max: 1024,
        }],
        certificates: vec![("example.org".to_owned(), 1_798_761_600)],
    };
    server.to_memory().expect("memory")
}

/// A worker has ended, and a reload runs.
fn history(worker: WorkerInfo) -> History {
    let (mut history, generation) = (History::default(), worker.generation);
    let status = WorkerExit::Code(0);
    let exited = Notice::WorkerExited {
        worker,
        status,
        cut: 0,
    };
    history.note(&exited, 1);
    history.note(&Notice::ReloadStarted { generation }, 2);
    history
}

fn sum_of_nothing() -> crate::stats::Totals {
    Sum::new().totals()
}

#[test]
fn samples_are_those_of_the_pages() {
    let (view, stats) = view();
    stats.add(Count::Requests, 3);
    stats.add(Count::ClientError, 2);
    stats.set(Gauge::Connections, 5);
    let took = std::time::Duration::from_micros(200);
    stats.note_latency(took, 16);
    // An event stream, for example.
    let hour = std::time::Duration::from_secs(3600);
    stats.note_latency(hour, 1);
    let text = page(&view, Format::Prometheus);
    let has = |line: &str| assert!(text.lines().any(|it| it == line), "{line} in\n{text}");
    has("# TYPE prefork_http_requests_total counter");
    has("prefork_http_requests_total 3");
    has("prefork_http_responses_total{class=\"4xx\"} 2");
    has("prefork_worker_connections{slot=\"1\"} 5");
    has("prefork_worker_up{slot=\"0\"} 0");
    has("prefork_worker_up{slot=\"1\"} 1");
    has("http_server_request_duration_seconds_bucket{le=\"0.000128\"} 0");
    has("http_server_request_duration_seconds_bucket{le=\"0.000256\"} 16");
    has("http_server_request_duration_seconds_bucket{le=\"67.108864\"} 16");
    has("http_server_request_duration_seconds_bucket{le=\"+Inf\"} 17");
    has("http_server_request_duration_seconds_sum 3600.0032");
    let open = page(&view, Format::OpenMetrics);
    assert!(open.contains("# TYPE prefork_http_requests counter\n"));
    assert!(open.ends_with("# EOF\n"));
}

/// When a worker ends, its counts stay. When the master begins anew, the new counts replace the
/// others as soon as all have come.
#[test]
fn counts_do_not_fall_and_are_not_added_twice() {
    let (mut view, stats) = view();
    stats.add(Count::Requests, 3);
    let requests = |view: &View| view.sum().of(&[Count::Requests]);
    assert_eq!(requests(&view), 3);
    view.apply(Fact::Gone(std::process::id()), None)
        .expect("it is known");
    assert_eq!(requests(&view), 3);
    let page = Page::new().expect("memory");
    join(page.share())
        .expect("the same layout")
        .add(Count::Requests, 4);
    let anew = page.read_only().expect("/proc is there");
    view.apply(Fact::Ended, Some(anew)).expect("a page");
    assert_eq!(requests(&view), 3);
    let server = told(ServerState::Serving);
    view.apply(Fact::View, Some(server)).expect("a view");
    assert_eq!(requests(&view), 4);
}

#[test]
fn a_worker_that_spoils_its_page_hides_its_own_counts_only() {
    let (mut view, stats) = view();
    stats.add(Count::Requests, 3);
    let spoiled = memory::create(c"spoiled", WORDS).and_then(|page| memory::read_only(&page));
    let hostile = WorkerInfo::new(Slot(0), Generation(7), 1);
    view.apply(Fact::Worker(hostile), Some(spoiled.expect("memory")))
        .expect("the others are shown");
    view.apply(Fact::Gone(hostile.pid), None)
        .expect("it is not known");
    assert_eq!(view.sum().of(&[Count::Requests]), 3);
}

/// The worker that replaces a recycled one has the same generation, and may have a lower pid.
#[test]
fn gauges_of_a_slot_are_those_of_the_worker_that_was_started_last() {
    let (mut view, stats) = view();
    stats.set(Gauge::Connections, 5);
    let WorkerInfo {
        slot, generation, ..
    } = worker();
    let page = Page::new().expect("memory");
    let successor = join(page.share()).expect("the same layout");
    successor.set(Gauge::Connections, 2);
    let readable = page.read_only().expect("/proc is there");
    let info = WorkerInfo::new(slot, generation, 1);
    view.apply(Fact::Worker(info), Some(readable))
        .expect("a page");
    let page = super::page(&view, Format::Prometheus);
    assert!(
        page.contains("prefork_worker_connections{slot=\"1\"} 2\n"),
        "{page}"
    );
}

/// The sums have room for four full pages.
#[test]
fn series_without_room_are_counted_while_their_workers_run() {
    let (mut view, _stats) = view();
    let refused = |view: &View| {
        let page = page(view, Format::Prometheus);
        let line = page
            .lines()
            .find(|it| it.starts_with("prefork_own_metrics_refused_total "));
        let (_, count) = line
            .and_then(|line| line.split_once(' '))
            .expect("it is there");
        count.parse::<u64>().expect("a number")
    };
    for worker in 1..=5 {
        assert_eq!(refused(&view), 0);
        let page = Page::new().expect("memory");
        let part = join_own(page.share()).expect("the same layout");
        let series = |at| Series {
            name: format!("worker_{worker}_counts_{at}"),
            kind: Kind::Counter,
            labels: Vec::new(),
            limits: Vec::new(),
        };
        let counts = (0..).map_while(|at| part.append(&Key::Series(series(at))));
        assert!(counts.count() > 3000);
        let info = WorkerInfo::new(Slot(worker), Generation(7), worker.into());
        let readable = page.read_only().expect("/proc is there");
        view.apply(Fact::Worker(info), Some(readable))
            .expect("a page");
    }
    let all = refused(&view);
    assert!(all > 3000, "{all}");
    for worker in 1..=5 {
        view.apply(Fact::Gone(worker), None).expect("it is known");
        assert!(refused(&view) >= all);
    }
}

#[test]
fn the_guide_names_each_metric() {
    let (view, _stats) = view();
    let text = page(&view, Format::Prometheus);
    let introduced = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let names: BTreeSet<&str> = introduced
        .map(|it| it.split(' ').next().expect("a name"))
        .collect();
    let guide = include_str!("../../guide/metrics.md");
    let section = guide.split("\n# ").find(|it| it.starts_with("Metrics\n"));
    let table = section
        .expect("there is one")
        .lines()
        .filter(|line| line.starts_with("| `"));
    let told: BTreeSet<&str> = table
        .filter_map(|line| line.split('|').nth(1))
        .flat_map(|cell| cell.split('`').skip(1).step_by(2))
        .filter(|name| !name.starts_with('/'))
        .collect();
    assert_eq!(told, names);
}

#[test]
fn queues_and_certificates_are_on_the_page() {
    let (view, _stats) = view();
    let page = page(&view, Format::Prometheus);
    for line in [
        r#"prefork_accept_queue_connections{address="unix:/a\"b",slot="1"} 3"#,
        r#"prefork_accept_queue_max{address="unix:/a\"b",slot="1"} 1024"#,
        r#"prefork_tls_certificate_end_timestamp_seconds{certificate="0",name="example.org"} "#,
    ] {
        assert!(page.contains(line), "{line}: {page}");
    }
    assert!(page.contains(" 1798761600\n"), "{page}");
}

#[test]
fn a_command_is_noted_to_join_or_to_follow_the_one_that_runs() {
    let (reload, upgrade) = (Command::Reload, Command::Upgrade);
    for (state, command, begin) in [
        (ServerState::Serving, reload, None),
        (ServerState::Reloading, reload, Some("a reload runs")),
        (ServerState::Upgrading, reload, Some("an upgrade runs")),
        (ServerState::Reloading, upgrade, Some("a reload runs")),
        (ServerState::Upgrading, upgrade, Some("an upgrade runs")),
        (ServerState::Reloading, Command::ReopenLogs, None),
    ] {
        let (view, _stats) = view_in(state);
        let note = view.note_on(command);
        let noted = note.and_then(|note| note.split(':').next());
        assert_eq!(noted, begin, "{command:?} while {state:?}");
    }
}
