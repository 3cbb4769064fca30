//! What hyper spawns the handlers of an HTTP/2 connection on.

use std::rc::{Rc, Weak};

use hyper::rt::Executor;

use crate::http::http2::streams::Streams;

/// What hyper spawns on. What it is given waits with the streams for the connection's task.
#[derive(Clone)]
pub(crate) struct Spawner(
    /// Those that are spawned hold a spawner.
    Weak<Streams>,
);

impl Spawner {
    pub(crate) fn new(streams: &Rc<Streams>) -> Self {
        Self(Rc::downgrade(streams))
    }
}

impl<F: Future<Output = ()> + 'static> Executor<F> for Spawner {
    fn execute(&self, future: F) {
        if let Some(streams) = self.0.upgrade() {
            streams.spawn(Box::pin(future));
        }
    }
}
