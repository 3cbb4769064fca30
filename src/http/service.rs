//! The service that hyper calls for each request: the user's, behind the limits, with its panics
//! and errors turned into answers.

use std::convert::Infallible;
use std::error::Error;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::{Method, Response, StatusCode, Version};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::service::Service;
use hyper::upgrade::OnUpgrade;
use pin_project_lite::pin_project;

use super::activity::Activity;
use super::body::{Body, ResponseBody, catch_panic};
use super::exchange::{Author, Exchange, own};
use super::registry::Registry;
use super::{Request, rules};

/// See the module's head.
pub(super) struct Guarded<S> {
    pub(super) inner: Rc<S>,
    pub(super) registry: Rc<Registry>,
    pub(super) activity: Arc<Activity>,
}

impl<S> Guarded<S> {
    /// The body of a request that has none.
    pub(super) fn empty_body(&self) -> Body {
        Body::empty(Arc::clone(&self.activity))
    }

    fn handle<B>(&self, request: Request, exchange: Exchange) -> Answer<S::Future>
    where
        S: Service<Request, Response = Response<B>>,
    {
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
        let tunnel = request.method() == Method::CONNECT;
        let mut exchange = Exchange::new(&self.registry, &self.activity);
        exchange.begin(request.version(), tunnel);
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
        let limit = self.registry.http.max_body_size.unwrap_or(u64::MAX);
        // Of a chunked body nothing is known yet; its bytes are counted as they come.
        let announced = request.body().size_hint().lower();
        let request = request.map(|body| Body::new(body, Arc::clone(&self.activity), limit));
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
    /// The answer to one request, in the making. hyper keeps it in one place for the life of the
    /// connection, so that a request costs no allocation for it.
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
        let (mut head, body, author) = match this.work.as_mut().project() {
            WorkPinned::Own { status } => own(*status),
            WorkPinned::Handler { handler } => {
                let outcome = ready!(catch_panic(|| handler.poll(cx)));
                let exchange = this.exchange.as_ref().expect(POLLED_AFTER_END);
                // What the handler held goes now: a body it left unread decides, below, whether
                // the connection can be kept.
                let answer = match outcome {
                    Ok(Ok(response)) => {
                        let (head, body) = response.into_parts();
                        (head, Some(body), Author::Handler)
                    }
                    Ok(Err(error)) => own(exchange.failed(&*error.into())),
                    Err(payload) => own(exchange.panicked(&*payload)),
                };
                this.work.set(Work::Own {
                    status: StatusCode::INTERNAL_SERVER_ERROR,
                });
                answer
            }
        };
        let exchange = this.exchange.take().expect(POLLED_AFTER_END);
        exchange.sign(&mut head, author);
        exchange.count_answer(head.status);
        let body = ResponseBody::new(body, exchange);
        Poll::Ready(Ok(Response::from_parts(head, body)))
    }
}

const POLLED_AFTER_END: &str = "an answer is dropped once it is given";
