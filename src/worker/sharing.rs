//! The connections that a worker is to give to other slots, as the master has asked.

use std::cell::RefCell;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::protocol::inbox::Sender;

/// So many connections are to go to this inbox.
#[derive(Debug)]
pub(crate) struct Share {
    pub(crate) inbox: Sender,
    pub(crate) connections: u16,
}

/// A queue from the task that receives the master's messages to the task that serves. Clones are
/// the same queue.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shares(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    asked: Mutex<Vec<Share>>,
    came: Notify,
}

impl Shares {
    pub(crate) fn ask(&self, share: Share) {
        self.asked().push(share);
        self.0.came.notify_one();
    }

    /// All shares since the last call. Waits until there is one.
    pub(crate) async fn next(&self) -> Vec<Share> {
        loop {
            let asked = std::mem::take(&mut *self.asked());
            if !asked.is_empty() {
                return asked;
            }
            self.0.came.notified().await;
        }
    }

    fn asked(&self) -> MutexGuard<'_, Vec<Share>> {
        self.0.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The connections that are still to be given.
#[derive(Debug, Default)]
pub(crate) struct Siblings(RefCell<Vec<Share>>);

impl Siblings {
    /// Replaces the shares that are left. Returns how many connections are to be given now.
    pub(crate) fn set(&self, shares: Vec<Share>) -> usize {
        let count = shares.iter().map(|share| usize::from(share.connections));
        let count = count.sum();
        *self.0.borrow_mut() = shares;
        count
    }

    /// The inbox for the next connection; `None` if no more are to be given.
    pub(crate) fn next(&self) -> Option<Sender> {
        let mut shares = self.0.borrow_mut();
        loop {
            let share = shares.last_mut()?;
            if share.connections > 0 {
                share.connections -= 1;
                return Some(share.inbox.clone());
            }
            shares.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::inbox::Inbox;

    fn share(connections: u16) -> Share {
        let inbox = Inbox::new().expect("a pair");
        let sender = inbox.sender().try_clone_to_owned().expect("a number");
        let inbox = Sender::new(sender);
        Share { inbox, connections }
    }

    #[tokio::test]
    async fn as_many_connections_are_given_as_were_asked_for() {
        let shares = Shares::default();
        shares.ask(share(2));
        shares.ask(share(0));
        shares.ask(share(1));
        let siblings = Siblings::default();
        assert_eq!(siblings.set(shares.next().await), 3);
        let given = std::iter::from_fn(|| siblings.next()).count();
        assert_eq!(given, 3);
    }

    #[tokio::test]
    async fn new_shares_replace_those_that_are_left() {
        let siblings = Siblings::default();
        siblings.set(vec![share(2)]);
        assert!(siblings.next().is_some());
        assert_eq!(siblings.set(Vec::new()), 0);
        assert!(siblings.next().is_none());
    }
}
