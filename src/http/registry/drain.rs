//! How the connections of a worker end: drained, handed over, or cut.

use std::rc::Rc;
use std::task::Waker;

use tokio::time::sleep;

use crate::http::registry::list::{Members, Registry};
use crate::http::registry::member::Member;
use crate::http::registry::mode::{HANDOVERS_MAX, Mode};
use crate::http::registry::state::{ConnState, Stage};
use crate::http::registry::timeouts::{Draining, Next, Order};
use crate::http::registry::wheel::Tick;

/// One place among those that are on their way.
pub(crate) struct HandoverPermit(Rc<Registry>);

impl Drop for HandoverPermit {
    fn drop(&mut self) {
        let in_progress = &self.0.handovers.in_progress;
        in_progress.set(in_progress.get() - 1);
        self.0.call(1);
    }
}

impl Member {
    /// A place, if the connection is to go to its heir and can now.
    pub(crate) fn try_hand_over(&self) -> Option<HandoverPermit> {
        let Registry {
            mode, handovers, ..
        } = &*self.registry;
        let is_called = match mode.get() {
            Mode::Serving => handovers.shared.get() > 0,
            Mode::HandingOver { .. } => true,
            Mode::Draining { .. } => false,
        };
        let leaves = is_called
            && self.state.may_hand_over()
            && self.state.is_idle()
            && self.state.has_no_leftover();
        if !leaves {
            return None;
        }
        let is_full = handovers.in_progress.get() >= HANDOVERS_MAX;
        if is_full && matches!(mode.get(), Mode::HandingOver { .. }) {
            // It may have been called, and is not passed over for that.
            handovers.next.set(handovers.next.get().min(self.key));
            return None;
        }
        handovers
            .shared
            .set(handovers.shared.get().saturating_sub(1));
        handovers.in_progress.set(handovers.in_progress.get() + 1);
        Some(HandoverPermit(Rc::clone(&self.registry)))
    }

    /// Its heir has given it back. In a drain that is the last word.
    pub(crate) fn handover_failed(&self) {
        if self.registry.mode.get() != Mode::Serving {
            self.state.forbid_handover();
        }
        self.state.enter(Stage::Idle);
    }
}

impl Registry {
    pub(crate) fn now(&self) -> Tick {
        self.clock.now()
    }

    /// Whether the connection's next answer is to be its last.
    pub(crate) fn is_draining(&self, state: &ConnState) -> bool {
        self.draining(state).is_some()
    }

    pub(crate) fn draining(&self, state: &ConnState) -> Option<Draining> {
        let (since, next) = match self.mode.get() {
            Mode::Serving => return None,
            Mode::HandingOver { since } => (since, Next::Worker),
            Mode::Draining { since } => (since, Next::Nobody),
        };
        match state.stage() {
            // Nobody takes these over, and the task of the first was told at the very begin.
            Stage::Upgraded | Stage::Closing => {
                let since = self.handovers.first_change.get()?;
                Some(Draining { since, next })
            }
            _ if next == Next::Worker && state.may_hand_over() => None,
            _ => Some(Draining { since, next }),
        }
    }

    /// From now on so many connections go to their heirs, each as soon as it has been answered.
    pub(crate) fn share(&self, connections: usize) {
        self.handovers.shared.set(connections);
    }

    /// From now on each answer is its connection's last.
    pub(crate) fn drain(&self) {
        if !matches!(self.mode.get(), Mode::Draining { .. }) {
            let since = self.now();
            self.begin(Mode::Draining { since });
        }
    }

    /// From now on idle connections go to their heirs, some at a time. Each sees to that itself
    /// when it becomes idle; those that are idle already are called.
    pub(crate) fn hand_over(&self) {
        if self.mode.get() == Mode::Serving {
            let since = self.now();
            self.begin(Mode::HandingOver { since });
            self.call(HANDOVERS_MAX);
        }
    }

    /// Calls those that became idle while too many others were on their way.
    pub(crate) fn call_again(&self) {
        self.handovers.next.set(0);
        self.call(HANDOVERS_MAX - self.handovers.in_progress.get());
    }

    /// Wakes the next few that could leave.
    fn call(&self, count: usize) {
        if !matches!(self.mode.get(), Mode::HandingOver { .. }) {
            return;
        }
        let mut wakers = Vec::new();
        let mut members = self.members.borrow_mut();
        let next = self.handovers.next.get();
        // A key is a number below the slab's capacity, be there somebody or not.
        for key in next..members.entries.capacity() {
            if wakers.len() == count {
                break;
            }
            self.handovers.next.set(key + 1);
            if let Some(entry) = members.entries.get_mut(key)
                && entry.state.may_hand_over()
                && entry.state.is_idle()
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
            // Idle connections got their next turn for a deadline that has just moved closer.
            let Members { entries, wheel, .. } = &mut *self.members.borrow_mut();
            for (key, entry) in entries.iter() {
                wheel.put(key, self.turn(entry));
            }
        }
        #[cfg(feature = "http2")]
        self.rouse_http2();
        self.drain_asked.notify_one();
    }

    /// Orders every connection to end, and says how many there were.
    pub(crate) fn cut(&self) -> usize {
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

    /// The moment for which idle connections are left open is shorter than most ticks, and the
    /// whole drain waits for it: it gets a timer of its own.
    pub(crate) async fn close_idle_after_grace(&self) {
        loop {
            self.drain_asked.notified().await;
            sleep(self.http.linger).await;
            let ends = |state: &ConnState| {
                let is_over = |drain: Draining| {
                    state.stamp() <= drain.since
                        && self.timeouts.asks_until(state, drain) <= self.now()
                };
                state.is_idle() && self.draining(state).is_some_and(is_over)
            };
            let wakers: Vec<_> = {
                let mut members = self.members.borrow_mut();
                let entries = members.entries.iter_mut().map(|(_, entry)| entry);
                entries
                    .filter(|entry| ends(&entry.state))
                    .filter_map(|entry| entry.give(Order::CloseIdle))
                    .collect()
            };
            wakers.into_iter().for_each(Waker::wake);
        }
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

    /// Whether a connection's task is to be polled.
    #[derive(Default)]
    struct Called(AtomicBool);

    impl Wake for Called {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    /// A tick calls connections without knowing how many are called already.
    #[test]
    fn a_connection_that_is_called_and_finds_no_place_is_called_again() {
        let registry = Registry::new(Http::new(), WorkerStats::own());
        let mut waiting: Vec<_> = (0..3 * HANDOVERS_MAX)
            .map(|_| {
                let (member, called) = (registry.join(), Arc::<Called>::default());
                member.state.allow_handover();
                member.state.enter(Stage::Idle);
                let waker = Waker::from(Arc::clone(&called));
                assert!(member.take_order(&Context::from_waker(&waker)).is_none());
                (member, called)
            })
            .collect();
        registry.hand_over();
        registry.tick();
        let mut in_progress = Vec::new();
        loop {
            for (member, called) in std::mem::take(&mut waiting) {
                let is_called = called.0.swap(false, Ordering::Relaxed);
                let leave = is_called.then(|| member.try_hand_over()).flatten();
                if let Some(leave) = leave {
                    in_progress.push((member, leave));
                    continue;
                }
                if is_called {
                    let waker = Waker::from(Arc::clone(&called));
                    assert!(member.take_order(&Context::from_waker(&waker)).is_none());
                }
                waiting.push((member, called));
            }
            assert!(in_progress.len() <= HANDOVERS_MAX);
            if in_progress.pop().is_none() {
                break;
            }
        }
        assert_eq!(registry.len(), 0, "they wait for a tick");
    }

    #[test]
    fn an_upgraded_connection_has_one_grace_whatever_becomes_of_the_others() {
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
        assert_eq!(registry.deadline(&member.state), due, "not anew");
        let idle = registry.deadline(&other.state);
        assert_eq!(idle, Some((Tick(2 + 2), Order::CloseIdle)));
    }
}
