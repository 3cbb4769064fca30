//! Streams that end when the worker drains.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;
use pin_project_lite::pin_project;

use crate::worker::Worker;

pin_project! {
    /// A stream that ends when the worker drains; see [`Worker::until_drain`].
    ///
    /// ```
    /// use futures_util::stream::{Repeat, repeat};
    /// use prefork_server::{UntilDrain, Worker};
    /// use tonic::Status;
    ///
    /// // The traits that tonic generates ask for the names of streams.
    /// type Prices = UntilDrain<Repeat<Result<u32, Status>>>;
    ///
    /// fn prices(worker: &Worker) -> Prices {
    ///     worker.until_drain(repeat(Ok(42)))
    /// }
    /// ```
    #[must_use = "streams do nothing unless they are polled"]
    pub struct UntilDrain<S> {
        #[pin]
        stream: S,
        // `None` once the drain has begun.
        drain: Option<Pin<Box<dyn Future<Output = ()> + Send + Sync>>>,
    }
}

impl Worker {
    /// Ends `stream` when this worker is asked to drain: the next poll after that returns `None`.
    ///
    /// For a response that lasts as long as its client wants, such as a stream of gRPC, so that it
    /// does not keep the worker until the drain timeout. The client asks again, and gets another
    /// worker. A response of the type `text/event-stream` ends by itself and does not need this.
    ///
    /// ```
    /// use futures_util::stream::{Stream, repeat};
    /// use prefork_server::Worker;
    ///
    /// fn prices(worker: &Worker) -> impl Stream<Item = u32> + use<> {
    ///     worker.until_drain(repeat(42))
    /// }
    /// ```
    pub fn until_drain<S: Stream>(&self, stream: S) -> UntilDrain<S> {
        let drain = self.drain();
        UntilDrain {
            stream,
            drain: Some(Box::pin(drain)),
        }
    }
}

impl<S: Stream> Stream for UntilDrain<S> {
    type Item = S::Item;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<S::Item>> {
        let this = self.project();
        let Some(drain) = this.drain else {
            return Poll::Ready(None);
        };
        if drain.as_mut().poll(cx).is_ready() {
            *this.drain = None;
            return Poll::Ready(None);
        }
        this.stream.poll_next(cx)
    }
}

impl<S: fmt::Debug> fmt::Debug for UntilDrain<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("UntilDrain").field(&self.stream).finish()
    }
}
