//! How the connections of a worker end: drained, handed over, or cut.

use std::rc::Rc;
use std::task::Waker;

use tokio::time::sleep;

use crate::http::registry::list::{Members, Registry};
use crate::http::registry::member::Member;
use crate::http::registry::mode::{LEAVING_MAX, Phase};
use crate::http::registry::state::{Activity, Stage};
use crate::http::registry::timeouts::{Draining, Next, Order};
use crate::http::registry::wheel::Tick;

/// One place among those that are on their way.
pub(crate) struct Leave(Rc<Registry>);

impl Drop for Leave {
    fn drop(&mut self) {
        let leaving = &self.0.exit.leaving;
        leaving.set(leaving.get() - 1);
        self.0.call(1);
    }
}

impl Member {
    /// A place, if the connection is to go to its heir and can now.
    pub(crate) fn try_leave(&self) -> Option<Leave> {
        let Registry { phase, exit, .. } = &*self.registry;
        let is_called = match phase.get() {
            Phase::Serving => exit.shared.get() > 0,
            Phase::HandingOver { .. } => true,
            Phase::Draining { .. } => false,
        };
        let leaves = is_called
            && self.activity.may_leave()
            && self.activity.is_idle()
            && self.activity.is_settled();
        if !leaves {
            return None;
        }
        let is_full = exit.leaving.get() >= LEAVING_MAX;
        if is_full && matches!(phase.get(), Phase::HandingOver { .. }) {
            // It may have been called, and is not passed over for that.
            exit.next.set(exit.next.get().min(self.key));
            return None;
        }
        exit.shared.set(exit.shared.get().saturating_sub(1));
        exit.leaving.set(exit.leaving.get() + 1);
        Some(Leave(Rc::clone(&self.registry)))
    }

    /// Its heir has given it back. In a drain that is the last word.
    pub(crate) fn returns(&self) {
        if self.registry.phase.get() != Phase::Serving {
            self.activity.stay();
        }
        self.activity.enter(Stage::Idle);
    }
}

impl Registry {
    pub(crate) fn now(&self) -> Tick {
        self.clock.now()
    }

    /// Whether the connection's next answer is to be its last.
    pub(crate) fn is_draining(&self, activity: &Activity) -> bool {
        self.draining(activity).is_some()
    }

    pub(crate) fn draining(&self, activity: &Activity) -> Option<Draining> {
        let (since, next) = match self.phase.get() {
            Phase::Serving => return None,
            Phase::HandingOver { since } => (since, Next::Worker),
            Phase::Draining { since } => (since, Next::Nobody),
        };
        match activity.stage() {
            // Nobody takes these over, and the task of the first was told at the very begin.
            Stage::Upgraded | Stage::Leaving => {
                let since = self.exit.begun.get()?;
                Some(Draining { since, next })
            }
            _ if next == Next::Worker && activity.may_leave() => None,
            _ => Some(Draining { since, next }),
        }
    }

    /// From now on so many connections go to their heirs, each as soon as it has been answered.
    pub(crate) fn share(&self, connections: usize) {
        self.exit.shared.set(connections);
    }

    /// From now on each answer is its connection's last.
    pub(crate) fn drain(&self) {
        if !matches!(self.phase.get(), Phase::Draining { .. }) {
            let since = self.now();
            self.begin(Phase::Draining { since });
        }
    }

    /// From now on idle connections go to their heirs, some at a time. Each sees to that itself
    /// when it becomes idle; those that are idle already are called.
    pub(crate) fn hand_over(&self) {
        if self.phase.get() == Phase::Serving {
            let since = self.now();
            self.begin(Phase::HandingOver { since });
            self.call(LEAVING_MAX);
        }
    }

    /// Calls those that became idle while too many others were on their way.
    pub(crate) fn call_again(&self) {
        self.exit.next.set(0);
        self.call(LEAVING_MAX - self.exit.leaving.get());
    }

    /// Wakes the next few that could leave.
    fn call(&self, count: usize) {
        if !matches!(self.phase.get(), Phase::HandingOver { .. }) {
            return;
        }
        let mut wakers = Vec::new();
        let mut members = self.members.borrow_mut();
        let next = self.exit.next.get();
        // A key is a number below the slab's capacity, be there somebody or not.
        for key in next..members.entries.capacity() {
            if wakers.len() == count {
                break;
            }
            self.exit.next.set(key + 1);
            if let Some(entry) = members.entries.get_mut(key)
                && entry.activity.may_leave()
                && entry.activity.is_idle()
            {
                wakers.extend(entry.task.take());
            }
        }
        drop(members);
        wakers.into_iter().for_each(Waker::wake);
    }

    fn begin(&self, phase: Phase) {
        self.phase.set(phase);
        let begun = self.exit.begun.get().unwrap_or(self.now());
        self.exit.begun.set(Some(begun));
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
            let ends = |activity: &Activity| {
                let is_over = |drain: Draining| {
                    activity.stamp() <= drain.since
                        && self.timeouts.asks_until(activity, drain) <= self.now()
                };
                activity.is_idle() && self.draining(activity).is_some_and(is_over)
            };
            let wakers: Vec<_> = {
                let mut members = self.members.borrow_mut();
                let entries = members.entries.iter_mut().map(|(_, entry)| entry);
                entries
                    .filter(|entry| ends(&entry.activity))
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
    use crate::row::Row;

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
        let registry = Registry::new(Http::new(), Row::own());
        let mut waiting: Vec<_> = (0..3 * LEAVING_MAX)
            .map(|_| {
                let (member, called) = (registry.join(), Arc::<Called>::default());
                member.activity.let_leave();
                member.activity.enter(Stage::Idle);
                let waker = Waker::from(Arc::clone(&called));
                assert!(member.take_order(&Context::from_waker(&waker)).is_none());
                (member, called)
            })
            .collect();
        registry.hand_over();
        registry.tick();
        let mut leaving = Vec::new();
        loop {
            for (member, called) in std::mem::take(&mut waiting) {
                let is_called = called.0.swap(false, Ordering::Relaxed);
                let leave = is_called.then(|| member.try_leave()).flatten();
                if let Some(leave) = leave {
                    leaving.push((member, leave));
                    continue;
                }
                if is_called {
                    let waker = Waker::from(Arc::clone(&called));
                    assert!(member.take_order(&Context::from_waker(&waker)).is_none());
                }
                waiting.push((member, called));
            }
            assert!(leaving.len() <= LEAVING_MAX);
            if leaving.pop().is_none() {
                break;
            }
        }
        assert_eq!(registry.len(), 0, "they wait for a tick");
    }

    #[test]
    fn an_upgraded_connection_has_one_grace_whatever_becomes_of_the_others() {
        let http = Http::new().upgrade_grace(Duration::from_secs(1));
        let registry = Registry::new(http, Row::own());
        let [member, other] = [registry.join(), registry.join()];
        member.activity.let_leave();
        other.activity.let_leave();
        member.activity.enter(Stage::Upgraded);
        other.activity.enter(Stage::Idle);
        assert_eq!(registry.deadline(&member.activity), None);
        registry.clock.advance();
        registry.hand_over();
        let due = registry.deadline(&member.activity);
        assert_eq!(due, Some((Tick(1 + 5), Order::EndUpgrade)));
        registry.clock.advance();
        registry.drain();
        assert_eq!(registry.deadline(&member.activity), due, "not anew");
        let idle = registry.deadline(&other.activity);
        assert_eq!(idle, Some((Tick(2 + 2), Order::CloseIdle)));
    }
}
