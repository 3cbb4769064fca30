//! All open connections of this worker: their deadlines, the drain and the cut.
//!
//! No connection has a timer. One coarse clock ticks while there are connections, and each tick
//! looks at the connections whose turn it is. A connection has a turn at least once per shortest
//! timeout. So nothing that it has begun since its last turn can be due before its next one, and a
//! request never has to touch the registry. Deadlines pass late by at most two ticks, never early.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};

use slab::Slab;
use tokio::sync::Notify;
use tokio::time::{MissedTickBehavior, interval};

use crate::http::options::Http;
use crate::http::registry::active_set::{ActiveSet, EvictionScore, Index, Load};
use crate::http::registry::clock::Clock;
use crate::http::registry::counters::Counters;
use crate::http::registry::idle_queue::IdleQueue;
use crate::http::registry::mode::{Handovers, Mode};
use crate::http::registry::request_ids::RequestIds;
use crate::http::registry::state::{ConnState, Stage};
use crate::http::registry::timeouts::{Deadline, Order, Timeouts};
use crate::http::registry::wheel::{Tick, Wheel};
use crate::pool::Inputs;
use crate::stats::{Timing, WorkerStats};

/// All open connections of one server.
pub(crate) struct Registry {
    pub(crate) counters: Counters,
    pub(crate) http: Http,
    pub(crate) members: RefCell<Members>,
    pub(crate) clock: Arc<Clock>,
    pub(crate) timeouts: Timeouts,
    pub(crate) mode: Cell<Mode>,
    pub(crate) handovers: Handovers,
    pub(crate) idle_queue: IdleQueue,
    pub(crate) inputs: Inputs,
    /// `None` if requests have no ids.
    pub(crate) request_ids: Option<RequestIds>,
    /// Whether requests have ids, or slow ones are logged.
    pub(crate) notes_requests: bool,
    /// Whether the log has a request whose body was over the limit.
    pub(crate) told_of_body_limit: Cell<bool>,
    #[cfg(feature = "http2")]
    pub(crate) buffered_for_http2: Cell<usize>,
    #[cfg(feature = "http2")]
    pub(crate) waiting_in_http2: Cell<usize>,
    pub(crate) first_joined: Notify,
    pub(crate) last_left: Notify,
    pub(crate) drain_asked: Notify,
    /// Notifies the bodies that end when a hand-over or a drain begins.
    pub(crate) drain_begun: Arc<Notify>,
}

pub(crate) struct Members {
    pub(crate) entries: Slab<Entry>,
    pub(crate) wheel: Wheel,
    pub(crate) active: ActiveSet,
}

pub(crate) struct Entry {
    pub(crate) state: Arc<ConnState>,
    pub(crate) order: Option<Order>,
    /// Absent while the connection rests.
    pub(crate) index: Index,
    pub(crate) load: Load,
    /// When the connection reaches its maximum age.
    pub(crate) old_at: Option<Tick>,
    pub(crate) task: Option<Waker>,
}

impl Registry {
    pub(crate) fn new(http: Http, stats: WorkerStats) -> Rc<Self> {
        Rc::new(Self {
            members: RefCell::new(Members {
                entries: Slab::new(),
                wheel: Wheel::new(),
                active: ActiveSet::new(http.max_warm, stats.clone()),
            }),
            counters: Counters::new(stats),
            clock: Arc::default(),
            timeouts: Timeouts::new(&http),
            request_ids: http.request_ids.then(RequestIds::new),
            notes_requests: http.request_ids || http.slow_request.is_some(),
            told_of_body_limit: Cell::new(false),
            http,
            mode: Cell::new(Mode::Serving),
            handovers: Handovers::default(),
            idle_queue: IdleQueue::default(),
            inputs: Inputs::new(),
            #[cfg(feature = "http2")]
            buffered_for_http2: Cell::new(0),
            #[cfg(feature = "http2")]
            waiting_in_http2: Cell::new(0),
            first_joined: Notify::new(),
            last_left: Notify::new(),
            drain_asked: Notify::new(),
            drain_begun: Arc::default(),
        })
    }

    /// A request begins. Pass what this returns to `Counters::request_ends`.
    pub(crate) fn request_begins(&self, state: &ConnState) -> Timing {
        let connection = state.of_connection();
        if state.is_of_stream() {
            connection.count_request();
        }
        if let Some(max) = self.http.max_connection_requests
            && connection.requests() >= max.get()
            && connection.end_after_response()
        {
            self.counters.spent();
        }
        self.counters.request_begins(self.clock.now())
    }

    /// How many connections are open.
    pub(crate) fn len(&self) -> usize {
        self.members.borrow().entries.len()
    }

    /// How many connections are served, and not at rest.
    #[cfg(test)]
    pub(crate) fn served(&self) -> usize {
        self.members.borrow().active.len()
    }

    /// Resolves when no connection is left.
    pub(crate) async fn emptied(&self) {
        while self.len() > 0 {
            self.last_left.notified().await;
        }
    }

    /// Drives all deadlines. It never ends.
    pub(crate) async fn run_clock(&self) {
        let mut ticks = pin!(self.tick_on());
        let mut grace = pin!(self.close_idle_after_grace());
        poll_fn(|cx| {
            let _: Poll<()> = ticks.as_mut().poll(cx);
            let _: Poll<()> = grace.as_mut().poll(cx);
            Poll::Pending
        })
        .await
    }

    async fn tick_on(&self) {
        let mut ticks = interval(self.timeouts.period);
        // A worker whose event loop was blocked does not make up for missed ticks: its clients had
        // no part in the delay.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            if self.len() == 0 {
                self.first_joined.notified().await;
                ticks.reset();
            }
            ticks.tick().await;
            self.tick();
        }
    }

    pub(crate) fn tick(&self) {
        let now = self.clock.advance();
        loop {
            let Some(key) = self.members.borrow_mut().wheel.take(now) else {
                return self.wake_waiting();
            };
            // Woken outside of the borrow: a waker may be the user's code.
            if let Some(waker) = self.examine(key, now) {
                waker.wake();
            }
        }
    }

    /// Looks at one connection and sets its next turn.
    pub(crate) fn examine(&self, key: usize, now: Tick) -> Option<Waker> {
        let Members { entries, wheel, .. } = &mut *self.members.borrow_mut();
        let entry = entries
            .get_mut(key)
            .expect("a key that leaves the slab leaves the wheel");
        wheel.put(key, self.turn(entry));
        if entry.old_at.is_some_and(|end| end <= now) && entry.state.end_after_response() {
            self.counters.spent();
            // In HTTP/2 the task can send GOAWAY now.
            return entry.task.take();
        }
        let due = self.deadline(&entry.state);
        let Some((due, order)) = due.filter(|(due, _)| *due <= now) else {
            return self.look_after(entry, now);
        };
        tracing::trace!(?order, ?due, "a connection's deadline has passed");
        match order {
            Order::Expire(Deadline::Body) => {
                self.counters.timeout(Deadline::Body);
                entry.state.expire_body()
            }
            order => entry.set_order(order),
        }
    }

    /// No deadline has passed. A connection that has been idle for a while is ordered to rest.
    /// While a handler, or the body of its response, takes long, the stream checks whether the
    /// client is still there.
    fn look_after(&self, entry: &mut Entry, now: Tick) -> Option<Waker> {
        #[cfg(feature = "http2")]
        if self.waits_in_hand_over(&entry.state) {
            return entry.task.take();
        }
        if !entry.index.is_present() || !self.timeouts.is_second_over(entry.state.stamp(), now) {
            return None;
        }
        if entry.state.is_idle() || entry.state.may_rest() {
            return entry.set_order(Order::Rest);
        }
        match entry.state.stage() {
            Stage::Handling | Stage::Responding => {
                entry.state.ask_client_check();
                entry.task.take()
            }
            // The last stream may have ended on another thread.
            Stage::Streams => entry.task.take(),
            _ => None,
        }
    }

    /// The next turn of a connection. A connection at rest calls [`Registry::activate`] before it
    /// begins anything. A connection that is served may have begun something since its last turn,
    /// so its next turn comes before anything can be due.
    pub(crate) fn turn(&self, entry: &Entry) -> Tick {
        let now = self.clock.now();
        let ahead = match (self.mode.get(), entry.index.is_present()) {
            (Mode::HandingOver { .. } | Mode::Draining { .. }, _) => 1,
            (Mode::Serving, true) => self.timeouts.horizon,
            (Mode::Serving, false) => Wheel::REACH,
        };
        let due = self.deadline(&entry.state);
        let latest = match entry.old_at {
            Some(end) if end > now => end.min(now.after(ahead)),
            _ => now.after(ahead),
        };
        due.map_or(latest, |(due, _)| due.clamp(now.after(1), latest))
    }

    pub(crate) fn deadline(&self, state: &ConnState) -> Option<(Tick, Order)> {
        self.timeouts.deadline(state, self.draining(state))
    }

    /// The connection is served from now on. Another one may have to rest for that.
    pub(crate) fn activate(&self, key: usize) {
        let surplus = {
            let mut members = self.members.borrow_mut();
            let Members {
                entries,
                wheel,
                active,
            } = &mut *members;
            let entry = &mut entries[key];
            if !entry.index.is_present() {
                entry.index = active.insert(key);
            }
            entry.set_load(Load::Counts, active);
            wheel.put(key, self.turn(entry));
            let now = self.clock.now();
            let surplus = active.surplus(|other| match other == key {
                // The request of this connection has not begun.
                true => EvictionScore::None,
                false => eviction_score(&entries[other].state, now),
            });
            surplus.and_then(|other| {
                members.deactivate(other, Load::Rests);
                members.entries[other].set_order(Order::Rest)
            })
        };
        if let Some(waker) = surplus {
            waker.wake();
        }
    }

    /// The connection is no longer served.
    pub(crate) fn rest(&self, key: usize, load: Load) {
        let members = &mut *self.members.borrow_mut();
        members.deactivate(key, load);
        members.wheel.put(key, self.turn(&members.entries[key]));
    }
}

fn eviction_score(state: &ConnState, now: Tick) -> EvictionScore {
    match state.is_idle() {
        true if state.stamp() < now => EvictionScore::High,
        true => EvictionScore::Low,
        false => EvictionScore::None,
    }
}

impl Members {
    /// The connection is not served now. Its load is that of a connection that rests, or that ends.
    pub(crate) fn deactivate(&mut self, key: usize, load: Load) {
        let entry = &mut self.entries[key];
        entry.set_load(load, &self.active);
        let index = std::mem::replace(&mut entry.index, Index::ABSENT);
        if index.is_present()
            && let Some(moved) = self.active.remove(index)
        {
            self.entries[moved].index = index;
        }
    }
}

impl Entry {
    fn set_load(&mut self, load: Load, active: &ActiveSet) {
        if std::mem::replace(&mut self.load, load) != load {
            active.count(load);
        }
    }

    /// Sets the order. Returns the waker of the connection's task.
    #[must_use]
    pub(crate) fn set_order(&mut self, order: Order) -> Option<Waker> {
        if self.order != Some(Order::Cut) {
            self.order = Some(order);
        }
        self.task.take()
    }
}
