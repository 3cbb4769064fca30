//! How the connections of a worker end: drained, handed over, or cut.

use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use tokio::sync::futures::OwnedNotified;
use tokio::time::sleep;

use crate::http::registry::list::{Entry, Members, Registry};
use crate::http::registry::member::Member;
use crate::http::registry::mode::{HANDOVERS_MAX, Mode};
use crate::http::registry::state::{ConnState, Stage};
use crate::http::registry::timeouts::{Draining, Next, Order};
use crate::http::registry::wheel::Tick;

/// Permission for one hand-over, of [`HANDOVERS_MAX`]. Its drop wakes the next connection.
pub(crate) struct HandoverPermit(Rc<Registry>);

impl Drop for HandoverPermit {
    fn drop(&mut self) {
        let in_progress = &self.0.handovers.in_progress;
        in_progress.set(in_progress.get() - 1);
        self.0.wake_next(1);
    }
}

impl Member {
    /// Does work of this connection. Its CPU time counts when connections are to be handed over
    /// although there is no drain.
    pub(crate) fn measured<T>(&self, work: impl FnOnce() -> T) -> T {
        self.registry.handovers.sharing.measured(self.key, work)
    }

    /// A permit, if the connection is to be handed over and can be now. `can_move` is asked for the
    /// protocol's part.
    pub(crate) fn try_hand_over(&self, can_move: impl FnOnce() -> bool) -> Option<HandoverPermit> {
        let Registry {
            mode, handovers, ..
        } = &*self.registry;
        let is_wanted = match mode.get() {
            Mode::Serving => handovers.sharing.is_asked(),
            Mode::HandingOver { .. } => true,
            Mode::Draining { .. } => false,
        };
        if !is_wanted || !self.state.may_move() || !can_move() {
            return None;
        }
        let is_full = handovers.in_progress.get() >= HANDOVERS_MAX;
        if is_full && matches!(mode.get(), Mode::HandingOver { .. }) {
            // The connection may have been woken for this, and must be woken again.
            handovers.next.set(handovers.next.get().min(self.key));
            return None;
        }
        if mode.get() == Mode::Serving && !handovers.sharing.take_one(self.key) {
            return None;
        }
        handovers.in_progress.set(handovers.in_progress.get() + 1);
        Some(HandoverPermit(Rc::clone(&self.registry)))
    }

    /// The other server has given the connection back. In a drain it is not asked again.
    pub(crate) fn handover_failed(&self) {
        match self.registry.mode.get() {
            Mode::Serving => self.registry.handovers.sharing.came_back(self.key),
            _ => self.state.forbid_handover(),
        }
    }
}

impl Registry {
    pub(crate) fn now(&self) -> Tick {
        self.clock.now()
    }

    /// Whether the next response of the connection is its last one.
    pub(crate) fn is_draining(&self, state: &ConnState) -> bool {
        self.draining(state).is_some()
    }

    pub(crate) fn draining(&self, state: &ConnState) -> Option<Draining> {
        let (since, next) = match self.mode.get() {
            Mode::Serving => return None,
            Mode::HandingOver { since } => (since, Next::Worker),
            Mode::Draining { since } => (since, Next::NoWorker),
        };
        match state.stage() {
            // These connections are not handed over. The handler of an upgraded one learned of the
            // drain when the first drain or hand-over began.
            Stage::Upgraded | Stage::Closing => {
                let since = self.handovers.first_change.get()?;
                Some(Draining { since, next })
            }
            _ if next == Next::Worker && state.may_hand_over() => None,
            _ => Some(Draining { since, next }),
        }
    }

    /// Resolves when a hand-over or a drain begins after this call.
    pub(crate) fn drain_begins(&self) -> OwnedNotified {
        Arc::clone(&self.drain_begun).notified_owned()
    }

    /// From now on this many connections are handed over, each as soon as its response is sent, but
    /// not one that takes most of the CPU time. `clock` tells the CPU time of this thread.
    pub(crate) fn share(&self, connections: usize, clock: fn() -> Duration) {
        self.handovers.sharing.ask(connections, clock);
    }

    /// From now on each response is the last one of its connection.
    pub(crate) fn drain(&self) {
        if !matches!(self.mode.get(), Mode::Draining { .. }) {
            let since = self.now();
            self.begin(Mode::Draining { since });
        }
    }

    /// From now on idle connections are handed over, at most [`HANDOVERS_MAX`] at a time. A
    /// connection that becomes idle later does that by itself. Those that are idle already are
    /// woken.
    pub(crate) fn hand_over(&self) {
        if self.mode.get() == Mode::Serving {
            let since = self.now();
            self.begin(Mode::HandingOver { since });
            self.wake_next(HANDOVERS_MAX);
        }
    }

    /// Wakes connections that became idle while too many hand-overs were in progress.
    pub(crate) fn wake_waiting(&self) {
        self.handovers.next.set(0);
        // More may have begun before the drain, to less busy workers.
        let in_progress = self.handovers.in_progress.get();
        self.wake_next(HANDOVERS_MAX.saturating_sub(in_progress));
    }

    /// Wakes the next `count` connections that can be handed over.
    fn wake_next(&self, count: usize) {
        if !matches!(self.mode.get(), Mode::HandingOver { .. }) {
            return;
        }
        let mut wakers = Vec::new();
        let mut members = self.members.borrow_mut();
        let next = self.handovers.next.get();
        // Each key is below the capacity of the slab, but not each such number is a key.
        for key in next..members.entries.capacity() {
            if wakers.len() == count {
                break;
            }
            self.handovers.next.set(key + 1);
            if let Some(entry) = members.entries.get_mut(key)
                && entry.state.may_move()
            {
                wakers.extend(entry.task.take());
            }
        }
        drop(members);
        wakers.into_iter().for_each(Waker::wake);
    }

    fn begin(&self, mode: Mode) {
        self.mode.set(mode);
        let first_change = self.handovers.first_change.get().unwrap_or(self.now());
        self.handovers.first_change.set(Some(first_change));
        {
            // The turns of idle connections were set for deadlines that are earlier now.
            let Members { entries, wheel, .. } = &mut *self.members.borrow_mut();
            for (key, entry) in entries.iter() {
                wheel.put(key, self.turn(entry));
            }
        }
        #[cfg(feature = "http2")]
        if matches!(mode, Mode::Draining { .. }) {
            self.wake_http2();
        }
        self.drain_asked.notify_one();
        self.drain_begun.notify_waiters();
    }

    /// Orders every connection to end, and returns how many got the order.
    pub(crate) fn cut(&self) -> usize {
        let mut count = 0;
        self.wake_each(|entry| match entry.order {
            Some(Order::Cut) => None,
            _ => {
                count += 1;
                entry.set_order(Order::Cut)
            }
        });
        self.counters.cut(count);
        count
    }

    /// The linger time of idle connections is shorter than most ticks, and the whole drain waits
    /// for it. So it has a timer of its own.
    pub(crate) async fn close_idle_after_grace(&self) {
        loop {
            self.drain_asked.notified().await;
            sleep(self.http.linger).await;
            let ends = |state: &ConnState| {
                let is_over = |drain: Draining| {
                    state.stamp() <= drain.since
                        && self.timeouts.request_awaited_until(state, drain) <= self.now()
                };
                state.is_idle() && self.draining(state).is_some_and(is_over)
            };
            self.wake_each(|entry| match ends(&entry.state) {
                true => entry.set_order(Order::CloseIdle),
                false => None,
            });
        }
    }

    /// Wakes the tasks whose wakers `take` returns. Outside of the borrow: a waker may be the
    /// user's code.
    pub(crate) fn wake_each(&self, mut take: impl FnMut(&mut Entry) -> Option<Waker>) {
        let wakers: Vec<_> = {
            let mut members = self.members.borrow_mut();
            let entries = members.entries.iter_mut();
            entries.filter_map(|(_, entry)| take(entry)).collect()
        };
        wakers.into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::{Context, Wake};
    use std::time::Duration;

    use super::*;
    use crate::http::Http;
    use crate::stats::WorkerStats;

    /// Whether the task of a connection was woken.
    #[derive(Default)]
    struct Woken(AtomicBool);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    /// A tick wakes connections and does not know how many were woken before.
    #[test]
    fn a_connection_that_is_woken_and_gets_no_permit_is_woken_again() {
        let registry = Registry::new(Http::new(), WorkerStats::own());
        let mut waiting: Vec<_> = (0..3 * HANDOVERS_MAX)
            .map(|_| {
                let (member, woken) = (registry.join(), Arc::<Woken>::default());
                member.state.allow_handover();
                member.state.enter(Stage::Idle);
                let waker = Waker::from(Arc::clone(&woken));
                assert!(member.take_order(&Context::from_waker(&waker)).is_none());
                (member, woken)
            })
            .collect();
        registry.hand_over();
        registry.tick();
        let mut in_progress = Vec::new();
        loop {
            for (member, woken) in std::mem::take(&mut waiting) {
                let is_woken = woken.0.swap(false, Ordering::Relaxed);
                let permit = is_woken.then(|| member.try_hand_over(|| true)).flatten();
                if let Some(permit) = permit {
                    in_progress.push((member, permit));
                    continue;
                }
                if is_woken {
                    let waker = Waker::from(Arc::clone(&woken));
                    assert!(member.take_order(&Context::from_waker(&waker)).is_none());
                }
                waiting.push((member, woken));
            }
            assert!(in_progress.len() <= HANDOVERS_MAX);
            if in_progress.pop().is_none() {
                break;
            }
        }
        assert_eq!(registry.len(), 0, "no connection waits for the next tick");
    }

    /// The limit is for a drain.
    #[test]
    fn more_hand_overs_may_be_in_progress_when_a_drain_begins() {
        let registry = Registry::new(Http::new(), WorkerStats::own());
        registry.share(HANDOVERS_MAX + 1, || Duration::ZERO);
        let in_progress: Vec<_> = (0..=HANDOVERS_MAX)
            .map(|_| {
                let member = registry.join();
                member.state.allow_handover();
                member.state.enter(Stage::Idle);
                let permit = member.try_hand_over(|| true).expect("it was asked for");
                (member, permit)
            })
            .collect();
        registry.hand_over();
        registry.tick();
        assert_eq!(registry.len(), in_progress.len());
    }

    #[test]
    fn an_upgraded_connection_has_one_grace_for_a_hand_over_and_the_drain_after_it() {
        let http = Http::new().upgrade_grace(Duration::from_secs(1));
        let registry = Registry::new(http, WorkerStats::own());
        let [member, other] = [registry.join(), registry.join()];
        member.state.allow_handover();
        other.state.allow_handover();
        member.state.hold_nothing();
        member.state.enter(Stage::Upgraded);
        other.state.enter(Stage::Idle);
        assert_eq!(registry.deadline(&member.state), None);
        registry.clock.advance();
        registry.hand_over();
        let due = registry.deadline(&member.state);
        assert_eq!(due, Some((Tick(1 + 5), Order::EndUpgrade)));
        registry.clock.advance();
        registry.drain();
        assert_eq!(
            registry.deadline(&member.state),
            due,
            "the grace does not begin again"
        );
        let idle = registry.deadline(&other.state);
        assert_eq!(idle, Some((Tick(2 + 2), Order::CloseIdle)));
    }
}
