//! Bodies: the request's, with its limit and its deadline, and the wrapper around the response's.

use std::any::Any;
use std::error::Error;
use std::fmt;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;
use pin_project_lite::pin_project;

use crate::http::exchange::lifecycle::Exchange;
use crate::http::info::ConnectionInfo;
use crate::http::registry::state::{BodyFailure, ConnState};
use crate::id::ConnectionId;

/// A request's body, read from the connection as the handler asks for it.
///
/// Nothing is read ahead of the handler. A client that sends `Expect: 100-continue` (RFC 9110
/// 10.1.1) waits before it sends the body. In HTTP/1.1 the server answers `100 Continue` when the
/// handler first polls the body, or when the handler returns a response and has not dropped the
/// body: a response that streams the request's body back, or a task that reads it, still needs the
/// body. A handler that drops the body unread refuses it, and no `100 Continue` is sent. In HTTP/2
/// none is ever sent, since hyper has no way to send one: clients send the body after a wait of
/// their own (curl: one second).
pub struct Body {
    state: Arc<ConnState>,
    /// `None` once it has ended, or if there is none. On the heap: a request is moved often on its
    /// way, and most have none.
    unread: Option<Arc<Mutex<Unread>>>,
}

/// What comes of a body.
struct Unread {
    incoming: Incoming,
    limit: u64,
    left: u64,
    first: First,
}

/// The first frame of a body: hyper sends `100 Continue` when it is asked for.
enum First {
    Unasked,
    /// The server asked for it, and it was there. The handler gets it with its first poll.
    Early(Option<Result<Frame<Bytes>, hyper::Error>>),
    Asked,
}

/// The body of a request whose client waits for `100 Continue`, for as long as the body can be
/// read: until it is dropped or has ended.
pub(crate) struct Expected(Weak<Mutex<Unread>>);

impl Body {
    /// That of a request that has none.
    pub(crate) fn empty(state: Arc<ConnState>) -> Self {
        Self {
            state,
            unread: None,
        }
    }

    pub(crate) fn new(incoming: Incoming, state: Arc<ConnState>, limit: u64) -> Self {
        if incoming.is_end_stream() {
            return Self::empty(state);
        }
        state.open_body();
        Self {
            state,
            unread: Some(Arc::new(Mutex::new(Unread {
                incoming,
                limit,
                left: limit,
                first: First::Unasked,
            }))),
        }
    }

    /// For the server to ask for the body before the response leaves.
    pub(crate) fn expected(&self) -> Option<Expected> {
        self.unread.as_ref().map(Arc::downgrade).map(Expected)
    }

    /// The connection that the request came on: whose it is and where it was accepted.
    #[must_use]
    pub fn connection(&self) -> &ConnectionInfo {
        self.state.info()
    }

    /// Tells the connection from the others that the worker has open. Requests of one connection
    /// of HTTP/2 have the same: for what is to be limited by connection.
    #[must_use]
    pub fn connection_id(&self) -> ConnectionId {
        // Each open connection has a state of its own, at its own address.
        ConnectionId(std::ptr::from_ref(self.state.of_connection()).addr())
    }

    fn end(&mut self) {
        self.unread = None;
        self.state.close_body();
    }
}

impl Expected {
    /// Asks for the first frame, unless the handler has. Says whether the body can still be read.
    pub(crate) fn ask(&self, cx: &mut Context<'_>) -> bool {
        let Some(unread) = self.0.upgrade() else {
            return false;
        };
        let mut unread = lock(&unread);
        // A second poll would take the place of the waker of the task that reads the body.
        if let First::Unasked = unread.first {
            unread.first = match Pin::new(&mut unread.incoming).poll_frame(cx) {
                Poll::Ready(item) => First::Early(item),
                Poll::Pending => First::Asked,
            };
        }
        true
    }
}

impl Unread {
    fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match mem::replace(&mut self.first, First::Asked) {
            First::Early(item) => Poll::Ready(item),
            First::Unasked | First::Asked => Pin::new(&mut self.incoming).poll_frame(cx),
        }
    }

    fn size_hint(&self) -> SizeHint {
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

    /// Counts a frame, which may be one too many.
    fn count(&mut self, frame: &Frame<Bytes>) -> Result<(), BodyError> {
        let len = frame.data_ref().map_or(0, Bytes::len) as u64;
        let left = self.left.checked_sub(len);
        self.left = left.ok_or(BodyError::TooLarge { limit: self.limit })?;
        Ok(())
    }
}

fn lock(unread: &Mutex<Unread>) -> MutexGuard<'_, Unread> {
    // Nothing panics while it holds the lock.
    unread.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What is known already to be wrong with a body.
fn failure(state: &ConnState, limit: u64) -> Option<BodyError> {
    match state.body_failure() {
        BodyFailure::TooLarge => Some(BodyError::TooLarge { limit }),
        BodyFailure::TimedOut => Some(BodyError::TimedOut),
        // hyper tells each cause once; the first call passed it on.
        BodyFailure::Broken | BodyFailure::None => None,
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = &mut *self;
        let Some(shared) = &this.unread else {
            return Poll::Ready(None);
        };
        let mut unread = lock(shared);
        if let Some(failure) = failure(&this.state, unread.limit) {
            return Poll::Ready(Some(Err(failure)));
        }
        let Poll::Ready(item) = unread.poll_next(cx) else {
            this.state.await_body(cx.waker());
            return Poll::Pending;
        };
        this.state.end_await_body();
        let counted = item.map(|frame| match frame {
            Ok(frame) => unread.count(&frame).map(|()| frame),
            Err(error) => Err(BodyError::Broken(error)),
        });
        let is_over = match &counted {
            Some(Ok(_)) => unread.incoming.is_end_stream(),
            Some(Err(error)) => {
                this.state.fail_body(error.failure());
                false
            }
            None => true,
        };
        drop(unread);
        if is_over {
            this.end();
        }
        Poll::Ready(counted)
    }

    fn is_end_stream(&self) -> bool {
        self.unread.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        match &self.unread {
            Some(unread) => lock(unread).size_hint(),
            None => SizeHint::with_exact(0),
        }
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        // A body read to its end may outlive its exchange, and the next one's facts are not its.
        if self.unread.is_some() {
            self.state.leave_body_unread();
        }
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Body")
            .field("connection", self.connection())
            .field(
                "left",
                &self.unread.as_ref().map(|unread| lock(unread).left),
            )
            .finish_non_exhaustive()
    }
}

/// Why a request's body could not be read to its end.
///
/// A handler that fails because of it need do nothing more: if it returns an error, any error, the
/// client is told the status named here.
#[derive(Debug)]
#[non_exhaustive]
pub enum BodyError {
    /// It is larger than [`Http::max_body_size`](crate::Http::max_body_size); 413.
    TooLarge {
        /// That size, in bytes.
        limit: u64,
    },
    /// Nothing of it came for [`Http::body_timeout`](crate::Http::body_timeout); 408.
    TimedOut,
    /// The client left in the middle, or sent chunks that are none; 400.
    Broken(hyper::Error),
}

impl BodyError {
    fn failure(&self) -> BodyFailure {
        match self {
            Self::TooLarge { .. } => BodyFailure::TooLarge,
            Self::TimedOut => BodyFailure::TimedOut,
            Self::Broken(_) => BodyFailure::Broken,
        }
    }
}

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge { limit } => write!(f, "the request's body is over {limit} bytes"),
            Self::TimedOut => f.write_str("the request's body stopped coming"),
            Self::Broken(_) => f.write_str("the request's body broke off"),
        }
    }
}

impl Error for BodyError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Broken(error) => Some(error),
            Self::TooLarge { .. } | Self::TimedOut => None,
        }
    }
}

pin_project! {
    /// A response's body. While it lives the request lives: dropping it ends the exchange.
    pub(crate) struct ResponseBody<B> {
        #[pin]
        inner: Option<B>,
        exchange: Exchange,
    }
}

impl<B> ResponseBody<B> {
    /// `None` is the empty body.
    pub(crate) fn new(inner: Option<B>, exchange: Exchange) -> Self {
        Self { inner, exchange }
    }
}

impl<B> http_body::Body for ResponseBody<B>
where
    B: http_body::Body,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    type Data = B::Data;
    type Error = Box<dyn Error + Send + Sync>;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, Self::Error>>> {
        let this = self.project();
        let Some(inner) = this.inner.as_pin_mut() else {
            return Poll::Ready(None);
        };
        // An error here ends the connection, which is the only way left to tell the
        // client that the body is not whole.
        Poll::Ready(match ready!(catch_panic(|| inner.poll_frame(cx))) {
            Ok(item) => item.map(|frame| {
                frame.map_err(|error| {
                    let error = error.into();
                    this.exchange.broke_off(&*error);
                    error
                })
            }),
            Err(payload) => {
                this.exchange.panicked(&*payload);
                Some(Err("the response's body panicked".into()))
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        self.inner.as_ref().is_none_or(B::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.inner
            .as_ref()
            .map_or_else(|| SizeHint::with_exact(0), B::size_hint)
    }
}

/// Polls what users wrote. What it leaves half-done by a panic is dropped and never seen again,
/// hence the assertion.
pub(crate) fn catch_panic<T>(
    poll: impl FnOnce() -> Poll<T>,
) -> Poll<Result<T, Box<dyn Any + Send>>> {
    match catch_unwind(AssertUnwindSafe(poll)) {
        Ok(poll) => poll.map(Ok),
        Err(payload) => Poll::Ready(Err(payload)),
    }
}
