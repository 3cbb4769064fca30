//! The part of a request's body that nobody has read.

use std::mem;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;

/// The part of a body that is not read from the connection.
pub(super) struct Unread {
    pub(super) incoming: Incoming,
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
