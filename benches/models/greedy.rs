//! A client that always has a request under way.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use crate::load::{Ask, Driver, Extent, Failures, Plan};

/// Asks on one connection, from a thread of its own, until [`Greedy::stop`].
pub(crate) struct Greedy {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Failures>,
}

impl Greedy {
    pub(crate) fn start(address: SocketAddr, ask: Ask) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let mut driver = Driver::new(address, Plan::new(1, ask));
        let thread = thread::spawn(move || {
            let mut failures = Failures::default();
            while !stopped.load(Ordering::Relaxed) {
                let outcome = driver.closed(Extent::Requests(1));
                failures.merge(&outcome.failures);
            }
            failures
        });
        Self { stop, thread }
    }

    /// What has failed.
    pub(crate) fn stop(self) -> Failures {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("a driver does not panic")
    }
}
