//! The executor on which hyper spawns the handlers of an HTTP/2 connection.

use std::rc::{Rc, Weak};

use hyper::rt::Executor;

use crate::http::http2::streams::Streams;

/// The executor. A spawned future waits in [`Streams`] until the connection's task takes it.
#[derive(Clone)]
pub(crate) struct Spawner(
    /// Weak, because the spawned futures hold a spawner.
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
