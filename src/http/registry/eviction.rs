//! Makes room for a new connection at the cap: closes the connection that has been idle longest.

use std::task::Waker;

use crate::http::registry::list::{Members, Registry};
use crate::http::registry::state::ConnState;
use crate::http::registry::timeouts::Order;
use crate::http::registry::wheel::Tick;

/// As many are looked up at a time: a crowd that comes to a full worker does not have all of its
/// connections looked at for each that comes.
const FOUND_AT_ONCE: usize = 64;

impl Registry {
    /// Ends the connection that has been idle longest, if any is.
    pub(crate) fn evict_idle(&self) {
        if let Some(waker) = self.end_longest_idle() {
            waker.wake();
        }
    }

    fn end_longest_idle(&self) -> Option<Waker> {
        let mut found = self.idle_queue.found.borrow_mut();
        let mut members = self.members.borrow_mut();
        loop {
            while let Some((since, key)) = found.pop() {
                // Another may have its place since, or it has served a request.
                if let Some(entry) = members.entries.get_mut(key)
                    && entry.order != Some(Order::Evict)
                    && self.idle_since(&entry.state) == Some(since)
                {
                    return entry.give(Order::Evict);
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
            .filter(|(_, entry)| entry.order != Some(Order::Evict))
            .filter_map(|(key, entry)| Some((self.idle_since(&entry.state)?, key)))
            .collect();
        if idle.len() > FOUND_AT_ONCE {
            idle.select_nth_unstable(FOUND_AT_ONCE);
            idle.truncate(FOUND_AT_ONCE);
        }
        idle.sort_unstable_by(|one, other| other.cmp(one));
        idle
    }

    /// Since when a connection has been idle, if for long enough to end.
    pub(crate) fn idle_since(&self, state: &ConnState) -> Option<Tick> {
        self.timeouts.idle_since(state, self.now())
    }
}
