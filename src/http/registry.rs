//! All live connections of this worker: their deadlines, the drain and the cut.
//!
//! No connection has a timer. One coarse clock ticks while there are connections, and each tick
//! looks at those whose turn it is. A connection's turn comes at least once per shortest timeout:
//! whatever it began since its last turn cannot be due before the next one, and so a request
//! never has to touch the registry. Deadlines are met late by at most two ticks, never early.

use std::cell::{Cell, RefCell};
use std::future::{pending, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use slab::Slab;
use tokio::sync::Notify;
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::activity::{Activity, Address, Clock, ConnectionInfo, Stage};
use super::counters::Counters;
use super::options::Http;
use super::wheel::{Tick, Wheel};

/// See the module's head.
pub(super) struct Registry {
    pub(super) counters: Counters,
    members: RefCell<Members>,
    clock: Arc<Clock>,
    timeouts: Timeouts,
    linger: Duration,
    draining_since: Cell<Option<Tick>>,
    first_came: Notify,
    last_left: Notify,
    drain_asked: Notify,
}

struct Members {
    entries: Slab<Entry>,
    wheel: Wheel,
}

struct Entry {
    activity: Arc<Activity>,
    order: Option<Order>,
    task: Option<Waker>,
}

/// What the registry wants of a connection. Its task obeys if it still has reason to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// A deadline has passed.
    Expire(Deadline),
    /// The drain's grace for idle connections is over.
    CloseIdle,
    /// End, whatever it is that you do.
    Cut,
}

/// What a client can be too slow at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deadline {
    Header,
    Body,
    Write,
    Idle,
}

impl Registry {
    pub(super) fn new(http: &Http) -> Rc<Self> {
        Rc::new(Self {
            counters: Counters::default(),
            members: RefCell::new(Members {
                entries: Slab::new(),
                wheel: Wheel::new(),
            }),
            clock: Arc::default(),
            timeouts: Timeouts::new(http),
            linger: http.linger,
            draining_since: Cell::new(None),
            first_came: Notify::new(),
            last_left: Notify::new(),
            drain_asked: Notify::new(),
        })
    }

    /// Enters a connection, until the member is dropped.
    pub(super) fn join(self: &Rc<Self>, info: ConnectionInfo) -> Member {
        let activity = Arc::new(Activity::new(info, Arc::clone(&self.clock)));
        let mut members = self.members.borrow_mut();
        let entry = Entry {
            activity: Arc::clone(&activity),
            order: None,
            task: None,
        };
        let key = members.entries.insert(entry);
        members.wheel.put(key, self.next_turn());
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

    /// How many connections are live.
    pub(super) fn len(&self) -> usize {
        self.members.borrow().entries.len()
    }

    pub(super) fn is_draining(&self) -> bool {
        self.draining_since.get().is_some()
    }

    /// From now on each answer is its connection's last.
    pub(super) fn drain(&self) {
        if self.is_draining() {
            return;
        }
        let now = self.clock.now();
        self.draining_since.set(Some(now));
        // Idle connections got their next turn for a deadline that has just moved closer.
        let Members { entries, wheel } = &mut *self.members.borrow_mut();
        for (key, _) in entries.iter() {
            wheel.put(key, self.next_turn());
        }
        self.drain_asked.notify_one();
    }

    /// Resolves when no connection is left.
    pub(super) async fn emptied(&self) {
        while self.len() > 0 {
            self.last_left.notified().await;
        }
    }

    /// Orders every connection to end, and says how many there were.
    pub(super) fn cut(&self) -> usize {
        let (count, wakers) = {
            let mut members = self.members.borrow_mut();
            let mut wakers = Vec::new();
            let mut count = 0;
            for (_, entry) in &mut members.entries {
                if entry.order != Some(Order::Cut) {
                    count += 1;
                    wakers.extend(entry.give(Order::Cut));
                }
            }
            (count, wakers)
        };
        wakers.into_iter().for_each(Waker::wake);
        self.counters.cut(count);
        count
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

    /// The moment for which idle connections are left open is shorter than most ticks, and the
    /// whole drain waits for it: it gets a timer of its own.
    async fn close_idle_after_grace(&self) {
        self.drain_asked.notified().await;
        sleep(self.linger).await;
        let wakers: Vec<_> = {
            let since = self.draining_since.get();
            let mut members = self.members.borrow_mut();
            let entries = members.entries.iter_mut().map(|(_, entry)| entry);
            entries
                .filter(|entry| entry.activity.is_idle() && Some(entry.activity.stamp()) <= since)
                .filter_map(|entry| entry.give(Order::CloseIdle))
                .collect()
        };
        wakers.into_iter().for_each(Waker::wake);
        pending().await
    }

    fn tick(&self) {
        let now = self.clock.advance();
        loop {
            let Some(key) = self.members.borrow_mut().wheel.take(now) else {
                return;
            };
            // Woken outside of the borrow: a waker may be the user's code.
            if let Some(waker) = self.examine(key, now) {
                waker.wake();
            }
        }
    }

    /// Looks at one connection and puts it down for its next turn.
    fn examine(&self, key: usize, now: Tick) -> Option<Waker> {
        let Members { entries, wheel } = &mut *self.members.borrow_mut();
        let entry = entries
            .get_mut(key)
            .expect("who leaves the slab leaves the wheel");
        let next_turn = self.next_turn();
        let due = self
            .timeouts
            .deadline(&entry.activity, self.draining_since.get());
        let Some((due, order)) = due.filter(|(due, _)| *due <= now) else {
            let turn = due.map_or(next_turn, |(due, _)| due.min(next_turn));
            wheel.put(key, turn);
            return None;
        };
        tracing::trace!(?order, ?due, "a connection's deadline has passed");
        wheel.put(key, next_turn);
        match order {
            Order::Expire(Deadline::Body) => {
                self.counters.timeout(Deadline::Body);
                entry.activity.expire_body()
            }
            order => entry.give(order),
        }
    }

    fn next_turn(&self) -> Tick {
        let ahead = if self.is_draining() {
            1
        } else {
            self.timeouts.horizon
        };
        self.clock.now().after(ahead)
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

/// The options' timeouts in ticks.
#[derive(Debug)]
struct Timeouts {
    period: Duration,
    header: u64,
    body: u64,
    write: u64,
    idle: u64,
    linger: u64,
    /// How many ticks ahead a connection's next turn is, at the most.
    horizon: u64,
}

impl Timeouts {
    /// The shortest and the longest tick: finer costs wake-ups, coarser shows.
    const PERIODS: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(250));

    fn new(http: &Http) -> Self {
        let all = [
            http.header_timeout,
            http.body_timeout,
            http.write_timeout,
            http.idle_timeout,
        ];
        let shortest = all.into_iter().min().unwrap_or_default();
        let period = (shortest / 8).clamp(Self::PERIODS.0, Self::PERIODS.1);
        let ticks = |timeout: Duration| {
            let ticks = timeout.as_nanos().div_ceil(period.as_nanos());
            // One more, as what is timed may have begun just before a tick.
            u64::try_from(ticks).unwrap_or(u64::MAX).saturating_add(1)
        };
        Self {
            period,
            header: ticks(http.header_timeout),
            body: ticks(http.body_timeout),
            write: ticks(http.write_timeout),
            idle: ticks(http.idle_timeout),
            linger: ticks(http.linger),
            horizon: ticks(shortest).min(Wheel::REACH),
        }
    }

    /// When a connection's time is up as things stand, and what is to be done about it then.
    fn deadline(&self, activity: &Activity, draining: Option<Tick>) -> Option<(Tick, Order)> {
        let blocked = activity.write_blocked_since();
        let stamp = activity.stamp();
        let of_stage = match (activity.stage(), draining) {
            // What is still going on has a deadline of its own.
            (Stage::Idle, _) if !activity.is_idle() => None,
            (Stage::Fresh | Stage::Idle, Some(drain)) => {
                Some((stamp.max(drain).after(self.linger), Order::CloseIdle))
            }
            (Stage::Idle, None) => Some((stamp.after(self.idle), Order::Expire(Deadline::Idle))),
            (Stage::Fresh | Stage::Head | Stage::Leaving, _) => {
                Some((stamp.after(self.header), Order::Expire(Deadline::Header)))
            }
            (Stage::Serving | Stage::Upgraded, _) => None,
        };
        let of_write = blocked
            .filter(|_| activity.stage() != Stage::Upgraded)
            .map(|since| (since.after(self.write), Order::Expire(Deadline::Write)));
        let of_body = activity
            .body_awaited_since()
            .map(|since| (since.after(self.body), Order::Expire(Deadline::Body)));
        [of_stage, of_write, of_body]
            .into_iter()
            .flatten()
            .min_by_key(|(due, _)| *due)
    }
}

/// A connection's place in the registry; dropping it gives the place up.
pub(super) struct Member {
    pub(super) registry: Rc<Registry>,
    pub(super) activity: Arc<Activity>,
    key: usize,
}

impl Member {
    pub(super) fn peer(&self) -> &Address {
        &self.activity.info.peer
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
            Some(_) => entry.order.take().filter(|order| self.still_holds(*order)),
            None => None,
        }
    }

    /// The client may have moved between the order and now, in time or nearly so.
    fn still_holds(&self, order: Order) -> bool {
        let Registry {
            timeouts,
            clock,
            draining_since,
            ..
        } = &*self.registry;
        match order {
            Order::Cut => true,
            Order::CloseIdle => self.activity.is_idle(),
            Order::Expire(_) => timeouts
                .deadline(&self.activity, draining_since.get())
                .is_some_and(|(due, now_due)| due <= clock.now() && now_due == order),
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let mut members = self.registry.members.borrow_mut();
        members.wheel.remove(self.key);
        let gone = members.entries.remove(self.key);
        if members.entries.is_empty() {
            self.registry.last_left.notify_waiters();
        }
        drop(members);
        // Outside of the borrow: with it may go the last of the user's wakers.
        drop(gone);
    }
}
