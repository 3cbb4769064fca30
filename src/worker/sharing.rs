//! What a worker is to give to its siblings, from when the master says so until it is given or the
//! master looks anew.

use std::cell::RefCell;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::protocol::inbox::Sender;

/// So many connections are to go by this inbox.
#[derive(Debug)]
pub(crate) struct Share {
    pub(crate) inbox: Sender,
    pub(crate) connections: u16,
}

/// From whoever hears the master to whoever serves. Clones are the same.
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

    /// All that has been asked for since the last time, which is something.
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

/// What is left to give.
#[derive(Debug, Default)]
pub(crate) struct Siblings(RefCell<Vec<Share>>);

impl Siblings {
    /// Replaces what was left, and says how many connections there are to give now.
    pub(crate) fn set(&self, shares: Vec<Share>) -> usize {
        let count = shares.iter().map(|share| usize::from(share.connections));
        let count = count.sum();
        *self.0.borrow_mut() = shares;
        count
    }

    /// Where the next connection goes.
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
    async fn what_was_asked_for_is_given_and_no_more() {
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
    async fn a_term_that_is_over_leaves_nothing_to_give() {
        let siblings = Siblings::default();
        siblings.set(vec![share(2)]);
        assert!(siblings.next().is_some());
        assert_eq!(siblings.set(Vec::new()), 0);
        assert!(siblings.next().is_none());
    }
}
