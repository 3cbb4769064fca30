//! The part of a request's body that nobody has read.

use std::mem;
use std::pin::Pin;
#[cfg(feature = "http2")]
use std::sync::Arc;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;

/// The part of a body that is not read from the connection.
pub(super) struct Unread {
    pub(super) incoming: Incoming,
    /// Which of the connection's requests has the body.
    pub(super) request: u32,
    pub(super) limit: u64,
    pub(super) left: u64,
    pub(super) first: First,
}

/// The first frame of a body: hyper sends `100 Continue` when this frame is polled for.
pub(super) enum First {
    NotPolled,
    /// The server polled for it, and got it. The handler gets it with its first poll.
    Early(Option<Result<Frame<Bytes>, hyper::Error>>),
    Polled,
}

/// The rest of a body in HTTP/2. Its stream is not reset while this exists.
///
/// h2 resets a stream when its response is complete and the rest of its request is dropped (RFC
/// 9113 8.1). A client that is just sending may learn of both at the same time, and some then fail
/// with the reset and never show the response: curl 7.88 does. So the rest is kept until the
/// response is complete and for a moment longer, and what comes meanwhile is discarded.
#[cfg(feature = "http2")]
pub(crate) struct KeptBody(pub(super) Arc<Mutex<Unread>>);

#[cfg(feature = "http2")]
impl KeptBody {
    /// Discards what has come, unless the handler or a task of it has the body. Ready if no more
    /// can come.
    pub(crate) fn poll_discard(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.is_in_use() {
            return Poll::Pending;
        }
        let mut unread = lock(&self.0);
        loop {
            match unread.poll_next(cx) {
                Poll::Ready(Some(Ok(_))) => {}
                Poll::Ready(Some(Err(_)) | None) => return Poll::Ready(()),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    /// Whether the handler, or a task that it has started, may still read the body.
    pub(crate) fn is_in_use(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }
}

impl Unread {
    pub(super) fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match mem::replace(&mut self.first, First::Polled) {
            First::Early(item) => Poll::Ready(item),
            First::NotPolled | First::Polled => Pin::new(&mut self.incoming).poll_frame(cx),
        }
    }

    pub(super) fn size_hint(&self) -> SizeHint {
        let mut hint = self.incoming.size_hint();
        if let First::Early(Some(Ok(frame))) = &self.first {
            let early = frame.data_ref().map_or(0, Bytes::len) as u64;
            if let Some(upper) = hint.upper() {
                hint.set_upper(upper + early);
            }
            hint.set_lower(hint.lower() + early);
        }
        hint
    }
}

pub(super) fn lock(unread: &Mutex<Unread>) -> MutexGuard<'_, Unread> {
    // Nothing panics while it holds the lock.
    unread.lock().unwrap_or_else(PoisonError::into_inner)
}
