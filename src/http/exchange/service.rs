//! The service that hyper calls for each request: it checks the limits and the rules, calls the
//! user's service, and turns panics and errors into responses.

use std::convert::Infallible;
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
use crate::http::exchange::lifecycle::{
    Asks, Exchange, NOT_FINAL, ResponseSource, server_response,
};
use crate::http::exchange::message::Request;
use crate::http::exchange::request_line::RequestLine;
use crate::http::exchange::rules;
#[cfg(feature = "http2")]
use crate::http::exchange::unread::KeptBody;
use crate::http::registry::list::Registry;
use crate::http::registry::state::ConnState;

/// A user's service. Every `Service` with these types of request, response and error is a
/// `Handler`.
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

    /// Responds instead of the handler.
    fn refuse<R, F, B>(
        &self,
        status: StatusCode,
        request: http::Request<R>,
        exchange: Exchange,
    ) -> ResponseFuture<F, B> {
        let (head, _unread) = request.into_parts();
        let on_refused = &self.registry.http.on_refused;
        let request_id = exchange.request_id_value();
        on_refused.report(status, self.state.info(), Some(&head), request_id);
        ResponseFuture::of_server(status, exchange)
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
                handler: HandlerState::Handler { handler },
                exchange: Some(exchange),
                expected,
            },
            Err(payload) => {
                exchange.panicked(&*payload);
                ResponseFuture::of_server(StatusCode::INTERNAL_SERVER_ERROR, exchange)
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
        let offers = request.extensions().get::<OnUpgrade>().is_some();
        let asks = match (request.method() == Method::CONNECT, offers) {
            (true, _) => Asks::Tunnel,
            (false, true) => Asks::Upgrade,
            (false, false) => Asks::Nothing,
        };
        let mut exchange = Exchange::new(&self.registry, &self.state);
        exchange.begin(request.version(), asks);
        exchange.line = RequestLine::of(&request);
        exchange.note_request(&mut request);
        if offers {
            // When this connection ends, hyper gives the stream away without a flush, also if the
            // upgrade is refused. A response that the stream holds at that time would be lost.
            self.state.hold_nothing();
        }
        if request.version() < Version::HTTP_2 {
            if let Err(refusal) = rules::check(&request, &self.registry.http) {
                tracing::debug!(%refusal, "request refused");
                // All bytes that follow count as its body, so that the connection ends here.
                self.state.leave_body_unread();
                return self.refuse(refusal.status(), request, exchange);
            }
            rules::settle_host(&mut request);
            if asks == Asks::Tunnel {
                // A client may send the first bytes of another program before it has the response
                // (RFC 9931 8). If there is no tunnel, they must not be taken for a request.
                self.state.end_after_response();
            }
        }
        let limit = self.registry.http.max_body_size.unwrap_or(u64::MAX);
        // The size of a chunked body is not known yet; its bytes are counted as they come.
        let announced = request.body().size_hint().lower();
        #[cfg_attr(
            not(feature = "http2"),
            expect(unused_mut, reason = "HTTP/1 has one Cookie")
        )]
        let mut request = request.map(|body| Body::new(body, Arc::clone(&self.state), limit));
        #[cfg(feature = "http2")]
        if self.state.is_of_stream() {
            exchange.kept = request.body().keep();
        }
        if announced > limit {
            exchange.body_is_over_limit();
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
    /// The future of the response to one request. hyper has one place for it per connection, so
    /// that a request costs no allocation for it.
    pub(crate) struct ResponseFuture<F, B> {
        #[pin]
        handler: HandlerState<F, B>,
        // `None` once the response has it.
        exchange: Option<Exchange>,
        // `Some` if the client waits for `100 Continue`.
        expected: Option<Expected>,
    }
}

pin_project! {
    #[project = HandlerPinned]
    enum HandlerState<F, B> {
        Handler { #[pin] handler: F },
        // The handler's response waits until hyper has been polled once more.
        Waiting { response: Option<Box<Response<B>>> },
        // The server's response, without a body.
        Server { status: StatusCode },
    }
}

impl<F, B> ResponseFuture<F, B> {
    fn of_server(status: StatusCode, exchange: Exchange) -> Self {
        Self {
            handler: HandlerState::Server { status },
            exchange: Some(exchange),
            expected: None,
        }
    }
}

#[cfg(feature = "http2")]
impl<F, B> ResponseFuture<F, B> {
    /// `None` once the response has it.
    pub(crate) fn kept(self: Pin<&mut Self>) -> Option<&KeptBody> {
        self.project().exchange.as_ref()?.kept.as_ref()
    }
}

impl<F, B, E> ResponseFuture<F, B>
where
    F: Future<Output = Result<Response<B>, E>>,
    E: Into<BoxError>,
{
    /// The response of the handler, or of the server instead.
    fn poll_handler(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<(Parts, Option<B>, ResponseSource)> {
        let mut this = self.project();
        let response = match this.handler.as_mut().project() {
            HandlerPinned::Server { status } => return Poll::Ready(server_response(*status)),
            HandlerPinned::Waiting { response } => *response.take().expect(POLLED_AFTER_END),
            HandlerPinned::Handler { handler } => {
                let outcome = ready!(catch_panic(|| handler.poll(cx)));
                let exchange = this.exchange.as_ref().expect(POLLED_AFTER_END);
                // Drops the handler, and with it a body that it did not read. The drop decides
                // whether the connection stays open, and whether the client is to send the body.
                this.handler.set(HandlerState::Server {
                    status: StatusCode::INTERNAL_SERVER_ERROR,
                });
                let response = match outcome {
                    Ok(Ok(response)) if exchange.permits(response.status()) => response,
                    Ok(failed) => {
                        let error = failed.map_or_else(Into::into, |_| NOT_FINAL.into());
                        return Poll::Ready(server_response(exchange.failed(&*error)));
                    }
                    Err(payload) => {
                        return Poll::Ready(server_response(exchange.panicked(&*payload)));
                    }
                };
                let is_expected = this.expected.take().is_some_and(|body| body.poll_first(cx));
                if is_expected || exchange.leaves_body() {
                    // Before hyper polls this future again, it does what it does not do after the
                    // head of a response. It sends `100 Continue` to a client that waits for it.
                    // It discards a body that the handler has dropped; if too much is left, the
                    // head says that the connection ends.
                    let response = Some(Box::new(response));
                    this.handler.set(HandlerState::Waiting { response });
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
    B: http_body::Body,
    E: Into<BoxError>,
{
    type Output = Result<Response<ResponseBody<B>>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let (mut head, body, source) = ready!(self.as_mut().poll_handler(cx));
        let mut exchange = self.project().exchange.take().expect(POLLED_AFTER_END);
        let fitted = exchange.fit(&mut head, body);
        let fitted = fitted.map(|body| (head, body, source));
        let (mut head, body, source) = fitted.unwrap_or_else(server_response);
        exchange.end_after_unsized(&mut head, body.as_ref());
        exchange.complete_head(&mut head, source);
        exchange.count_response(head.status);
        let body = ResponseBody::new(body, &head.headers, exchange);
        Poll::Ready(Ok(Response::from_parts(head, body)))
    }
}

const POLLED_AFTER_END: &str = "the future is not polled after its response";
