//! The service that hyper calls for each request: the user's, behind the limits, with its panics
//! and errors turned into answers.

use std::convert::Infallible;
use std::error::Error;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::header::EXPECT;
use http::response::Parts;
use http::{Method, Response, StatusCode, Version};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::service::Service;
use hyper::upgrade::OnUpgrade;
use pin_project_lite::pin_project;

use crate::error::BoxError;
use crate::http::exchange::body::{Body, Expected, ResponseBody, catch_panic};
use crate::http::exchange::lifecycle::{Exchange, ResponseSource, own};
use crate::http::exchange::message::Request;
use crate::http::exchange::rules;
use crate::http::registry::list::Registry;
use crate::http::registry::state::ConnState;

/// A user's service: what it takes, and what its responses and errors must be able to do.
///
/// Every `Service` with such responses and errors is one.
pub(crate) trait Handler:
    Service<Request, Response = Response<<Self as Handler>::Body>, Error: Into<BoxError>> + 'static
{
    type Body: http_body::Body<Error: Into<BoxError>> + 'static;
}

impl<S, B> Handler for S
where
    S: Service<Request, Response = Response<B>, Error: Into<BoxError>> + 'static,
    B: http_body::Body<Error: Into<BoxError>> + 'static,
{
    type Body = B;
}

/// A user's service behind the limits and rules. Panics and errors become responses.
pub(crate) struct Guarded<S> {
    pub(crate) inner: Rc<S>,
    pub(crate) registry: Rc<Registry>,
    pub(crate) state: Arc<ConnState>,
}

impl<S> Guarded<S> {
    /// The body of a request that has none.
    pub(crate) fn empty_body(&self) -> Body {
        Body::empty(Arc::clone(&self.state))
    }

    /// Answers in the handler's place.
    fn refuse<R, F, B>(
        &self,
        status: StatusCode,
        request: http::Request<R>,
        exchange: Exchange,
    ) -> ResponseFuture<F, B> {
        let (head, _unread) = request.into_parts();
        let on_refused = &self.registry.http.on_refused;
        on_refused.tell(status, self.state.info(), Some(&head));
        ResponseFuture::own(status, exchange)
    }

    fn handle(&self, request: Request, exchange: Exchange) -> ResponseFuture<S::Future, S::Body>
    where
        S: Handler,
    {
        let waits = !request.body().is_end_stream()
            && request.version() == Version::HTTP_11
            && request.headers().contains_key(EXPECT);
        let expected = waits.then(|| request.body().expected()).flatten();
        match catch_unwind(AssertUnwindSafe(|| self.inner.call(request))) {
            Ok(handler) => ResponseFuture {
                work: HandlerState::Handler { handler },
                exchange: Some(exchange),
                expected,
            },
            Err(payload) => {
                exchange.panicked(&*payload);
                ResponseFuture::own(StatusCode::INTERNAL_SERVER_ERROR, exchange)
            }
        }
    }
}

impl<S> Service<http::Request<Incoming>> for Guarded<S>
where
    S: Handler,
{
    type Response = Response<ResponseBody<S::Body>>;
    type Error = Infallible;
    type Future = ResponseFuture<S::Future, S::Body>;

    fn call(&self, mut request: http::Request<Incoming>) -> Self::Future {
        let tunnel = request.method() == Method::CONNECT;
        let mut exchange = Exchange::new(&self.registry, &self.state);
        exchange.begin(request.version(), tunnel);
        if request.extensions().get::<OnUpgrade>().is_some() {
            // Granted or not, hyper gives the stream away when this connection ends, without a
            // flush: an answer that is held back then would be lost.
            self.state.hold_nothing();
        }
        if request.version() < Version::HTTP_2 {
            if let Err(refusal) = rules::check(&request, &self.registry.http) {
                tracing::debug!(%refusal, "request refused");
                // Whatever follows is taken for its body, so that the connection ends here.
                self.state.leave_body_unread();
                return self.refuse(refusal.status(), request, exchange);
            }
            rules::settle_host(&mut request);
        }
        let limit = self.registry.http.max_body_size.unwrap_or(u64::MAX);
        // Of a chunked body nothing is known yet; its bytes are counted as they come.
        let announced = request.body().size_hint().lower();
        #[cfg_attr(
            not(feature = "http2"),
            expect(unused_mut, reason = "HTTP/1 has one Cookie")
        )]
        let mut request = request.map(|body| Body::new(body, Arc::clone(&self.state), limit));
        if announced > limit {
            tracing::debug!(announced, limit, "request refused: its body is too large");
            return self.refuse(StatusCode::PAYLOAD_TOO_LARGE, request, exchange);
        }
        #[cfg(feature = "http2")]
        if request.version() == Version::HTTP_2 {
            if let Err(refusal) = rules::http2::check_http2(&request, &self.registry.http) {
                tracing::debug!(%refusal, "request refused");
                return self.refuse(refusal.status(), request, exchange);
            }
            rules::http2::join_cookies(request.headers_mut());
        }
        self.handle(request, exchange)
    }
}

pin_project! {
    /// The answer to one request, in the making. hyper keeps it in one place for the life of the
    /// connection, so that a request costs no allocation for it.
    pub(crate) struct ResponseFuture<F, B> {
        #[pin]
        work: HandlerState<F, B>,
        // Here until the response carries it away.
        exchange: Option<Exchange>,
        // If the client waits for `100 Continue`.
        expected: Option<Expected>,
    }
}

pin_project! {
    #[project = WorkPinned]
    enum HandlerState<F, B> {
        Handler { #[pin] handler: F },
        // The handler's response: hyper sends `100 Continue` first.
        Held { response: Option<Box<Response<B>>> },
        // Ours, without a body.
        Own { status: StatusCode },
    }
}

impl<F, B> ResponseFuture<F, B> {
    fn own(status: StatusCode, exchange: Exchange) -> Self {
        Self {
            work: HandlerState::Own { status },
            exchange: Some(exchange),
            expected: None,
        }
    }
}

impl<F, B, E> ResponseFuture<F, B>
where
    F: Future<Output = Result<Response<B>, E>>,
    E: Into<Box<dyn Error + Send + Sync>>,
{
    /// What the handler has come to, or what the server says in its place.
    fn poll_work(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<(Parts, Option<B>, ResponseSource)> {
        let mut this = self.project();
        let response = match this.work.as_mut().project() {
            WorkPinned::Own { status } => return Poll::Ready(own(*status)),
            WorkPinned::Held { response } => *response.take().expect(POLLED_AFTER_END),
            WorkPinned::Handler { handler } => {
                let outcome = ready!(catch_panic(|| handler.poll(cx)));
                let exchange = this.exchange.as_ref().expect(POLLED_AFTER_END);
                // What the handler held goes now: a body it left unread decides whether the
                // connection can be kept, and whether the client is to send the body at all.
                this.work.set(HandlerState::Own {
                    status: StatusCode::INTERNAL_SERVER_ERROR,
                });
                let response = match outcome {
                    Ok(Ok(response)) => response,
                    Ok(Err(error)) => return Poll::Ready(own(exchange.failed(&*error.into()))),
                    Err(payload) => return Poll::Ready(own(exchange.panicked(&*payload))),
                };
                if this.expected.take().is_some_and(|body| body.ask(cx)) {
                    // After the head of a response hyper sends no `100 Continue` any more. It
                    // looks at the body before it polls this again.
                    let response = Some(Box::new(response));
                    this.work.set(HandlerState::Held { response });
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                response
            }
        };
        let (head, body) = response.into_parts();
        Poll::Ready((head, Some(body), ResponseSource::Handler))
    }
}

impl<F, B, E> Future for ResponseFuture<F, B>
where
    F: Future<Output = Result<Response<B>, E>>,
    E: Into<Box<dyn Error + Send + Sync>>,
{
    type Output = Result<Response<ResponseBody<B>>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let (mut head, body, source) = ready!(self.as_mut().poll_work(cx));
        let exchange = self.project().exchange.take().expect(POLLED_AFTER_END);
        exchange.complete_head(&mut head, source);
        exchange.count_response(head.status);
        let body = ResponseBody::new(body, exchange);
        Poll::Ready(Ok(Response::from_parts(head, body)))
    }
}

const POLLED_AFTER_END: &str = "an answer is dropped once it is given";
