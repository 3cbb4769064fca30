use std::future::poll_fn;
use std::sync::Arc;
use std::task::Waker;

use tokio::net::UnixStream;

use super::*;
use crate::address::{Address, Peer};
use crate::protocol::inbox::Inbox;
use crate::protocol::scoreboard::{Page, join};
use crate::stats::{Count, State};
use crate::worker::stream::Stream;

/// A worker that serves and has no load, the inbox of its slot, and what another worker has of it.
pub(in crate::worker) fn sibling() -> (WorkerStats, Inbox, SiblingEnds) {
    let page = Page::new().expect("memory");
    let stats = join(page.share()).expect("a page");
    stats.set(Gauge::ConnectionsMax, 100);
    stats.set_state(State::Serving);
    let inbox = Inbox::new().expect("a pair");
    let ends = SiblingEnds {
        page: page.read_only().expect("/proc is there"),
        sender: inbox.sender().try_clone_to_owned().expect("a number"),
        receiver: inbox.receiver().try_clone_to_owned().expect("a number"),
    };
    (stats, inbox, ends)
}

/// A worker that serves three connections, and its only sibling, which serves none.
struct Fixture {
    placing: Placing,
    stats: WorkerStats,
    sibling: WorkerStats,
    inbox: Inbox,
}

impl Fixture {
    fn new() -> Self {
        let stats = WorkerStats::own();
        for _ in 0..3 {
            stats.connection_begins(Count::Connections);
        }
        let (sibling, inbox, ends) = sibling();
        let mut placing = Placing::new(stats.clone());
        placing.set_siblings(vec![ends]);
        Self {
            placing,
            stats,
            sibling,
            inbox,
        }
    }

    /// Whether a new connection goes to the sibling.
    fn places(&mut self) -> bool {
        let (_client, stream) = UnixStream::pair().expect("a pair");
        let address: Address = "unix:/run/app.sock".parse().expect("an address");
        let accepted = Accepted::new(Stream::Unix(stream), Peer::Unix, Arc::new(address));
        let mut cx = Context::from_waker(Waker::noop());
        self.placing.place(accepted, &mut cx).is_none()
    }

    fn places_in_a_row(&mut self) -> usize {
        (0..100).take_while(|_| self.places()).count()
    }

    /// The sibling writes a heartbeat.
    fn beat(&self) {
        let now = clock::monotonic().as_millis();
        let now = u64::try_from(now).expect("a few years");
        self.sibling.set(Gauge::HeartbeatMillis, now);
    }

    /// The sibling takes a connection from its inbox.
    fn take(&self) -> Option<Accepted> {
        let receiver = self.inbox.receiver().try_clone_to_owned();
        let mut inbox = Source::inbox(receiver.expect("a number"), None).expect("a runtime");
        let taken = inbox.accept_queued().expect("no error")?;
        assert_eq!(taken.origin, Origin::Sibling);
        self.sibling.connection_begins(taken.origin.count());
        self.sibling.add(Count::Placed, 1);
        self.beat();
        Some(taken)
    }

    /// The worker looks into the inbox so long after `start`. Returns what the sibling was given.
    fn look(&mut self, start: Duration, after: Duration) -> Given {
        self.placing.look_at_inboxes(start + after);
        self.placing.siblings[0].given
    }

    fn take_back(&mut self) -> Poll<Accepted> {
        let mut cx = Context::from_waker(Waker::noop());
        self.placing.poll_taken_back(&mut cx)
    }
}

#[tokio::test]
async fn what_was_given_counts_before_the_sibling_shows_it() {
    let mut fixture = Fixture::new();
    assert_eq!(fixture.places_in_a_row(), 3);
    for taken in 1..=3 {
        assert!(fixture.take().is_some());
        assert!(!fixture.places(), "3, and {taken} of 3");
    }
    assert!(fixture.take().is_none());
    fixture.sibling.connection_ends();
    assert!(fixture.places(), "3 and 2");
}

#[tokio::test]
async fn what_another_worker_has_given_counts_too() {
    let mut fixture = Fixture::new();
    assert!(fixture.places());
    fixture.placing.siblings[0].given = Given::Nothing;
    assert_eq!(fixture.places_in_a_row(), 2);
}

#[tokio::test]
async fn connections_that_rest_are_no_load() {
    let mut fixture = Fixture::new();
    for _ in 0..50 {
        fixture.sibling.connection_begins(Count::Connections);
        fixture.sibling.connection_rests();
    }
    fixture.beat();
    assert!(fixture.places());
    fixture.stats.connection_rests();
    fixture.stats.connection_rests();
    assert!(!fixture.places(), "1 and 1");
}

#[tokio::test]
async fn a_sibling_that_starts_drains_hangs_or_is_full_gets_nothing() {
    let mut fixture = Fixture::new();
    for state in [State::Starting, State::Draining] {
        fixture.sibling.set_state(state);
        assert!(!fixture.places(), "{state:?}");
    }
    fixture.sibling.set_state(State::Serving);
    fixture.sibling.set(Gauge::ConnectionsMax, 0);
    assert!(!fixture.places(), "it is full");
    fixture.sibling.set(Gauge::ConnectionsMax, 1);
    assert!(fixture.places() && !fixture.places(), "it has room for one");
    fixture.sibling.set(Gauge::ConnectionsMax, 100);
    fixture.sibling.connection_begins(Count::Connections);
    assert!(!fixture.places(), "its heartbeat is old");
}

#[tokio::test]
async fn a_connection_is_not_passed_on_again() {
    let mut fixture = Fixture::new();
    assert!(fixture.places());
    let taken = fixture.take().expect("it was given");
    let mut cx = Context::from_waker(Waker::noop());
    assert!(fixture.placing.place(taken, &mut cx).is_some());
}

#[tokio::test]
async fn what_a_sibling_does_not_take_in_time_is_taken_back() {
    let mut fixture = Fixture::new();
    assert!(fixture.places() && fixture.places());
    assert!(fixture.take_back().is_pending(), "it may still take them");
    for _ in 0..2 {
        let taken_back = poll_fn(|cx| fixture.placing.poll_taken_back(cx)).await;
        assert_eq!(taken_back.origin, Origin::Client);
    }
    assert!(fixture.take_back().is_pending());
    assert!(!fixture.places(), "for a while");
    let over = clock::monotonic() + LATE;
    fixture.placing.siblings[0].update(over);
    assert!(fixture.places());
}

/// Its loop may be busy for longer than it may take none.
#[tokio::test]
async fn a_sibling_that_takes_one_after_the_other_is_not_late() {
    let mut fixture = Fixture::new();
    assert_eq!(fixture.places_in_a_row(), 3);
    let start = clock::monotonic();
    for turn in 1..=2 {
        assert!(fixture.take().is_some());
        let given = fixture.look(start, TAKE_MAX * turn);
        assert!(matches!(given, Given::Some { .. }), "{given:?}");
    }
    let given = fixture.look(start, TAKE_MAX * 3);
    assert!(matches!(given, Given::Late { .. }), "{given:?}");
}

/// It is full, or its app does not accept.
#[tokio::test]
async fn a_sibling_whose_loop_turns_is_late_too_if_it_takes_none() {
    let mut fixture = Fixture::new();
    fixture.sibling.connection_begins(Count::Connections);
    fixture.beat();
    assert!(fixture.places());
    let start = clock::monotonic();
    fixture.beat();
    let given = fixture.look(start, TAKE_MAX);
    assert!(matches!(given, Given::Late { .. }), "{given:?}");
}

#[tokio::test]
async fn what_a_sibling_that_drains_was_given_is_left_to_its_slot() {
    let mut fixture = Fixture::new();
    assert!(fixture.places());
    let start = clock::monotonic();
    fixture.sibling.set_state(State::Draining);
    assert_eq!(fixture.look(start, TAKE_MAX), Given::Nothing);
    assert!(fixture.take_back().is_pending());
    assert!(fixture.inbox.is_waited_in());
}

/// So that an idle connection makes room for it, if the worker is at its limit.
#[tokio::test]
async fn what_is_to_be_taken_back_waits_as_in_a_queue() {
    let mut fixture = Fixture::new();
    assert!(fixture.places() && fixture.places());
    assert!(!fixture.placing.has_taken_back());
    poll_fn(|cx| {
        fixture.placing.look(cx);
        match fixture.placing.has_taken_back() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    })
    .await;
    assert!(fixture.take_back().is_ready());
    assert!(fixture.placing.has_taken_back(), "the other one waits");
    assert!(fixture.take().is_some(), "the sibling is late");
    assert!(!fixture.placing.has_taken_back(), "it has taken it");
    assert!(fixture.take_back().is_pending());
}

#[tokio::test]
async fn a_worker_that_drains_takes_nothing_back_unless_the_server_ends() {
    for (idle, inboxes) in [(Idle::HandOver, 0), (Idle::Close, 2)] {
        let mut fixture = Fixture::new();
        assert!(fixture.places());
        let start = clock::monotonic();
        let _ = fixture.look(start, TAKE_MAX);
        assert_eq!(fixture.placing.end(idle).len(), inboxes);
    }
}

#[tokio::test]
async fn at_the_end_of_the_server_nothing_is_left_in_an_inbox() {
    let mut fixture = Fixture::new();
    assert!(fixture.places());
    let mut left = fixture.placing.end(Idle::Close);
    let taken = left.first_mut().expect("an inbox").accept_queued();
    assert!(taken.expect("no error").is_some());
    let mut fixture = Fixture::new();
    assert!(fixture.places());
    let left = fixture.placing.end(Idle::HandOver);
    assert!(left.is_empty(), "the next worker of the slot takes it");
}

/// What it sends has a note as a connection has, but no socket.
#[tokio::test]
async fn a_sibling_that_fills_its_inbox_takes_a_bounded_part_of_a_turn() {
    let mut fixture = Fixture::new();
    let inbox = fixture.placing.siblings[0].inbox().expect("a runtime");
    fixture.placing.taken_back.push(inbox);
    let sender = fixture.inbox.sender().try_clone_to_owned();
    let sender = Sender::new(sender.expect("a number"));
    let note = Note {
        reason: Reason::Placed,
        local: "unix:/run/app.sock".parse().expect("an address"),
        forwarded: None,
        moved: Moved::default(),
    };
    let file = tempfile::tempfile().expect("a file");
    while sender.send(&file, &note).is_ok() {}
    poll_fn(|cx| {
        assert!(fixture.placing.poll_taken_back(cx).is_pending());
        Poll::Ready(())
    })
    .await;
    assert!(fixture.inbox.is_waited_in(), "other tasks have their turn");
}
