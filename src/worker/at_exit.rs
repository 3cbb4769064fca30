//! What the app wants to be done before its worker exits.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::timeout;

/// How long it may take at least, also if the drain timeout is over. Less than the time after which
/// the master kills a worker that has not left.
const LIMIT_MIN: Duration = Duration::from_millis(500);

/// Clones are the same list.
#[derive(Clone, Default)]
pub(crate) struct AtExit(Arc<Mutex<Vec<Work>>>);

type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

impl AtExit {
    pub(crate) fn push(&self, work: impl Future<Output = ()> + Send + 'static) {
        let mut list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        list.push(Box::pin(work));
    }

    fn pop(&self) -> Option<Work> {
        let mut list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        list.pop()
    }

    /// Does it, the last first, for no longer than `limit`.
    pub(crate) async fn run(&self, limit: Duration) {
        let all = async {
            while let Some(work) = self.pop() {
                work.await;
            }
        };
        let limit = limit.max(LIMIT_MIN);
        if timeout(limit, all).await.is_err() {
            tracing::warn!("what the app does at the exit took over {limit:.1?} and is dropped");
        }
    }
}

impl fmt::Debug for AtExit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AtExit")
    }
}
