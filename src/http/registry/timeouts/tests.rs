//! Deadlines, in ticks.

use std::sync::Arc;
use std::task::Waker;

use super::super::clock::{Clock, TAKEN_MIN};
use super::*;

/// At the shortest timeout of 2 s a tick is 250 ms.
fn timeouts() -> Timeouts {
    let http = Http::new()
        .header_timeout(Duration::from_secs(2))
        .body_timeout(Duration::from_secs(3))
        .write_timeout(Duration::from_secs(4))
        .idle_timeout(Duration::from_secs(5));
    Timeouts::new(&http)
}

fn state() -> (Arc<Clock>, ConnState) {
    let clock = Arc::new(Clock::default());
    let state = ConnState::new(Arc::clone(&clock));
    state.enter(Stage::Fresh);
    (clock, state)
}

fn without_next_worker(since: Tick) -> Draining {
    let next = Next::NoWorker;
    Draining { since, next }
}

fn expire(tick: u64, deadline: Deadline) -> Option<(Tick, Order)> {
    Some((Tick(tick), Order::Expire(deadline)))
}

#[test]
fn each_stage_has_its_deadline() {
    let (clock, state) = state();
    let deadline = || timeouts().deadline(&state, None);
    state.enter(Stage::Opening);
    assert_eq!(deadline(), expire(9, Deadline::Header), "opening");
    state.enter(Stage::Fresh);
    assert_eq!(deadline(), expire(9, Deadline::Header), "fresh");
    clock.advance();
    state.has_read();
    assert_eq!(
        deadline(),
        expire(10, Deadline::Header),
        "it begins again with the first byte"
    );
    clock.advance();
    state.has_read();
    assert_eq!(
        deadline(),
        expire(10, Deadline::Header),
        "but not with the second"
    );
    state.begin_request();
    assert_eq!(deadline(), None, "a handler may take any time");
    state.enter(Stage::Idle);
    assert_eq!(deadline(), expire(2 + 21, Deadline::Idle));
    state.enter(Stage::Closing);
    assert_eq!(deadline(), expire(2 + 9, Deadline::Header));
    state.hold_nothing();
    state.enter(Stage::Upgraded);
    assert_eq!(deadline(), None);
}

#[test]
fn a_drain_shortens_the_wait_for_a_client_that_does_not_close() {
    let (clock, state) = state();
    let deadline = |drain: Option<_>| timeouts().deadline(&state, drain.map(without_next_worker));
    state.enter(Stage::Closing);
    assert_eq!(deadline(None), expire(9, Deadline::Header));
    // 1 s is 4 ticks of 250 ms, and one.
    assert_eq!(deadline(Some(Tick(0))), expire(5, Deadline::Header));
    assert_eq!(deadline(Some(Tick(2))), expire(7, Deadline::Header));
    assert_eq!(
        deadline(Some(Tick(6))),
        expire(9, Deadline::Header),
        "not longer than without"
    );
    clock.advance();
    state.write_blocked();
    assert_eq!(
        deadline(Some(Tick(0))),
        expire(9, Deadline::Header),
        "the response is still being sent"
    );
}

#[test]
fn a_body_is_timed_while_a_handler_waits_for_it() {
    let (clock, state) = state();
    let deadline = || timeouts().deadline(&state, None);
    state.begin_request();
    state.open_body();
    state.await_body(Waker::noop());
    clock.advance();
    state.await_body(Waker::noop());
    assert_eq!(
        deadline(),
        expire(13, Deadline::Body),
        "since the first wait"
    );
    state.end_await_body();
    assert_eq!(deadline(), None);
    state.await_body(Waker::noop());
    assert_eq!(
        deadline(),
        expire(14, Deadline::Body),
        "it begins again after a piece"
    );
    state.leave_body_unread();
    assert_eq!(deadline(), None);
}

#[test]
fn a_connection_whose_response_is_being_sent_is_not_idle() {
    let (clock, state) = state();
    let deadline = |drain: Option<_>| timeouts().deadline(&state, drain.map(without_next_worker));
    state.enter(Stage::Idle);
    state.write_blocked();
    assert_eq!(deadline(None), expire(17, Deadline::Write));
    assert_eq!(deadline(Some(Tick(0))), expire(17, Deadline::Write));
    clock.advance();
    state.has_written(TAKEN_MIN - 1);
    assert_eq!(deadline(None), expire(17, Deadline::Write), "not enough");
    state.has_written(1);
    assert_eq!(
        deadline(None),
        expire(1 + 21, Deadline::Idle),
        "it begins again after enough bytes"
    );
    state.write_blocked();
    state.has_written(1);
    state.has_written_all();
    assert_eq!(deadline(None), expire(1 + 21, Deadline::Idle), "enough");
}

#[test]
fn http2_is_timed_by_its_streams_and_between_them() {
    let (clock, state) = state();
    let deadline = |drain: Option<_>| timeouts().deadline(&state, drain.map(without_next_worker));
    state.enter(Stage::Quiet);
    assert_eq!(deadline(None), expire(21, Deadline::Idle));
    assert_eq!(
        deadline(Some(Tick(0))),
        expire(5, Deadline::Idle),
        "without a request it has a round trip"
    );
    state.enter(Stage::Streams);
    assert_eq!(deadline(None), None, "a handler may take any time");
    clock.advance();
    state.await_body(Waker::noop());
    // The shorter of 3 s for a body and 4 s for a response.
    assert_eq!(deadline(None), Some((Tick(1 + 13), Order::Streams)));
    state.end_await_body();
    state.enter(Stage::Ending);
    assert_eq!(deadline(None), expire(1 + 5, Deadline::Header));
}

#[test]
fn a_connection_from_another_server_is_closed_for_no_new_one_within_a_round_trip() {
    let (_clock, state) = state();
    state.enter(Stage::Idle);
    assert_eq!(timeouts().idle_since(&state, Tick(4)), None);
    assert_eq!(timeouts().idle_since(&state, Tick(5)), Some(Tick(0)));
    state.begin_request();
    state.enter(Stage::Idle);
    assert_eq!(timeouts().idle_since(&state, Tick(2)), Some(Tick(0)));
}

#[test]
fn a_drain_shortens_the_idle_timeout_only() {
    let (clock, state) = state();
    let deadline = |drain| timeouts().deadline(&state, Some(without_next_worker(Tick(drain))));
    // 1 s is 4 ticks of 250 ms, and one; the linger time 1 tick, and one.
    let close = |tick| Some((Tick(tick), Order::CloseIdle));
    assert_eq!(deadline(0), close(5), "the connection is new");
    assert!(timeouts().is_new(&state, Tick(4)));
    assert!(!timeouts().is_new(&state, Tick(5)));
    assert_eq!(
        deadline(4),
        close(6),
        "its round trip is over, so it lingers"
    );
    clock.advance();
    state.has_read();
    assert_eq!(deadline(7), expire(10, Deadline::Header));
    state.begin_request();
    assert_eq!(deadline(7), None);
    state.enter(Stage::Idle);
    assert_eq!(deadline(0), close(3), "after a request it only lingers");
    assert_eq!(deadline(7), close(9));
}

/// 5 s of silence are 20 ticks of 250 ms, and one.
#[test]
fn before_a_next_worker_a_connection_is_closed_after_five_seconds_of_silence() {
    let (clock, state) = state();
    let next = Next::Worker;
    let deadline = |since| {
        let since = Tick(since);
        timeouts().deadline(&state, Some(Draining { since, next }))
    };
    let close = |tick| Some((Tick(tick), Order::CloseIdle));
    for _ in 0..10 {
        clock.advance();
    }
    assert_eq!(deadline(5), close(21), "no request yet");
    state.enter(Stage::Idle);
    assert_eq!(deadline(12), close(10 + 21), "it may send another request");
    assert_eq!(
        deadline(40),
        close(42),
        "it has been silent for long, so it lingers"
    );
    state.enter(Stage::Quiet);
    assert_eq!(deadline(12), expire(10 + 21, Deadline::Idle));
}

#[test]
fn connections_of_one_tick_become_old_at_different_ticks() {
    let timeouts = Timeouts::new(&Http::new().max_connection_age(Duration::from_secs(100)));
    let age = timeouts.age.expect("it is set");
    let mut ends: Vec<_> = (0..100)
        .filter_map(|key| timeouts.old_at(Tick(7), key))
        .map(|Tick(end)| end - 7)
        .collect();
    ends.sort_unstable();
    assert!(ends[0] >= age && ends[99] <= age + age / 4, "{ends:?}");
    ends.dedup();
    assert!(ends.len() > 60, "{ends:?}");
    assert_eq!(self::timeouts().old_at(Tick(7), 1), None);
}

#[test]
fn an_upgraded_connection_has_a_deadline_only_in_a_drain() {
    let (clock, state) = state();
    let timeouts = Timeouts::new(&Http::new().upgrade_grace(Duration::from_secs(3)));
    clock.advance();
    state.hold_nothing();
    state.enter(Stage::Upgraded);
    state.write_blocked();
    assert_eq!(timeouts.deadline(&state, None), None);
    // 3 s are 12 ticks of 250 ms, and one; from the drain on, not from the upgrade.
    let due = Some((Tick(7 + 13), Order::EndUpgrade));
    assert_eq!(
        timeouts.deadline(&state, Some(without_next_worker(Tick(7)))),
        due
    );
}

#[test]
fn the_longest_duration_is_a_valid_timeout() {
    let http = Http::new().idle_timeout(Duration::MAX);
    let (_, state) = state();
    state.enter(Stage::Idle);
    let due = Timeouts::new(&http).deadline(&state, None);
    assert!(due.is_some_and(|(due, _)| due > Tick(u64::from(u32::MAX))));
}
