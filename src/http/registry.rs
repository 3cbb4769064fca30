//! All live connections of this worker: their deadlines, the drain and the cut.
//!
//! No connection has a timer. One coarse clock ticks while there are connections, and each tick
//! looks at those whose turn it is. A connection's turn comes at least once per shortest timeout:
//! whatever it began since its last turn cannot be due before the next one, and so a request
//! never has to touch the registry. Deadlines are met late by at most two ticks, never early.

mod drain;
mod room;
#[cfg(feature = "http2")]
mod streams;

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use slab::Slab;
use tokio::sync::Notify;
use tokio::time::{MissedTickBehavior, interval};

#[cfg(test)]
pub(super) use self::drain::LEAVING_MAX;
pub(super) use self::drain::Leave;
use self::drain::{Exit, Phase};
use self::room::Room;
use super::activity::{Activity, Stage};
use super::clock::Clock;
use super::counters::Counters;
use super::options::Http;
use super::preface::Preface;
use super::stream::Stream;
use super::timeouts::{Deadline, Order, Timeouts};
use super::warm::{Claim, Place, Warm};
use super::wheel::{Tick, Wheel};
use crate::address::Peer;
use crate::row::{Row, Timing};

/// See the module's head.
pub(super) struct Registry {
    pub(super) counters: Counters,
    pub(super) http: Http,
    members: RefCell<Members>,
    clock: Arc<Clock>,
    timeouts: Timeouts,
    phase: Cell<Phase>,
    exit: Exit,
    room: Room,
    #[cfg(feature = "http2")]
    kept: Cell<usize>,
    first_came: Notify,
    last_left: Notify,
    drain_asked: Notify,
}

struct Members {
    entries: Slab<Entry>,
    wheel: Wheel,
    warm: Warm,
}

struct Entry {
    activity: Arc<Activity>,
    order: Option<Order>,
    /// Nowhere while it is at rest.
    place: Place,
    /// When it is old.
    end_of_life: Option<Tick>,
    task: Option<Waker>,
}

impl Registry {
    pub(super) fn new(http: Http, row: Row) -> Rc<Self> {
        Rc::new(Self {
            members: RefCell::new(Members {
                entries: Slab::new(),
                wheel: Wheel::new(),
                warm: Warm::new(http.max_warm, row.clone()),
            }),
            counters: Counters::new(row),
            clock: Arc::default(),
            timeouts: Timeouts::new(&http),
            http,
            phase: Cell::new(Phase::Serving),
            exit: Exit::default(),
            room: Room::default(),
            #[cfg(feature = "http2")]
            kept: Cell::new(0),
            first_came: Notify::new(),
            last_left: Notify::new(),
            drain_asked: Notify::new(),
        })
    }

    /// Enters a connection, until the member is dropped.
    pub(super) fn join(self: &Rc<Self>) -> Member {
        let activity = Arc::new(Activity::new(Arc::clone(&self.clock)));
        let mut members = self.members.borrow_mut();
        let vacant = members.entries.vacant_entry();
        let key = vacant.key();
        let entry = Entry {
            activity: Arc::clone(&activity),
            order: None,
            place: Place::NOWHERE,
            end_of_life: self.timeouts.end_of_life(self.clock.now(), key),
            task: None,
        };
        let turn = self.turn(&entry);
        vacant.insert(entry);
        members.wheel.put(key, turn);
        if members.entries.len() == 1 {
            self.first_came.notify_one();
        }
        drop(members);
        Member {
            registry: Rc::clone(self),
            key,
            activity,
        }
    }

    /// A request has begun; `Counters::request_ends` is told what this returns.
    pub(super) fn request_begins(&self, activity: &Activity) -> Timing {
        let connection = activity.of_connection();
        if activity.is_of_stream() {
            connection.count_request();
        }
        if let Some(max) = self.http.max_connection_requests
            && connection.requests() >= max.get()
            && connection.spend()
        {
            self.counters.spent();
        }
        self.counters.request_begins(self.clock.now())
    }

    /// How many connections are live.
    pub(super) fn len(&self) -> usize {
        self.members.borrow().entries.len()
    }

    /// How many connections are served, being not at rest.
    #[cfg(test)]
    pub(super) fn served(&self) -> usize {
        self.members.borrow().warm.len()
    }

    /// Resolves when no connection is left.
    pub(super) async fn emptied(&self) {
        while self.len() > 0 {
            self.last_left.notified().await;
        }
    }

    /// Drives all of the above; never ends.
    pub(super) async fn run_clock(&self) {
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

    fn tick(&self) {
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
    fn examine(&self, key: usize, now: Tick) -> Option<Waker> {
        let Members { entries, wheel, .. } = &mut *self.members.borrow_mut();
        let entry = entries
            .get_mut(key)
            .expect("who leaves the slab leaves the wheel");
        wheel.put(key, self.turn(entry));
        if entry.end_of_life.is_some_and(|end| end <= now) && entry.activity.spend() {
            self.counters.spent();
            // In HTTP/2 the client can be told now.
            return entry.task.take();
        }
        let due = self.deadline(&entry.activity);
        let Some((due, order)) = due.filter(|(due, _)| *due <= now) else {
            return self.look_after(entry, now);
        };
        tracing::trace!(?order, ?due, "a connection's deadline has passed");
        match order {
            Order::Expire(Deadline::Body) => {
                self.counters.timeout(Deadline::Body);
                entry.activity.expire_body()
            }
            order => entry.give(order),
        }
    }

    /// Nothing is due. But a connection that has been idle for a while is put to rest, and while a
    /// handler, or the body of its answer, takes its time somebody is to look whether it has still
    /// a client.
    fn look_after(&self, entry: &mut Entry, now: Tick) -> Option<Waker> {
        if !entry.place.is_somewhere() || !self.timeouts.is_long(&entry.activity, now) {
            return None;
        }
        if entry.activity.is_idle() {
            return entry.give(Order::Rest);
        }
        match entry.activity.stage() {
            Stage::Handling | Stage::Answering => {
                entry.activity.look();
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
    fn turn(&self, entry: &Entry) -> Tick {
        let now = self.clock.now();
        let ahead = match (self.phase.get(), entry.place.is_somewhere()) {
            (Phase::HandingOver { .. } | Phase::Draining { .. }, _) => 1,
            (Phase::Serving, true) => self.timeouts.horizon,
            (Phase::Serving, false) => Wheel::REACH,
        };
        let due = self.deadline(&entry.activity);
        let latest = match entry.end_of_life {
            Some(end) if end > now => end.min(now.after(ahead)),
            _ => now.after(ahead),
        };
        due.map_or(latest, |(due, _)| due.clamp(now.after(1), latest))
    }

    fn deadline(&self, activity: &Activity) -> Option<(Tick, Order)> {
        self.timeouts.deadline(activity, self.draining(activity))
    }

    /// A connection is served from now on. Another may have to rest for it.
    fn warm_up(&self, key: usize) {
        let surplus = {
            let mut members = self.members.borrow_mut();
            let Members {
                entries,
                wheel,
                warm,
            } = &mut *members;
            let entry = &mut entries[key];
            if !entry.place.is_somewhere() {
                entry.place = warm.enter(key);
            }
            wheel.put(key, self.turn(entry));
            let now = self.clock.now();
            let surplus = warm.surplus(|other| match other == key {
                // What it is served for has not begun.
                true => Claim::None,
                false => claim(&entries[other].activity, now),
            });
            surplus.and_then(|other| {
                members.cool_down(other);
                members.entries[other].give(Order::Rest)
            })
        };
        if let Some(waker) = surplus {
            waker.wake();
        }
    }

    /// A connection is served no more.
    fn rest(&self, key: usize) {
        let members = &mut *self.members.borrow_mut();
        members.cool_down(key);
        members.wheel.put(key, self.turn(&members.entries[key]));
    }
}

fn claim(activity: &Activity, now: Tick) -> Claim {
    match activity.is_idle() {
        true if activity.stamp() < now => Claim::Strong,
        true => Claim::Weak,
        false => Claim::None,
    }
}

impl Members {
    fn cool_down(&mut self, key: usize) {
        let place = std::mem::replace(&mut self.entries[key].place, Place::NOWHERE);
        if place.is_somewhere()
            && let Some(moved) = self.warm.leave(place)
        {
            self.entries[moved].place = place;
        }
    }
}

impl Entry {
    /// Leaves an order and returns who is to be woken for it.
    #[must_use]
    fn give(&mut self, order: Order) -> Option<Waker> {
        if self.order != Some(Order::Cut) {
            self.order = Some(order);
        }
        self.task.take()
    }
}

/// A connection's place in the registry; dropping it gives the place up.
pub(super) struct Member {
    pub(super) registry: Rc<Registry>,
    pub(super) activity: Arc<Activity>,
    key: usize,
}

impl Member {
    pub(super) fn peer(&self) -> Peer {
        self.activity.info().client()
    }

    /// What hyper sees of this connection's socket.
    pub(super) fn stream<I>(&self, io: I) -> Stream<I> {
        let row = self.registry.counters.row();
        let preface = Preface::expected(&self.registry.http, &self.activity);
        Stream::new(io, Arc::clone(&self.activity), row, preface)
    }

    /// It is served from now on.
    pub(super) fn warm_up(&self) {
        self.registry.warm_up(self.key);
    }

    /// It is at rest, or its protocol is over.
    pub(super) fn rest(&self) {
        self.registry.rest(self.key);
    }

    /// Tells, and counts, that we end it.
    pub(super) fn note(&self, order: Order) {
        tracing::debug!(peer = ?self.peer(), ?order, "connection closed by us");
        self.count(order);
    }

    pub(super) fn count(&self, order: Order) {
        match order {
            Order::Expire(deadline) => self.registry.counters.timeout(deadline),
            Order::EndUpgrade => self.registry.counters.upgrade_cut(),
            Order::CloseIdle | Order::MakeRoom | Order::Streams | Order::Rest | Order::Cut => {}
        }
    }

    /// Takes the order that is waiting; the next one wakes this task.
    pub(super) fn take_order(&self, cx: &Context<'_>) -> Option<Order> {
        let mut members = self.registry.members.borrow_mut();
        let entry = &mut members.entries[self.key];
        match &mut entry.task {
            Some(known) => known.clone_from(cx.waker()),
            None => entry.task = Some(cx.waker().clone()),
        }
        match entry.order {
            // A cut stands for as long as the connection does.
            Some(Order::Cut) => Some(Order::Cut),
            Some(_) => {
                let order = entry.order.take();
                drop(members);
                order.filter(|order| self.still_holds(*order))
            }
            None => None,
        }
    }

    /// The client may have moved between the order and now, in time or nearly so.
    fn still_holds(&self, order: Order) -> bool {
        let Registry { clock, .. } = &*self.registry;
        match order {
            Order::Cut => true,
            Order::CloseIdle => {
                self.activity.is_idle() && self.registry.is_draining(&self.activity)
            }
            Order::MakeRoom => self.registry.idle_since(&self.activity).is_some(),
            Order::Rest => {
                let holds = self.activity.is_idle() && self.activity.is_settled();
                let is_over = matches!(self.activity.stage(), Stage::HandedOver | Stage::Upgraded);
                if !holds && !is_over {
                    // It may have been counted as one at rest already.
                    self.warm_up();
                }
                holds
            }
            Order::Expire(_) | Order::Streams | Order::EndUpgrade => self
                .registry
                .deadline(&self.activity)
                .is_some_and(|(due, now_due)| due <= clock.now() && now_due == order),
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let mut members = self.registry.members.borrow_mut();
        members.wheel.remove(self.key);
        members.cool_down(self.key);
        let gone = members.entries.remove(self.key);
        if members.entries.is_empty() {
            self.registry.last_left.notify_waiters();
        }
        drop(members);
        // Outside of the borrow: with it may go the last of the user's wakers.
        drop(gone);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn places_are_used_again() {
        let registry = Registry::new(Http::new(), Row::own());
        for _ in 0..100 {
            let members = [registry.join(), registry.join()];
            assert!(members.iter().all(|member| member.key < 2));
            assert_eq!(registry.len(), 2);
        }
        assert_eq!(registry.len(), 0);
    }

    /// What has left its protocol before it obeyed is not served again.
    #[test]
    fn an_order_to_rest_may_come_too_late() {
        let registry = Registry::new(Http::new(), Row::own());
        for (stage, served) in [
            (Stage::Handling, 1),
            (Stage::Upgraded, 0),
            (Stage::HandedOver, 0),
        ] {
            let member = registry.join();
            let order = registry.members.borrow_mut().entries[member.key].give(Order::Rest);
            assert!(order.is_none(), "nobody waits yet");
            member.activity.enter(stage);
            let order = member.take_order(&Context::from_waker(Waker::noop()));
            assert_eq!((order, registry.served()), (None, served), "{stage:?}");
        }
    }

    /// However far away the deadline is, a turn comes before anything new can be due.
    #[test]
    fn a_turn_comes_within_the_shortest_timeout() {
        let http = Http::new().header_timeout(Duration::from_secs(2));
        let registry = Registry::new(http, Row::own());
        let member = registry.join();
        member.warm_up();
        let mut ticks = 0;
        for _ in 0..3 {
            member.activity.enter(Stage::Idle);
            while registry
                .members
                .borrow_mut()
                .wheel
                .take(registry.clock.now())
                .is_none()
            {
                registry.clock.advance();
                ticks += 1;
            }
            let _ = registry.examine(member.key, registry.clock.now());
        }
        assert!(
            ticks <= 3 * 9,
            "2 s are 8 ticks of 250 ms, and one: {ticks}"
        );
    }
}
