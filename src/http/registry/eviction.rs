//! Closes the connection that has been idle longest, when a new one arrives and the server is at
//! its limit of connections.

use std::task::Waker;

use crate::http::registry::list::{Members, Registry};
use crate::http::registry::state::ConnState;
use crate::http::registry::timeouts::Order;
use crate::http::registry::wheel::Tick;

/// Number of idle connections that one search collects. So when many clients come to a full server,
/// it does not search all of its connections for each of them.
const FOUND_AT_ONCE: usize = 64;

impl Registry {
    /// Ends the connection that has been idle longest, if any is.
    pub(crate) fn evict_idle(&self) {
        if let Some(waker) = self.order_longest_idle_to_end() {
            waker.wake();
        }
    }

    fn order_longest_idle_to_end(&self) -> Option<Waker> {
        let mut found = self.idle_queue.found.borrow_mut();
        let mut members = self.members.borrow_mut();
        loop {
            while let Some((since, key)) = found.pop() {
                // The key may belong to another connection since, or the connection has served a
                // request. One that is ordered to rest is out of the active set already, and the
                // order must not be lost.
                if let Some(entry) = members.entries.get_mut(key)
                    && entry.order.is_none()
                    && self.idle_since(&entry.state) == Some(since)
                {
                    return entry.set_order(Order::Evict);
                }
            }
            if self.idle_queue.busy.get() == Some(self.now()) {
                return None;
            }
            *found = self.find_idle(&members);
            if found.is_empty() {
                self.idle_queue.busy.set(Some(self.now()));
                return None;
            }
        }
    }

    fn find_idle(&self, members: &Members) -> Vec<(Tick, usize)> {
        let entries = members.entries.iter();
        let mut idle: Vec<_> = entries
            .filter(|(_, entry)| entry.order.is_none())
            .filter_map(|(key, entry)| Some((self.idle_since(&entry.state)?, key)))
            .collect();
        if idle.len() > FOUND_AT_ONCE {
            idle.select_nth_unstable(FOUND_AT_ONCE);
            idle.truncate(FOUND_AT_ONCE);
        }
        idle.sort_unstable_by(|one, other| other.cmp(one));
        idle
    }

    /// Since when a connection has been idle, if for long enough to be closed.
    pub(crate) fn idle_since(&self, state: &ConnState) -> Option<Tick> {
        self.timeouts.idle_since(state, self.now())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::http::Http;
    use crate::http::registry::state::Stage;
    use crate::stats::WorkerStats;

    #[test]
    fn a_connection_that_is_to_rest_is_not_ordered_to_end() {
        let http = Http::new().max_warm(1).linger(Duration::ZERO);
        let registry = Registry::new(http, WorkerStats::own());
        let members = [registry.join(), registry.join()];
        for member in &members {
            member.state.begin_request();
            member.state.enter(Stage::Idle);
            member.activate();
        }
        for _ in 0..2 {
            registry.clock.advance();
        }
        for _ in 0..2 {
            registry.evict_idle();
        }
        let orders = members
            .iter()
            .map(|member| registry.members.borrow().entries[member.key].order);
        let expected = [Some(Order::Rest), Some(Order::Evict)];
        assert_eq!(orders.collect::<Vec<_>>(), expected);
    }
}
