//! One connection's entry in the registry.

use std::rc::Rc;
use std::sync::Arc;
use std::task::Context;

use crate::address::Peer;
use crate::http::registry::active_set::{Index, Load};
use crate::http::registry::list::{Entry, Registry};
use crate::http::registry::state::{ConnState, Stage};
use crate::http::registry::timeouts::Order;

/// A connection's entry in the registry. Its drop removes the entry.
pub(crate) struct Member {
    pub(crate) registry: Rc<Registry>,
    pub(crate) state: Arc<ConnState>,
    pub(crate) key: usize,
}

impl Member {
    pub(crate) fn peer(&self) -> Peer {
        self.state.info().client()
    }

    /// The connection is not open yet, and at this stage.
    pub(crate) fn opens(&self, stage: Stage) {
        if self.state.stage() != stage {
            self.state.enter(stage);
            // The deadline may be earlier now.
            self.registry.rest(self.key, Load::Counts);
        }
    }

    /// The connection is served from now on.
    pub(crate) fn activate(&self) {
        self.registry.activate(self.key);
    }

    /// The connection rests, or its protocol has ended.
    pub(crate) fn rest(&self) {
        self.registry.rest(self.key, Load::Rests);
    }

    /// The connection's protocol has ended, and another one goes on, which may be busy.
    pub(crate) fn upgrade(&self) {
        self.registry.rest(self.key, Load::Counts);
    }

    /// Logs and counts that the server ends the connection.
    pub(crate) fn note(&self, order: Order) {
        tracing::debug!(peer = ?self.peer(), ?order, "connection closed by the server");
        self.count(order);
    }

    pub(crate) fn count(&self, order: Order) {
        match order {
            Order::Expire(deadline) => self.registry.counters.timeout(deadline),
            Order::EndUpgrade => self.registry.counters.upgrade_cut(),
            Order::Evict => self.registry.counters.evicted(),
            Order::CloseIdle | Order::Streams | Order::Rest | Order::Cut => {}
        }
    }

    /// Takes the waiting order. The next one wakes this task.
    pub(crate) fn take_order(&self, cx: &Context<'_>) -> Option<Order> {
        let mut members = self.registry.members.borrow_mut();
        let entry = &mut members.entries[self.key];
        match &mut entry.task {
            Some(waker) => waker.clone_from(cx.waker()),
            None => entry.task = Some(cx.waker().clone()),
        }
        match entry.order {
            // A cut stays until the connection ends.
            Some(Order::Cut) => Some(Order::Cut),
            Some(_) => {
                let order = entry.order.take();
                drop(members);
                order.filter(|order| self.still_holds(*order))
            }
            None => None,
        }
    }

    /// Whether the reason of the order still holds: the client may have sent or taken bytes since.
    fn still_holds(&self, order: Order) -> bool {
        let Registry { clock, .. } = &*self.registry;
        match order {
            Order::Cut => true,
            Order::CloseIdle => self.state.is_idle() && self.registry.is_draining(&self.state),
            Order::Evict => self.registry.idle_since(&self.state).is_some(),
            Order::Rest => {
                let is_idle = self.state.is_idle() && self.state.has_no_leftover();
                let holds = is_idle || self.state.may_rest();
                let is_over = matches!(self.state.stage(), Stage::HandedOver | Stage::Upgraded);
                if !holds && !is_over {
                    // The registry may have taken it from the active set already.
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
        // The worker takes an open connection from its load when the socket is closed.
        members.deactivate(self.key, Load::Counts);
        let gone = members.entries.remove(self.key);
        if members.entries.is_empty() {
            self.registry.last_left.notify_waiters();
        }
        drop(members);
        // Outside of the borrow: this may drop the user's wakers.
        drop(gone);
    }
}

impl Registry {
    /// Adds a connection, until the member is dropped.
    pub(crate) fn join(self: &Rc<Self>) -> Member {
        let state = Arc::new(ConnState::new(Arc::clone(&self.clock)));
        let mut members = self.members.borrow_mut();
        let vacant = members.entries.vacant_entry();
        let key = vacant.key();
        let entry = Entry {
            state: Arc::clone(&state),
            order: None,
            index: Index::ABSENT,
            load: Load::Counts,
            old_at: self.timeouts.old_at(self.clock.now(), key),
            task: None,
        };
        let turn = self.turn(&entry);
        vacant.insert(entry);
        members.wheel.put(key, turn);
        if members.entries.len() == 1 {
            self.first_joined.notify_one();
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
    fn keys_are_used_again() {
        let registry = Registry::new(Http::new(), WorkerStats::own());
        for _ in 0..100 {
            let members = [registry.join(), registry.join()];
            assert!(members.iter().all(|member| member.key < 2));
            assert_eq!(registry.len(), 2);
        }
        assert_eq!(registry.len(), 0);
    }

    /// A connection whose protocol ended before the order came is not served again.
    #[test]
    fn an_order_to_rest_that_comes_too_late_is_void() {
        let registry = Registry::new(Http::new(), WorkerStats::own());
        for (stage, served) in [
            (Stage::Handling, 1),
            (Stage::Upgraded, 0),
            (Stage::HandedOver, 0),
        ] {
            let member = registry.join();
            let order = registry.members.borrow_mut().entries[member.key].set_order(Order::Rest);
            assert!(order.is_none(), "no task waits yet");
            member.state.hold_nothing();
            member.state.enter(stage);
            let order = member.take_order(&Context::from_waker(Waker::noop()));
            assert_eq!((order, registry.served()), (None, served), "{stage:?}");
        }
    }

    /// A turn comes before anything new can be due, even if the present deadline is far away.
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
