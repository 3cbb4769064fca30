//! Places new connections: a worker that has more to do than a sibling gives a new connection to
//! it, before it reads a byte. The connections of [`Prefork::run`] cannot move later.
//!
//! The kernel chooses the worker of a connection by a hash, or wakes one of several. With few
//! connections that is uneven. [`policy`] decides, by the loads in the siblings' pages: connections
//! that rest are no load, and one that was never served is, so that a burst is spread before the
//! first request. The connection goes through the inbox of the sibling's slot, and stays with the
//! worker that takes it from there.
//!
//! [`Prefork::run`]: crate::Prefork::run

mod policy;
#[cfg(test)]
pub(super) mod tests;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::task::coop;
use tokio::time::{Sleep, sleep};

use crate::drain::Idle;
use crate::moved::Moved;
use crate::protocol::channel::SiblingEnds;
use crate::protocol::inbox::{Note, Reason, Sender};
use crate::protocol::scoreboard::PageView;
use crate::stats::{Count, Gauge, WorkerStats};
use crate::sys::clock;
use crate::worker::placing::policy::Budget;
use crate::worker::source::{Accepted, Origin, Source, is_of_connection};

/// A sibling that has connections and an older heartbeat is blocked, or hangs: it has missed five.
const STALE: Duration = Duration::from_millis(500);

/// A sibling that has taken no connection from its inbox for so long is blocked, hangs, is full, or
/// its app does not accept. The worker takes back what waits then.
const TAKE_MAX: Duration = Duration::from_millis(100);

/// How long a sibling gets nothing from which connections were taken back.
const LATE: Duration = Duration::from_secs(10);

/// The siblings of a worker, and what they were given.
#[derive(Debug)]
pub(super) struct Placing {
    siblings: Vec<Sibling>,
    /// Index of the sibling that comes first if several have the least load.
    first: usize,
    budget: Budget,
    /// When to look next whether the siblings have taken what they were given.
    look: Option<Pin<Box<Sleep>>>,
    /// Inboxes whose connections the worker takes back.
    taken_back: Vec<Source>,
    stats: WorkerStats,
}

#[derive(Debug)]
struct Sibling {
    page: PageView,
    sender: Sender,
    receiver: OwnedFd,
    given: Given,
}

/// What a sibling was given. Its page does not show that before the sibling takes it.
///
/// | state | given a connection | inbox empty, or draining | late | `until` over |
/// |---|---|---|---|---|
/// | `Nothing` | `Some` | | | |
/// | `Some` | `Some` | `Nothing` | `Late`, and the worker takes back what waits | |
/// | `Late` | never | | | `Nothing` |
///
/// It is late if it has taken no connection for [`TAKE_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Given {
    Nothing,
    /// So many connections that it has not taken. Since `since` it has taken `taken` from its
    /// inbox.
    Some {
        connections: u64,
        taken: u64,
        since: Duration,
    },
    Late {
        until: Duration,
    },
}

impl Placing {
    pub(super) fn new(stats: WorkerStats) -> Self {
        Self {
            siblings: Vec::new(),
            first: 0,
            budget: Budget::default(),
            look: None,
            taken_back: Vec::new(),
            stats,
        }
    }

    /// Replaces the siblings. What the former ones were given is left to their slots.
    pub(super) fn set_siblings(&mut self, siblings: Vec<SiblingEnds>) {
        let siblings = siblings.into_iter().filter_map(|ends| {
            let sibling = Sibling::new(ends);
            let warn = |error| tracing::warn!(%error, "a sibling gets no connections");
            sibling.map_err(warn).ok()
        });
        self.siblings = siblings.collect();
        self.look_again();
        tracing::debug!(count = self.siblings.len(), "siblings");
    }

    /// A connection was taken from this worker's inbox, whatever becomes of it. The sibling that
    /// gave it sees that in this worker's page.
    pub(super) fn note_taken(&self, accepted: &Accepted) {
        if accepted.origin == Origin::Sibling {
            self.stats.add_shared(Count::Placed, 1);
        }
    }

    /// Gives a new connection to a sibling that has less to do. Returns the connection if there is
    /// none, or if it could not be sent.
    pub(super) fn place(&mut self, accepted: Accepted, cx: &mut Context<'_>) -> Option<Accepted> {
        if accepted.origin != Origin::Client {
            return Some(accepted);
        }
        let own = self.stats.gauge(Gauge::Load);
        if !self.is_uneven(own) {
            return Some(accepted);
        }
        let now = clock::monotonic();
        let Some(at) = self.choose(own, now) else {
            return Some(accepted);
        };
        let note = Note {
            reason: Reason::Placed,
            local: (*accepted.local).clone(),
            forwarded: None,
            moved: Moved::default(),
        };
        let sibling = &mut self.siblings[at];
        sibling.note_given(now);
        if let Err(error) = sibling.sender.send(accepted.stream.as_fd(), &note) {
            tracing::debug!(peer = ?accepted.peer, %error, "not given to a sibling");
            return Some(accepted);
        }
        self.budget.take(now);
        self.first = at + 1;
        self.look_later(cx);
        None
    }

    /// As long as the loads are even, a new connection costs no more than this.
    fn is_uneven(&self, own: u64) -> bool {
        let least = self.siblings.iter().map(|it| it.page.load()).min();
        least.is_some_and(|least| policy::is_uneven(own, least))
    }

    /// The index of the sibling that gets a new connection; `None` if the worker keeps it.
    fn choose(&mut self, own: u64, now: Duration) -> Option<usize> {
        if !self.budget.is_left(now) {
            return None;
        }
        self.siblings.iter_mut().for_each(|it| it.update(now));
        let count = self.siblings.len();
        let in_turn = (0..count).map(|turn| (self.first + turn) % count);
        let able = in_turn.filter_map(|at| Some((at, self.siblings[at].load_if_able(now)?)));
        policy::choose(own, able)
    }

    /// Sets the timer, unless it is set, and registers the waker.
    fn look_later(&mut self, cx: &mut Context<'_>) {
        let look = self.look.get_or_insert_with(|| Box::pin(sleep(TAKE_MAX)));
        // A timer that is over is found in the next poll.
        if look.as_mut().poll(cx).is_ready() {
            cx.waker().wake_by_ref();
        }
    }

    /// The next connection that a sibling was given and has not taken in time. To this worker it is
    /// as new as one of its own.
    pub(super) fn poll_taken_back(&mut self, cx: &mut Context<'_>) -> Poll<Accepted> {
        self.look(cx);
        while let Some(inbox) = self.taken_back.last_mut() {
            // A hostile sibling may fill the inbox as fast as it is emptied.
            ready!(coop::poll_proceed(cx)).made_progress();
            match inbox.accept_queued() {
                Ok(Some(accepted)) => return Poll::Ready(accepted.taken_back()),
                Ok(None) => drop(self.taken_back.pop()),
                Err(error) if is_of_connection(&error) => {}
                Err(error) => {
                    tracing::warn!(%error, "connections of a sibling wait");
                    self.look_later(cx);
                    break;
                }
            }
        }
        Poll::Pending
    }

    /// Looks at what the siblings have taken, if it is time.
    pub(super) fn look(&mut self, cx: &mut Context<'_>) {
        while let Some(look) = &mut self.look
            && look.as_mut().poll(cx).is_ready()
        {
            self.look = None;
            self.look_at_inboxes(clock::monotonic());
        }
    }

    /// Whether a connection is left that this worker takes back.
    pub(super) fn has_taken_back(&self) -> bool {
        self.taken_back.iter().any(Source::is_waiting)
    }

    /// Finds the siblings that have not taken in time what they were given.
    fn look_at_inboxes(&mut self, now: Duration) {
        for sibling in &mut self.siblings {
            sibling.update(now);
            let Given::Some { since, .. } = sibling.given else {
                continue;
            };
            let is_late = now.saturating_sub(since) >= TAKE_MAX;
            if let Some(inbox) = is_late.then(|| sibling.inbox()).flatten() {
                tracing::info!("a sibling has not taken its connections; they are taken back");
                sibling.given = Given::Late { until: now + LATE };
                self.taken_back.push(inbox);
            }
        }
        self.look_again();
    }

    /// Sets the timer, unless it is set, or no sibling has anything to take.
    fn look_again(&mut self) {
        let is_given = |it: &Sibling| matches!(it.given, Given::Some { .. });
        if self.siblings.iter().any(is_given) {
            self.look.get_or_insert_with(|| Box::pin(sleep(TAKE_MAX)));
        }
    }

    /// The worker drains, and gives nothing away from now on. Returns the inboxes in which new
    /// connections may be left that no other worker would take, since the whole server ends. What
    /// is in them otherwise is left to their slots: this worker is about to leave.
    pub(super) fn end(&mut self, idle: Idle) -> Vec<Source> {
        let taken_back = std::mem::take(&mut self.taken_back);
        let siblings = std::mem::take(&mut self.siblings);
        if idle == Idle::HandOver {
            return Vec::new();
        }
        let unread = siblings.iter().filter(|it| it.sender.has_unread());
        let unread = unread.filter_map(Sibling::inbox);
        taken_back.into_iter().chain(unread).collect()
    }
}

impl Sibling {
    fn new(ends: SiblingEnds) -> io::Result<Self> {
        let mut sibling = Self {
            page: PageView::open(&ends.page)?,
            sender: Sender::new(ends.sender),
            receiver: ends.receiver,
            given: Given::Nothing,
        };
        if sibling.sender.has_unread() {
            // Perhaps by this worker, which has known the slot before.
            sibling.watch(clock::monotonic(), 1);
        }
        Ok(sibling)
    }

    /// After an [`update`](Self::update): its load with what it was given. `None` if it starts,
    /// drains, hangs or is full.
    fn load_if_able(&self, now: Duration) -> Option<u64> {
        let standing = self.page.standing(now)?;
        let by_this_worker = match self.given {
            Given::Nothing => 0,
            Given::Some { connections, .. } => connections,
            Given::Late { .. } => return None,
        };
        // Another worker may have given it something.
        let coming = by_this_worker.max(u64::from(self.sender.has_unread()));
        let is_able = !standing.is_late(now, STALE) && standing.room() > coming;
        is_able.then(|| self.page.load() + coming)
    }

    /// It is given a connection now.
    fn note_given(&mut self, now: Duration) {
        match &mut self.given {
            Given::Some { connections, .. } => *connections += 1,
            Given::Nothing | Given::Late { .. } => {
                let by_others = u64::from(self.sender.has_unread());
                self.watch(now, by_others + 1);
            }
        }
    }

    /// From now on so many connections are in its inbox.
    fn watch(&mut self, now: Duration, connections: u64) {
        self.given = Given::Some {
            connections,
            taken: self.page.taken(),
            since: now,
        };
    }

    /// Looks at what the sibling has taken. The connections in the inbox of one that drains, or has
    /// ended, are for the next worker of its slot.
    fn update(&mut self, now: Duration) {
        let is_over = match &mut self.given {
            Given::Nothing => false,
            Given::Some {
                connections,
                taken,
                since,
            } => {
                let before = std::mem::replace(taken, self.page.taken());
                if *taken != before {
                    *connections = connections.saturating_sub(taken.wrapping_sub(before));
                    *since = now;
                }
                !self.sender.has_unread() || self.page.standing(now).is_none()
            }
            Given::Late { until } => *until <= now,
        };
        if is_over {
            self.given = Given::Nothing;
        }
    }

    /// Its inbox, to take connections from.
    fn inbox(&self) -> Option<Source> {
        let receiver = self.receiver.try_clone();
        let inbox = receiver.and_then(|receiver| Source::inbox(receiver, None));
        let warn = |error| tracing::warn!(%error, "connections of a sibling wait");
        inbox.map_err(warn).ok()
    }
}
