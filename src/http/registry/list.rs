//! All live connections of this worker: their deadlines, the drain and the cut.
//!
//! No connection has a timer. One coarse clock ticks while there are connections, and each tick
//! looks at those whose turn it is. A connection's turn comes at least once per shortest timeout:
//! whatever it began since its last turn cannot be due before the next one, and so a request
//! never has to touch the registry. Deadlines are met late by at most two ticks, never early.

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
use crate::http::registry::active_set::{ActiveSet, EvictionScore, Index};
use crate::http::registry::clock::Clock;
use crate::http::registry::counters::Counters;
use crate::http::registry::idle_queue::IdleQueue;
use crate::http::registry::mode::{Handovers, Mode};
use crate::http::registry::state::{ConnState, Stage};
use crate::http::registry::timeouts::{Deadline, Order, Timeouts};
use crate::http::registry::wheel::{Tick, Wheel};
use crate::stats::{Timing, WorkerStats};

/// See the module's head.
pub(crate) struct Registry {
    pub(crate) counters: Counters,
    pub(crate) http: Http,
    pub(crate) members: RefCell<Members>,
    pub(crate) clock: Arc<Clock>,
    pub(crate) timeouts: Timeouts,
    pub(crate) mode: Cell<Mode>,
    pub(crate) handovers: Handovers,
    pub(crate) idle_queue: IdleQueue,
    #[cfg(feature = "http2")]
    pub(crate) kept: Cell<usize>,
    pub(crate) first_came: Notify,
    pub(crate) last_left: Notify,
    pub(crate) drain_asked: Notify,
}

pub(crate) struct Members {
    pub(crate) entries: Slab<Entry>,
    pub(crate) wheel: Wheel,
    pub(crate) active: ActiveSet,
}

pub(crate) struct Entry {
    pub(crate) state: Arc<ConnState>,
    pub(crate) order: Option<Order>,
    /// Nowhere while it is at rest.
    pub(crate) index: Index,
    /// When it is old.
    pub(crate) end_of_life: Option<Tick>,
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
            http,
            mode: Cell::new(Mode::Serving),
            handovers: Handovers::default(),
            idle_queue: IdleQueue::default(),
            #[cfg(feature = "http2")]
            kept: Cell::new(0),
            first_came: Notify::new(),
            last_left: Notify::new(),
            drain_asked: Notify::new(),
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

    /// How many connections are live.
    pub(crate) fn len(&self) -> usize {
        self.members.borrow().entries.len()
    }

    /// How many connections are served, being not at rest.
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

    /// Drives all of the above; never ends.
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
        // A worker that was stuck does not catch up: its clients could not help it.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            if self.len() == 0 {
                self.first_came.notified().await;
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
                return self.call_again();
            };
            // Woken outside of the borrow: a waker may be the user's code.
            if let Some(waker) = self.examine(key, now) {
                waker.wake();
            }
        }
    }

    /// Looks at one connection and puts it down for its next turn.
    pub(crate) fn examine(&self, key: usize, now: Tick) -> Option<Waker> {
        let Members { entries, wheel, .. } = &mut *self.members.borrow_mut();
        let entry = entries
            .get_mut(key)
            .expect("who leaves the slab leaves the wheel");
        wheel.put(key, self.turn(entry));
        if entry.end_of_life.is_some_and(|end| end <= now) && entry.state.end_after_response() {
            self.counters.spent();
            // In HTTP/2 the client can be told now.
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
            order => entry.give(order),
        }
    }

    /// Nothing is due. But a connection that has been idle for a while is put to rest, and while a
    /// handler, or the body of its answer, takes its time somebody is to look whether it has still
    /// a client.
    fn look_after(&self, entry: &mut Entry, now: Tick) -> Option<Waker> {
        if !entry.index.is_present() || !self.timeouts.is_long(&entry.state, now) {
            return None;
        }
        if entry.state.is_idle() {
            return entry.give(Order::Rest);
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

    /// When a connection is looked at next. One that is at rest begins nothing new without a word;
    /// one that is served may have begun something since its last turn, so that its turn comes
    /// before anything can be due.
    pub(crate) fn turn(&self, entry: &Entry) -> Tick {
        let now = self.clock.now();
        let ahead = match (self.mode.get(), entry.index.is_present()) {
            (Mode::HandingOver { .. } | Mode::Draining { .. }, _) => 1,
            (Mode::Serving, true) => self.timeouts.horizon,
            (Mode::Serving, false) => Wheel::REACH,
        };
        let due = self.deadline(&entry.state);
        let latest = match entry.end_of_life {
            Some(end) if end > now => end.min(now.after(ahead)),
            _ => now.after(ahead),
        };
        due.map_or(latest, |(due, _)| due.clamp(now.after(1), latest))
    }

    pub(crate) fn deadline(&self, state: &ConnState) -> Option<(Tick, Order)> {
        self.timeouts.deadline(state, self.draining(state))
    }

    /// A connection is served from now on. Another may have to rest for it.
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
                entry.index = active.enter(key);
            }
            wheel.put(key, self.turn(entry));
            let now = self.clock.now();
            let surplus = active.surplus(|other| match other == key {
                // Its request has not begun.
                true => EvictionScore::None,
                false => claim(&entries[other].state, now),
            });
            surplus.and_then(|other| {
                members.deactivate(other);
                members.entries[other].give(Order::Rest)
            })
        };
        if let Some(waker) = surplus {
            waker.wake();
        }
    }

    /// A connection is served no more.
    pub(crate) fn rest(&self, key: usize) {
        let members = &mut *self.members.borrow_mut();
        members.deactivate(key);
        members.wheel.put(key, self.turn(&members.entries[key]));
    }
}

fn claim(state: &ConnState, now: Tick) -> EvictionScore {
    match state.is_idle() {
        true if state.stamp() < now => EvictionScore::High,
        true => EvictionScore::Low,
        false => EvictionScore::None,
    }
}

impl Members {
    pub(crate) fn deactivate(&mut self, key: usize) {
        let index = std::mem::replace(&mut self.entries[key].index, Index::ABSENT);
        if index.is_present()
            && let Some(moved) = self.active.leave(index)
        {
            self.entries[moved].index = index;
        }
    }
}

impl Entry {
    /// Leaves an order and returns who is to be woken for it.
    #[must_use]
    pub(crate) fn give(&mut self, order: Order) -> Option<Waker> {
        if self.order != Some(Order::Cut) {
            self.order = Some(order);
        }
        self.task.take()
    }
}
