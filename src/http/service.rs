//! The service that is called for each request: the user's, behind the limits, with its panics and
//! errors turned into answers.

use std::any::Any;
use std::convert::Infallible;
use std::error::Error;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::header::{CONNECTION, SERVER};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, Version};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::service::Service;
use hyper::upgrade::OnUpgrade;
use pin_project_lite::pin_project;

use super::activity::{Activity, BodyFailure, Stage};
use super::body::{Body, ResponseBody, catch_panic};
use super::registry::Registry;
use super::{Request, rules};
use crate::row::Timing;

/// See the module's head.
pub(super) struct Guarded<S> {
    pub(super) inner: Rc<S>,
    pub(super) registry: Rc<Registry>,
    pub(super) activity: Arc<Activity>,
}

impl<S, B> Guarded<S>
where
    S: Service<Request, Response = Response<B>>,
{
    /// Of a request that breaks no rule and has no body.
    pub(super) fn call_plain(&self, request: http::Request<()>) -> Answer<S::Future> {
        self.activity.begin_request();
        let exchange = self.exchange(request.version(), false);
        let limit = self.max_body_size();
        self.handle(
            request.map(|()| Body::empty(Arc::clone(&self.activity), limit)),
            exchange,
        )
    }

    fn exchange(&self, version: Version, tunnel: bool) -> Exchange {
        Exchange {
            registry: Rc::clone(&self.registry),
            activity: Arc::clone(&self.activity),
            timing: self.registry.request_begins(&self.activity),
            version,
            tunnel,
        }
    }

    fn max_body_size(&self) -> u64 {
        self.registry.http.max_body_size.unwrap_or(u64::MAX)
    }

    fn handle(&self, request: Request, exchange: Exchange) -> Answer<S::Future> {
        match catch_unwind(AssertUnwindSafe(|| self.inner.call(request))) {
            Ok(handler) => Answer {
                work: Work::Handler { handler },
                exchange: Some(exchange),
            },
            Err(payload) => {
                exchange.panicked(&*payload);
                Answer::own(StatusCode::INTERNAL_SERVER_ERROR, exchange)
            }
        }
    }
}

impl<S, B> Service<http::Request<Incoming>> for Guarded<S>
where
    S: Service<Request, Response = Response<B>>,
    S::Error: Into<Box<dyn Error + Send + Sync>>,
    B: http_body::Body,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    type Response = Response<ResponseBody<B>>;
    type Error = Infallible;
    type Future = Answer<S::Future>;

    fn call(&self, mut request: http::Request<Incoming>) -> Self::Future {
        self.activity.begin_request();
        let tunnel = request.method() == Method::CONNECT;
        let exchange = self.exchange(request.version(), tunnel);
        if request.extensions().get::<OnUpgrade>().is_some() {
            // Granted or not, hyper gives the stream away when this connection ends, without a
            // flush: an answer that is held back then would be lost.
            self.activity.hold_nothing();
        }
        if request.version() < Version::HTTP_2 {
            if let Err(refusal) = rules::check(&request, &self.registry.http) {
                tracing::debug!(%refusal, "request refused");
                // Whatever follows is taken for its body, so that the connection ends here.
                self.activity.leave_body_unread();
                return Answer::own(refusal.status(), exchange);
            }
            rules::settle_host(&mut request);
        }
        let limit = self.max_body_size();
        // Of a chunked body nothing is known yet; its bytes are counted as they come.
        let announced = request.body().size_hint().lower();
        let request =
            request.map(|incoming| Body::new(incoming, Arc::clone(&self.activity), limit));
        if announced > limit {
            tracing::debug!(announced, limit, "request refused: its body is too large");
            return Answer::own(StatusCode::PAYLOAD_TOO_LARGE, exchange);
        }
        #[cfg(feature = "http2")]
        if request.version() == Version::HTTP_2
            && let Err(refusal) = rules::check_http2(&request, &self.registry.http)
        {
            tracing::debug!(%refusal, "request refused");
            return Answer::own(refusal.status(), exchange);
        }
        self.handle(request, exchange)
    }
}

pin_project! {
    /// The answer to one request, in the making. It is kept in one place for the life of the
    /// connection, by hyper or by us, so that a request costs no allocation for it.
    pub(super) struct Answer<F> {
        #[pin]
        work: Work<F>,
        // Here until the response carries it away.
        exchange: Option<Exchange>,
    }
}

pin_project! {
    #[project = WorkPinned]
    enum Work<F> {
        Handler { #[pin] handler: F },
        // Ours, without a body.
        Own { status: StatusCode },
    }
}

impl<F> Answer<F> {
    fn own(status: StatusCode, exchange: Exchange) -> Self {
        Self {
            work: Work::Own { status },
            exchange: Some(exchange),
        }
    }
}

impl<F, B, E> Future for Answer<F>
where
    F: Future<Output = Result<Response<B>, E>>,
    E: Into<Box<dyn Error + Send + Sync>>,
{
    type Output = Result<Response<ResponseBody<B>>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let (response, author) = match this.work.as_mut().project() {
            WorkPinned::Own { status } => (own(*status), Author::Server),
            WorkPinned::Handler { handler } => {
                let outcome = ready!(catch_panic(|| handler.poll(cx)));
                let exchange = this.exchange.as_ref().expect(POLLED_AFTER_END);
                // What the handler held goes now: a body it left unread decides, below, whether
                // the connection can be kept.
                let status = match outcome {
                    Ok(Ok(response)) => Ok(response.map(Some)),
                    Ok(Err(error)) => Err(exchange.failed(&*error.into())),
                    Err(payload) => Err(exchange.panicked(&*payload)),
                };
                this.work.set(Work::Own {
                    status: StatusCode::INTERNAL_SERVER_ERROR,
                });
                match status {
                    Ok(response) => (response, Author::Handler),
                    Err(status) => (own(status), Author::Server),
                }
            }
        };
        let exchange = this.exchange.take().expect(POLLED_AFTER_END);
        Poll::Ready(Ok(exchange.answer(response, author)))
    }
}

const POLLED_AFTER_END: &str = "an answer is dropped once it is given";

fn own<B>(status: StatusCode) -> Response<Option<B>> {
    let mut response = Response::new(None);
    *response.status_mut() = status;
    response
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Author {
    Handler,
    Server,
}

/// One request and its response. Lives in the answer, then in the response's body, and ends with
/// whichever is dropped: also if the client leaves.
pub(super) struct Exchange {
    registry: Rc<Registry>,
    activity: Arc<Activity>,
    timing: Timing,
    /// What the client speaks.
    version: Version,
    /// Whether the request asked for a tunnel (CONNECT), which any 2xx grants.
    tunnel: bool,
}

impl Exchange {
    /// Puts on a response what is ours to add.
    fn answer<B>(
        self,
        mut response: Response<Option<B>>,
        author: Author,
    ) -> Response<ResponseBody<B>> {
        let status = response.status();
        self.activity.enter(Stage::Answering);
        self.registry.counters.answer(status);
        let headers = response.headers_mut();
        if let Some(server) = &self.registry.http.server_header
            && !headers.contains_key(SERVER)
        {
            headers.insert(SERVER, server.clone());
        }
        let is_upgrade =
            status == StatusCode::SWITCHING_PROTOCOLS || (self.tunnel && status.is_success());
        if is_upgrade {
            // The bytes that follow are not ours to schedule, so the head must not wait for them.
            self.activity.hold_nothing();
        } else if self.is_last(author) {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        if self.version == Version::HTTP_10 && says_close(headers) {
            // An answer of HTTP/1.1 would get a `keep-alive` beside it from hyper, if the client
            // has asked for that, and old clients look for nothing else.
            *response.version_mut() = Version::HTTP_10;
        }
        response.map(|body| ResponseBody::new(body, self))
    }

    /// Whether the connection ends with this response.
    fn is_last(&self, author: Author) -> bool {
        // A stream of HTTP/2 ends by itself, and the connection's end is for GOAWAY to tell.
        if self.activity.is_of_stream() {
            return false;
        }
        self.registry.is_draining(&self.activity)
            || self.activity.is_spent()
            || self.activity.body_failure().is_some()
            || (author == Author::Server && self.activity.is_body_unread())
    }

    /// The handler returned an error: the status it means.
    fn failed(&self, error: &(dyn Error + Send + Sync + 'static)) -> StatusCode {
        let status = match self.activity.body_failure() {
            Some(BodyFailure::TooLarge) => StatusCode::PAYLOAD_TOO_LARGE,
            Some(BodyFailure::TimedOut) => StatusCode::REQUEST_TIMEOUT,
            Some(BodyFailure::Broken) => StatusCode::BAD_REQUEST,
            None => {
                tracing::warn!(error, "handler failed");
                return StatusCode::INTERNAL_SERVER_ERROR;
            }
        };
        tracing::debug!(error, %status, "request failed by its body");
        status
    }

    /// The response's body ended with an error, so its connection does too.
    pub(super) fn broke_off(&self, error: &(dyn Error + Send + Sync + 'static)) {
        tracing::warn!(error, "response broken off: its body failed");
        self.registry.counters.broken_response();
    }

    /// The handler or the response's body panicked. The panic hook has printed where.
    pub(super) fn panicked(&self, payload: &(dyn Any + Send)) -> StatusCode {
        let message = payload
            .downcast_ref::<&str>()
            .copied()
            .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
            .unwrap_or("(not a string)");
        tracing::error!(message, "handler panicked");
        self.registry.counters.panic();
        StatusCode::INTERNAL_SERVER_ERROR
    }
}

/// RFC 9112 9.6.
fn says_close(headers: &HeaderMap) -> bool {
    let values = headers.get_all(CONNECTION).into_iter();
    values
        .flat_map(|value| value.as_bytes().split(|&byte| byte == b','))
        .any(|option| option.trim_ascii().eq_ignore_ascii_case(b"close"))
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.activity.enter(Stage::Idle);
        self.registry.counters.request_ends(self.timing);
    }
}
