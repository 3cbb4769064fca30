//! One connection's entry in the registry.

use std::rc::Rc;
use std::sync::Arc;
use std::task::Context;

use crate::address::Peer;
use crate::http::registry::active_set::Index;
use crate::http::registry::list::{Entry, Registry};
use crate::http::registry::state::{ConnState, Stage};
use crate::http::registry::timeouts::Order;

/// A connection's place in the registry; dropping it gives the place up.
pub(crate) struct Member {
    pub(crate) registry: Rc<Registry>,
    pub(crate) state: Arc<ConnState>,
    pub(crate) key: usize,
}

impl Member {
    pub(crate) fn peer(&self) -> Peer {
        self.state.info().client()
    }

    /// It is served from now on.
    pub(crate) fn activate(&self) {
        self.registry.activate(self.key);
    }

    /// It is at rest, or its protocol is over.
    pub(crate) fn rest(&self) {
        self.registry.rest(self.key);
    }

    /// Tells, and counts, that we end it.
    pub(crate) fn note(&self, order: Order) {
        tracing::debug!(peer = ?self.peer(), ?order, "connection closed by us");
        self.count(order);
    }

    pub(crate) fn count(&self, order: Order) {
        match order {
            Order::Expire(deadline) => self.registry.counters.timeout(deadline),
            Order::EndUpgrade => self.registry.counters.upgrade_cut(),
            Order::CloseIdle | Order::Evict | Order::Streams | Order::Rest | Order::Cut => {}
        }
    }

    /// Takes the order that is waiting; the next one wakes this task.
    pub(crate) fn take_order(&self, cx: &Context<'_>) -> Option<Order> {
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
            Order::CloseIdle => self.state.is_idle() && self.registry.is_draining(&self.state),
            Order::Evict => self.registry.idle_since(&self.state).is_some(),
            Order::Rest => {
                let holds = self.state.is_idle() && self.state.has_no_leftover();
                let is_over = matches!(self.state.stage(), Stage::HandedOver | Stage::Upgraded);
                if !holds && !is_over {
                    // It may have been counted as one at rest already.
                    self.activate();
                }
                holds
            }
            Order::Expire(_) | Order::Streams | Order::EndUpgrade => self
                .registry
                .deadline(&self.state)
                .is_some_and(|(due, now_due)| due <= clock.now() && now_due == order),
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let mut members = self.registry.members.borrow_mut();
        members.wheel.remove(self.key);
        members.deactivate(self.key);
        let gone = members.entries.remove(self.key);
        if members.entries.is_empty() {
            self.registry.last_left.notify_waiters();
        }
        drop(members);
        // Outside of the borrow: with it may go the last of the user's wakers.
        drop(gone);
    }
}

impl Registry {
    /// Enters a connection, until the member is dropped.
    pub(crate) fn join(self: &Rc<Self>) -> Member {
        let state = Arc::new(ConnState::new(Arc::clone(&self.clock)));
        let mut members = self.members.borrow_mut();
        let vacant = members.entries.vacant_entry();
        let key = vacant.key();
        let entry = Entry {
            state: Arc::clone(&state),
            order: None,
            index: Index::ABSENT,
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
            state,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;
    use std::time::Duration;

    use super::*;
    use crate::http::options::Http;
    use crate::stats::WorkerStats;

    #[test]
    fn places_are_used_again() {
        let registry = Registry::new(Http::new(), WorkerStats::own());
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
        let registry = Registry::new(Http::new(), WorkerStats::own());
        for (stage, served) in [
            (Stage::Handling, 1),
            (Stage::Upgraded, 0),
            (Stage::HandedOver, 0),
        ] {
            let member = registry.join();
            let order = registry.members.borrow_mut().entries[member.key].give(Order::Rest);
            assert!(order.is_none(), "nobody waits yet");
            member.state.hold_nothing();
            member.state.enter(stage);
            let order = member.take_order(&Context::from_waker(Waker::noop()));
            assert_eq!((order, registry.served()), (None, served), "{stage:?}");
        }
    }

    /// However far away the deadline is, a turn comes before anything new can be due.
    #[test]
    fn a_turn_comes_within_the_shortest_timeout() {
        let http = Http::new().header_timeout(Duration::from_secs(2));
        let registry = Registry::new(http, WorkerStats::own());
        let member = registry.join();
        member.activate();
        let mut ticks = 0;
        for _ in 0..3 {
            member.state.enter(Stage::Idle);
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
