//! Bodies: the request's, with its limit and its timeout, and the wrapper around the response's.

use std::any::Any;
use std::error::Error;
use std::fmt;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;
use pin_project_lite::pin_project;

use crate::error::BoxError;
use crate::http::exchange::event_stream::EventStream;
use crate::http::exchange::length::Progress;
use crate::http::exchange::lifecycle::{Exchange, is_unsized};
#[cfg(feature = "http2")]
use crate::http::exchange::unread::KeptBody;
use crate::http::exchange::unread::{First, Unread, lock};
use crate::http::info::ConnectionInfo;
use crate::http::registry::state::{BodyFailure, ConnState};
use crate::id::ConnectionId;

/// A request's body, read from the connection as the handler asks for it.
///
/// Nothing is read ahead of the handler. A client that sends `Expect: 100-continue` (RFC 9110
/// 10.1.1) waits before it sends the body. In HTTP/1.1 the server sends `100 Continue` when the
/// handler first polls the body, or when the handler returns a response and has not dropped the
/// body: a response that streams the request's body back, or a task that reads it, still needs the
/// body. A handler that drops the body unread refuses it, and the server sends no `100 Continue`.
/// In HTTP/2 the server never sends `100 Continue`, because hyper cannot: clients send the body
/// after a wait of their own (curl: one second).
///
/// An upload to disk. Memory holds one piece at a time, and the client sends no faster than the
/// disk writes. If the body ends with an error, such as one over the limit, the file is incomplete:
///
/// ```
/// use std::path::PathBuf;
///
/// use http_body_util::BodyExt;
/// use prefork_server::{BoxError, Request, Response};
/// use tokio::io::AsyncWriteExt;
/// # use std::io::Write;
/// # use prefork_server::{TestServer, handler};
///
/// async fn upload(request: Request, path: PathBuf) -> Result<Response, BoxError> {
///     let mut file = tokio::fs::File::create(path).await?;
///     let mut body = request.into_body();
///     while let Some(frame) = body.frame().await {
///         // A frame that is not data has the trailers.
///         if let Ok(piece) = frame?.into_data() {
///             file.write_all(&piece).await?;
///         }
///     }
///     file.flush().await?;
///     Ok(Response::new("stored\n".into()))
/// }
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("upload");
/// # let stored = path.clone();
/// # let server = TestServer::start(async move |_worker| {
/// #     Ok(handler(move |request| upload(request, path.clone())))
/// # })?;
/// # let mut client = std::net::TcpStream::connect(server.address())?;
/// # client.write_all(b"PUT / HTTP/1.0\r\ncontent-length: 3\r\n\r\ntea")?;
/// # assert!(std::io::read_to_string(client)?.ends_with("stored\n"));
/// # assert_eq!(std::fs::read(stored)?, b"tea");
/// # Ok::<(), BoxError>(())
/// ```
pub struct Body {
    state: Arc<ConnState>,
    content: Content,
}

/// What is not read of a body. It is on the heap: the server moves a request often, and most
/// requests have no body.
enum Content {
    /// The request has no body, or the body has been read to its end.
    None,
    /// All of it. It is not in the connection any more, so it may be left unread.
    Whole(Box<Bytes>),
    Unread(Arc<Mutex<Unread>>),
}

/// The body of a request whose client waits for `100 Continue`, for as long as the body can be
/// read: until it is dropped or has ended.
pub(crate) struct Expected(Weak<Mutex<Unread>>);

impl Body {
    /// The body of a request that has none.
    pub(crate) fn empty(state: Arc<ConnState>) -> Self {
        Self {
            state,
            content: Content::None,
        }
    }

    /// Gives it all its bytes.
    pub(crate) fn fill(&mut self, bytes: Bytes) {
        self.content = Content::Whole(Box::new(bytes));
    }

    pub(crate) fn new(incoming: Incoming, state: Arc<ConnState>, limit: u64) -> Self {
        if incoming.is_end_stream() {
            return Self::empty(state);
        }
        state.open_body();
        let unread = Unread {
            incoming,
            request: state.requests(),
            limit,
            left: limit,
            first: First::NotPolled,
        };
        Self {
            state,
            content: Content::Unread(Arc::new(Mutex::new(unread))),
        }
    }

    /// A reference by which the server can poll for the body before the response is sent.
    pub(crate) fn expected(&self) -> Option<Expected> {
        self.unread().map(Arc::downgrade).map(Expected)
    }

    /// The connection that the request came on: its client, and the address that accepted it.
    #[must_use]
    pub fn connection(&self) -> &ConnectionInfo {
        self.state.info()
    }

    /// Identifies the connection among those that the worker has open. All requests of one HTTP/2
    /// connection have the same id. Use the id for limits per connection.
    #[must_use]
    pub fn connection_id(&self) -> ConnectionId {
        // Each open connection has a state of its own, with an address of its own.
        ConnectionId(std::ptr::from_ref(self.state.of_connection()).addr())
    }

    /// `None` if nothing more of the body can come.
    #[cfg(feature = "http2")]
    pub(crate) fn keep(&self) -> Option<KeptBody> {
        self.unread().map(Arc::clone).map(KeptBody)
    }

    fn unread(&self) -> Option<&Arc<Mutex<Unread>>> {
        match &self.content {
            Content::Unread(unread) => Some(unread),
            Content::None | Content::Whole(_) => None,
        }
    }
}

impl Expected {
    /// Polls for the first frame, unless the handler has. Returns whether the body can still be
    /// read.
    pub(crate) fn poll_first(&self, cx: &mut Context<'_>) -> bool {
        let Some(unread) = self.0.upgrade() else {
            return false;
        };
        let mut unread = lock(&unread);
        // A second poll would replace the waker of the task that reads the body.
        if let First::NotPolled = unread.first {
            unread.first = match Pin::new(&mut unread.incoming).poll_frame(cx) {
                Poll::Ready(item) => First::Early(item),
                Poll::Pending => First::Polled,
            };
        }
        true
    }
}

impl Unread {
    /// The state, if it is still that of this body's request. A task may end a body later: hyper
    /// reads the first piece before someone asks for it, and if that is all, the next request.
    fn state<'a>(&self, state: &'a ConnState) -> Option<&'a ConnState> {
        (state.requests() == self.request).then_some(state)
    }

    /// Subtracts a frame from the limit. An error if the frame exceeds it.
    fn count(&mut self, frame: &Frame<Bytes>) -> Result<(), BodyError> {
        let len = frame.data_ref().map_or(0, Bytes::len) as u64;
        let left = self.left.checked_sub(len);
        self.left = left.ok_or(BodyError::TooLarge { limit: self.limit })?;
        Ok(())
    }
}

/// The failure of a body that is already noted in the state.
fn failure(state: &ConnState, limit: u64) -> Option<BodyError> {
    match state.body_failure() {
        BodyFailure::TooLarge => Some(BodyError::TooLarge { limit }),
        BodyFailure::TimedOut => Some(BodyError::TimedOut),
        // hyper returns each cause once, and the first call has returned it.
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
        let shared = match &mut this.content {
            Content::None => return Poll::Ready(None),
            Content::Whole(bytes) => {
                let bytes = mem::take(&mut **bytes);
                this.content = Content::None;
                return Poll::Ready(Some(Ok(Frame::data(bytes))));
            }
            Content::Unread(shared) => shared,
        };
        let mut unread = lock(shared);
        let state = unread.state(&this.state);
        if let Some(failure) = state.and_then(|state| failure(state, unread.limit)) {
            return Poll::Ready(Some(Err(failure)));
        }
        let Poll::Ready(item) = unread.poll_next(cx) else {
            if let Some(state) = state {
                state.await_body(cx.waker());
            }
            return Poll::Pending;
        };
        let counted = item.map(|frame| match frame {
            Ok(frame) => unread.count(&frame).map(|()| frame),
            Err(error) => Err(BodyError::Broken(error)),
        });
        let is_over = match &counted {
            Some(Ok(_)) => unread.incoming.is_end_stream(),
            Some(Err(_)) => false,
            None => true,
        };
        drop(unread);
        if let Some(state) = state {
            state.end_await_body();
            match &counted {
                Some(Err(error)) => state.fail_body(error.failure()),
                _ if is_over => state.close_body(),
                _ => {}
            }
        }
        if is_over {
            this.content = Content::None;
        }
        Poll::Ready(counted)
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.content, Content::None)
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::None => SizeHint::with_exact(0),
            Content::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Content::Unread(unread) => lock(unread).size_hint(),
        }
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        if let Content::Unread(unread) = mem::replace(&mut self.content, Content::None) {
            let request = lock(&unread).request;
            // hyper knows it before the state says so. Else the connection's thread, if this is
            // another one, could let the connection rest or go before hyper discards the body.
            drop(unread);
            if self.state.requests() == request {
                self.state.leave_body_unread();
            }
        }
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Body")
            .field("connection", self.connection())
            .field("left", &self.unread().map(|unread| lock(unread).left))
            .finish_non_exhaustive()
    }
}

/// Why a request's body could not be read to its end.
///
/// If the handler then returns an error, any error, the server responds with the status named here.
/// If the handler responds with 400 or 500, as the extractors of frameworks do, the response gets
/// that status.
///
/// ```
/// use http_body_util::BodyExt;
/// use prefork_server::{BodyError, BoxError, Request, Response};
/// # use std::io::Write;
/// # use prefork_server::{Http, TestServer, handler};
///
/// async fn upload(request: Request) -> Result<Response, BoxError> {
///     match request.into_body().collect().await {
///         Ok(body) => Ok(Response::new(body.to_bytes().into())),
///         Err(BodyError::TooLarge { limit }) => {
///             let text = format!("at most {limit} bytes\n");
///             Ok(Response::builder().status(413).body(text.into())?)
///         }
///         // The server responds with 408 or 400.
///         Err(error) => Err(error.into()),
///     }
/// }
/// # let server = TestServer::start_with(|server| {
/// #     let http = Http::new().max_body_size(2);
/// #     server.http(http).serve(async |_worker| Ok(handler(upload)))
/// # })?;
/// # let mut client = std::net::TcpStream::connect(server.address())?;
/// # client.write_all(b"PUT / HTTP/1.1\r\nhost: test\r\nconnection: close\r\n")?;
/// # client.write_all(b"transfer-encoding: chunked\r\n\r\n3\r\ntea\r\n0\r\n\r\n")?;
/// # assert!(std::io::read_to_string(client)?.ends_with("at most 2 bytes\n"));
/// # Ok::<(), BoxError>(())
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum BodyError {
    /// The body is larger than [`Http::max_body_size`](crate::Http::max_body_size). Status: 413.
    TooLarge {
        /// The limit, in bytes.
        limit: u64,
    },
    /// No byte of the body came for [`Http::body_timeout`](crate::Http::body_timeout). Status: 408.
    TimedOut,
    /// The client closed the connection before the end of the body, or sent invalid chunks.
    /// Status: 400.
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
    /// A response's body. Its drop ends the exchange.
    pub(crate) struct ResponseBody<B> {
        #[pin]
        inner: Option<B>,
        events: Option<EventStream>,
        progress: Progress,
        exchange: Exchange,
    }
}

impl<B: http_body::Body> ResponseBody<B> {
    /// The body of a response with these headers. `None` is the empty body.
    pub(crate) fn new(inner: Option<B>, headers: &HeaderMap, exchange: Exchange) -> Self {
        // A body whose length is known ends by itself.
        let events = inner.as_ref().is_some_and(is_unsized);
        let events = events.then(|| EventStream::of(headers, exchange.registry()));
        Self {
            events: events.flatten(),
            progress: Progress::new(headers, inner.as_ref()),
            inner,
            exchange,
        }
    }
}

#[cfg(feature = "http2")]
impl<B> ResponseBody<B> {
    pub(crate) fn kept(self: Pin<&mut Self>) -> &mut Option<KeptBody> {
        &mut self.project().exchange.kept
    }
}

impl<B> http_body::Body for ResponseBody<B>
where
    B: http_body::Body<Error: Into<BoxError>>,
{
    type Data = B::Data;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, Self::Error>>> {
        let this = self.project();
        let Some(inner) = this.inner.as_pin_mut() else {
            return Poll::Ready(None);
        };
        let polled = catch_panic(|| inner.poll_frame(cx));
        if let Some(events) = this.events
            && events.ends(polled.is_ready(), cx)
        {
            return Poll::Ready(None);
        }
        let (progress, exchange) = (this.progress, this.exchange);
        // An error here ends the connection. There is no other way to show the client that
        // the body is not complete.
        Poll::Ready(match ready!(polled) {
            Ok(Some(Ok(frame))) => {
                progress.count(&frame);
                // In HTTP/1 hyper sends no more than the head says.
                Some(match progress.is_long() && exchange.is_of_stream() {
                    true => Err(exchange.broke_length(progress.wrong())),
                    false => Ok(frame),
                })
            }
            Ok(Some(Err(error))) => {
                let error = error.into();
                exchange.broke_off(&*error);
                Some(Err(error))
            }
            Ok(None) => progress
                .is_short()
                .then(|| Err(exchange.broke_length(progress.wrong()))),
            Err(payload) => {
                exchange.panicked(&*payload);
                Some(Err("the response's body panicked".into()))
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        // hyper does not poll a body that is at its end. `poll_frame` says that it is too short.
        !self.progress.is_short() && self.inner.as_ref().is_none_or(B::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.inner
            .as_ref()
            .map_or_else(|| SizeHint::with_exact(0), B::size_hint)
    }
}

/// Polls the user's code and catches a panic. The assertion holds because the caller drops what a
/// panic has left in an unknown state, and does not use it again.
pub(crate) fn catch_panic<T>(
    poll: impl FnOnce() -> Poll<T>,
) -> Poll<Result<T, Box<dyn Any + Send>>> {
    match catch_unwind(AssertUnwindSafe(poll)) {
        Ok(poll) => poll.map(Ok),
        Err(payload) => Poll::Ready(Err(payload)),
    }
}
