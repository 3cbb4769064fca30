use super::*;
use crate::protocol::own_metrics::{Description, Key, Kind, Series};

const NOW: Duration = Duration::from_secs(100);

fn page() -> Page {
    Page::new().expect("memory")
}

fn joined(page: &Page) -> WorkerStats {
    join(page.share()).expect("the same layout")
}

#[test]
fn the_master_reads_what_a_worker_writes() {
    let (scoreboard, page) = (Scoreboard::new().expect("memory"), page());
    let stats = joined(&page);
    stats.connection_begins(Count::Connections);
    stats.request_begins();
    stats.add(Count::BytesOut, 100);
    stats.set(Gauge::HeartbeatMillis, 1500);
    stats.note_latency(Duration::from_millis(1), 16);
    let vitals = Vitals {
        heartbeat: Duration::from_millis(1500),
        connections: 1,
    };
    assert_eq!(page.vitals(NOW), vitals);
    assert_eq!(page.connections(), 1);
    assert_eq!(page.standing(NOW), None, "it has not begun");
    stats.set_state(State::Serving);
    stats.set(Gauge::ConnectionsMax, 9);
    stats.set(Gauge::Served, 1);
    let standing = Standing {
        heartbeat: vitals.heartbeat,
        connections: 1,
        connections_max: 9,
        served: 1,
    };
    assert_eq!(page.standing(NOW), Some(standing));
    let totals = scoreboard.totals([&page].into_iter());
    assert_eq!((totals.requests, totals.bytes_out), (1, 100));
    assert!(totals.latency_p99.abs_diff(Duration::from_millis(1)) < Duration::from_micros(63));
}

/// Else a worker whose first connection comes just then seems to have hung since its last one.
#[test]
fn who_sees_a_connection_sees_the_heartbeat_before_it() {
    let page = page();
    let stats = joined(&page);
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            for beat in 1..=5_000_000 {
                stats.beat(beat);
                stats.set(Gauge::Connections, beat);
            }
        });
        while !worker.is_finished() {
            let vitals = page.vitals(Duration::MAX);
            let heartbeat = vitals.heartbeat.as_millis();
            assert!(heartbeat >= vitals.connections.into(), "{vitals:?}");
        }
    });
}

/// The sum does not fall when a worker ends, though two workers of a slot run at once.
#[test]
fn totals_outlive_workers() {
    let scoreboard = Scoreboard::new().expect("memory");
    let (old, new) = (page(), page());
    let (old_row, new_row) = (joined(&old), joined(&new));
    let mut before = 0;
    for round in 0..10 {
        old_row.add(Count::Requests, 2);
        new_row.add(Count::Requests, 3);
        let now = scoreboard.totals([&old, &new].into_iter()).requests;
        assert_eq!(now, before + 5, "round {round}");
        before = now;
    }
    old_row.set(Gauge::LongestStallMillis, 70);
    scoreboard.keep(&old);
    let living = scoreboard.totals([&new].into_iter());
    assert_eq!(living.requests, before);
    new_row.add(Count::Requests, 1);
    scoreboard.keep(&new);
    let totals = scoreboard.totals([].into_iter());
    assert_eq!(totals.requests, before + 1);
    assert_eq!(totals.longest_stall, Duration::from_millis(70));
}

/// A sibling that still knows the page must not think that a worker without load is there.
#[test]
fn the_page_of_a_worker_that_was_killed_says_that_it_does_not_serve() {
    let killed = page();
    joined(&killed).set_state(State::Serving);
    let known = PageView::open(&killed.read_only().expect("/proc is there")).expect("a page");
    assert!(known.standing(Duration::ZERO).is_some());
    Scoreboard::new().expect("memory").keep(&killed);
    assert_eq!(known.standing(Duration::ZERO), None);
}

#[test]
fn the_next_image_goes_on_with_the_same_counts() {
    let (scoreboard, gone, living) = (Scoreboard::new().expect("memory"), page(), page());
    joined(&gone).add(Count::Requests, 5);
    scoreboard.keep(&gone);
    let stats = joined(&living);
    stats.add(Count::Requests, 2);
    let left = scoreboard.share().expect("a descriptor");
    let mut writer = Writer::default();
    living.put(&mut writer);
    // As after an exec: the descriptor stays open, and the mapping is gone.
    let (bytes, kept) = writer.finish();
    let Page { fd, map } = living;
    drop((scoreboard, map));
    assert_eq!(kept, [fd.as_raw_fd()]);
    std::mem::forget(fd);
    let scoreboard = Scoreboard::inherit(left).expect("the same layout");
    let living = Page::take(&mut Reader::new(&bytes)).expect("it is open");
    stats.add(Count::Requests, 1);
    let totals = scoreboard.totals([&living].into_iter());
    assert_eq!(totals.requests, 8);
}

#[test]
fn another_layout_is_refused_by_both_sides() {
    let page = page();
    page.map[1].store(LAYOUT[1] + 1, Relaxed);
    let fd = || page.fd.try_clone().expect("a descriptor");
    join(fd()).expect_err("another version");
    Scoreboard::inherit(fd()).expect_err("another version");
    let short = memory::create(c"short", WORDS - 1).expect("memory");
    join(short).expect_err("another length");
}

fn count_own(page: &Page) -> &'static AtomicU64 {
    let orders = Series {
        name: "orders".into(),
        kind: Kind::Counter,
        labels: Vec::new(),
        limits: Vec::new(),
    };
    let own = join_own(page).expect("the same layout");
    &own.append(&Key::Series(orders)).expect("room")[0]
}

fn own(page: &Page) -> Vec<u64> {
    let mut sum = own_metrics::Sum::default();
    sum.add_ended(page.own());
    let values = sum.series().map(|(_, values)| values[0]);
    values.collect()
}

#[test]
fn what_the_app_counts_is_kept_and_copied_and_crosses_an_upgrade() {
    let scoreboard = Scoreboard::new().expect("memory");
    for orders in [3, 4] {
        let worker = page();
        count_own(&worker).fetch_add(orders, Relaxed);
        scoreboard.keep(&worker);
    }
    scoreboard.keep(&page());
    assert_eq!(own(&scoreboard.copy().expect("memory")), [7]);
    let next = Scoreboard::inherit(scoreboard.share().expect("a descriptor"));
    assert_eq!(own(&next.expect("the same layout").ended), [7]);
}

#[test]
fn pages_of_an_image_without_metrics_of_the_app_go_on() {
    let old = || Page::with_part(0).expect("memory");
    let (ended, canary) = (old(), old());
    joined(&ended).add(Count::Requests, 5);
    joined(&canary).add(Count::Requests, 2);
    let part = join_own(&canary).expect("the same layout");
    let orders = Key::Description(Description {
        name: "orders".into(),
        unit: String::new(),
        text: String::new(),
    });
    assert!(part.append(&orders).is_none() && canary.own().is_empty());
    let scoreboard = Scoreboard::inherit(ended.share()).expect("the same layout");
    scoreboard.keep(&canary);
    let worker = page();
    count_own(&worker).fetch_add(3, Relaxed);
    scoreboard.keep(&worker);
    assert_eq!(scoreboard.totals([].into_iter()).requests, 7);
    assert_eq!(own(&scoreboard.ended), [3]);
}

/// Whatever a worker writes into its page, the master goes on and adds up the counts of the
/// others.
#[test]
fn a_hostile_worker_reaches_only_its_own_row_and_no_sum_overflows() {
    let scoreboard = Scoreboard::new().expect("memory");
    let (honest, hostile) = (page(), page());
    joined(&honest).add(Count::Requests, 5);
    for word in [u64::MAX, u64::MAX / 2 + 1, 1 << 32] {
        assert_eq!(hostile.map.len(), WORDS + WORKER_WORDS, "no other page");
        hostile.map.iter().for_each(|at| at.store(word, Relaxed));
        let vitals = hostile.vitals(NOW);
        assert!(vitals.heartbeat <= NOW && vitals.connections <= GAUGE_MAX);
        assert!(hostile.connections() > 0);
        hostile.map[GAUGES + Gauge::State as usize].store(State::Serving as u64, Relaxed);
        let standing = hostile.standing(NOW).expect("it says that it serves");
        let Standing {
            heartbeat,
            connections,
            connections_max,
            served,
        } = standing;
        assert!(heartbeat <= NOW);
        assert!(
            [connections, connections_max, served]
                .iter()
                .all(|&it| it <= GAUGE_MAX)
        );
        let totals = scoreboard.totals([&honest, &hostile].into_iter());
        assert!(totals.requests > 5 && totals.bytes_in > 0 && totals.timeouts > 0);
    }
    assert_eq!(honest.vitals(NOW).connections, 0);
    for _ in 0..2 {
        scoreboard.keep(&hostile);
    }
    let totals = scoreboard.totals([&honest].into_iter());
    assert!(totals.requests > 5);
    let alone = Scoreboard::new().expect("memory");
    assert_eq!(alone.totals([&honest].into_iter()).requests, 5);
}
