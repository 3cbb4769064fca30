//! One request and its response: counts them, times them, and completes the response's head.

use std::any::Any;
use std::error::Error;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use http::header::{CONNECTION, CONTENT_LENGTH, SERVER, TRANSFER_ENCODING};
use http::response::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Version};
use http_body::Body;

use crate::error::{BoxError, said_by};
use crate::http::exchange::length::{self, WrongLength};
use crate::http::exchange::request_line::RequestLine;
#[cfg(feature = "http2")]
use crate::http::exchange::unread::KeptBody;
use crate::http::registry::list::Registry;
use crate::http::registry::request_ids::REQUEST_ID;
use crate::http::registry::state::{BodyFailure, ConnState, Stage};
use crate::stats::Timing;

/// Why a response with 1xx is not sent.
pub(crate) const NOT_FINAL: &str =
    "no response is final with 1xx, but with 101 if the client has offered to switch protocols";

const BODY_OVER_LIMIT: &str = "request refused: its body is over max_body_size";

/// Which side made a response.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResponseSource {
    Handler,
    Server,
}

/// One request and its response. An exchange ends when it is dropped, also if the client closes the
/// connection.
///
/// Each request that hyper serves has an exchange of its own: first in the response future, then in
/// the response's body. Plain requests come one after the other and share one exchange, which
/// begins again with each.
pub(crate) struct Exchange {
    registry: Rc<Registry>,
    state: Arc<ConnState>,
    /// `None` while no request is under way.
    timing: Option<Timing>,
    /// The request's version.
    version: Version,
    asks: Asks,
    /// What the log says of the request if it fails or is slow.
    pub(crate) line: RequestLine,
    /// `None` without the options that need it: most servers have none of them.
    noted: Option<Box<Noted>>,
    /// The rest of the body of a request in HTTP/2.
    #[cfg(feature = "http2")]
    pub(crate) kept: Option<KeptBody>,
}

/// What a request asks for beside a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asks {
    Nothing,
    /// The client offers to switch protocols: 101 accepts that.
    Upgrade,
    /// A CONNECT: any 2xx response to it opens a tunnel.
    Tunnel,
}

/// What is kept of a request for options that few servers use.
struct Noted {
    /// `None` if requests have no ids.
    id: Option<HeaderValue>,
    /// When the request began, until there is a response, if slow requests are logged.
    waits_since: Option<Instant>,
}

impl Exchange {
    /// An exchange that has not begun.
    pub(crate) fn new(registry: &Rc<Registry>, state: &Arc<ConnState>) -> Self {
        Self {
            registry: Rc::clone(registry),
            state: Arc::clone(state),
            timing: None,
            version: Version::HTTP_11,
            asks: Asks::Nothing,
            line: RequestLine::default(),
            noted: None,
            #[cfg(feature = "http2")]
            kept: None,
        }
    }

    /// Begins the exchange: a request has come.
    #[inline]
    pub(crate) fn begin(&mut self, version: Version, asks: Asks) {
        self.state.begin_request();
        self.timing = Some(self.registry.request_begins(&self.state));
        self.version = version;
        self.asks = asks;
    }

    pub(crate) fn registry(&self) -> &Registry {
        &self.registry
    }

    pub(crate) fn is_under_way(&self) -> bool {
        self.timing.is_some()
    }

    /// Ends the exchange: the last byte of the response is handed on, or the client is gone.
    #[inline]
    pub(crate) fn end(&mut self) {
        if let Some(timing) = self.timing.take() {
            if self.noted.is_some() {
                self.log_if_slow(None);
            }
            self.state.enter(Stage::Idle);
            self.registry.counters.request_ends(timing);
        }
    }

    /// Prepares for the options that few servers use.
    #[inline]
    pub(crate) fn note_request<B>(&mut self, request: &mut Request<B>) {
        if self.registry.notes_requests {
            self.note(request);
        }
    }

    #[cold]
    fn note<B>(&mut self, request: &mut Request<B>) {
        let ids = self.registry.request_ids.as_ref();
        let is_timed = self.registry.http.slow_request.is_some();
        self.noted = Some(Box::new(Noted {
            id: ids.map(|ids| ids.of(request.headers_mut())),
            waits_since: is_timed.then(Instant::now),
        }));
        self.line = RequestLine::of(request);
    }

    /// Adds the id of the request to the head of its response.
    #[cold]
    fn add_request_id(&self, head: &mut Parts) {
        if let Some(id) = self.request_id_value()
            && !head.headers.contains_key(REQUEST_ID)
        {
            head.headers.insert(REQUEST_ID, id.clone());
        }
    }

    /// There is a response, or the client has left before it.
    #[cold]
    fn log_if_slow(&mut self, status: Option<StatusCode>) {
        let since = self
            .noted
            .as_mut()
            .and_then(|noted| noted.waits_since.take());
        let took = since.map(|since| since.elapsed());
        if let (Some(took), Some(limit)) = (took, self.registry.http.slow_request)
            && took >= limit
        {
            let RequestLine { method, target } = &self.line;
            let (status, request_id) = (status.map(|it| it.as_u16()), self.request_id());
            tracing::warn!(?took, status, %method, uri = %target, request_id, "slow request");
        }
    }

    /// The id of the request, for the log.
    fn request_id(&self) -> Option<&str> {
        self.request_id_value()?.to_str().ok()
    }

    /// The same, as a header's value.
    pub(crate) fn request_id_value(&self) -> Option<&HeaderValue> {
        self.noted.as_ref()?.id.as_ref()
    }

    /// HTTP/1.0 has no chunks: a body without a length ends with the connection.
    pub(crate) fn end_after_unsized<B: Body>(&self, head: &mut Parts, body: Option<&B>) {
        if self.version == Version::HTTP_10
            && body.is_some_and(is_unsized)
            && !head.headers.contains_key(CONTENT_LENGTH)
        {
            let close = HeaderValue::from_static("close");
            head.headers.insert(CONNECTION, close);
        }
    }

    /// Makes the `Content-Length` and the body of a response fit, and returns the body to send.
    /// Fails with the status to send if the field is wrong.
    ///
    /// A response to HEAD, or with 304, has no content, and its field names the length of another
    /// response (RFC 9110 8.6). hyper sends such a body in HTTP/2. A response with 204, or after
    /// which another protocol begins, has no content and no field for its length (RFC 9110 8.6). A
    /// response with a transfer coding has none either (RFC 9112 6.2): hyper would send nothing.
    pub(crate) fn fit<B: Body>(
        &self,
        head: &mut Parts,
        body: Option<B>,
    ) -> Result<Option<B>, StatusCode> {
        if head.status == StatusCode::NO_CONTENT || self.switches(head.status) {
            head.headers.remove(CONTENT_LENGTH);
            head.headers.remove(TRANSFER_ENCODING);
            return Ok(None);
        }
        if head.headers.contains_key(TRANSFER_ENCODING) {
            head.headers.remove(CONTENT_LENGTH);
        }
        let is_unchanged = head.status == StatusCode::NOT_MODIFIED;
        let has_content = self.line.method != Method::HEAD && !is_unchanged;
        let length = body
            .as_ref()
            .map_or(Some(0), |body| body.size_hint().exact());
        // In HTTP/1 hyper replaces the field if there is no body.
        let is_replaced = self.version < Version::HTTP_2
            && has_content
            && body.as_ref().is_none_or(B::is_end_stream);
        if !is_replaced {
            let checked = length::check(&head.headers, length.filter(|_| has_content));
            checked.map_err(|wrong| {
                self.log_wrong_length(wrong);
                StatusCode::INTERNAL_SERVER_ERROR
            })?;
        }
        if has_content || (length.is_none() && self.version < Version::HTTP_2) {
            return Ok(body);
        }
        // An empty body may stand for one that was left out. That of a 304 is not what a response
        // with 200 would have.
        if let (false, Some(length @ 1..)) = (is_unchanged, length) {
            let length = || HeaderValue::from(length);
            head.headers.entry(CONTENT_LENGTH).or_insert_with(length);
        }
        Ok(None)
    }

    /// Adds the server's own fields to the head of a response.
    pub(crate) fn complete_head(&mut self, head: &mut Parts, source: ResponseSource) {
        self.state.enter(Stage::Responding);
        if head.version != Version::HTTP_10 {
            // It may be that of another server's response. hyper panics if it is 0.9 or 3.
            head.version = Version::HTTP_11;
        }
        if self.noted.is_some() {
            self.add_request_id(head);
        }
        if head.status != StatusCode::OK {
            self.name_failed_body(head, source);
        }
        if let Some(server) = &self.registry.http.server_header
            && !head.headers.contains_key(SERVER)
        {
            head.headers.insert(SERVER, server.clone());
        }
        if self.switches(head.status) {
            // The handler decides when the next bytes follow, so the head must not wait for them.
            self.state.hold_nothing();
        } else if self.is_last(source) {
            self.state.end_after_response();
            let close = HeaderValue::from_static("close");
            head.headers.insert(CONNECTION, close);
        }
        if self.version == Version::HTTP_10 && has_close(&head.headers) {
            // If the client has asked for `keep-alive`, hyper adds it to an HTTP/1.1 response,
            // beside `close`. Old clients look for `keep-alive` alone.
            head.version = Version::HTTP_10;
        }
    }

    /// A framework that responds with 400 or 500 knows that the body could not be read, and not
    /// why. A handler that returns an error says no more, see [`failed`](Self::failed).
    #[cold]
    fn name_failed_body(&self, head: &mut Parts, source: ResponseSource) {
        let statuses = [StatusCode::BAD_REQUEST, StatusCode::INTERNAL_SERVER_ERROR];
        if statuses.contains(&head.status)
            && source == ResponseSource::Handler
            && let Some(status) = self.note_failed_body()
        {
            head.status = status;
        }
    }

    /// A response with this status will be sent. Called once for each request.
    #[inline]
    pub(crate) fn count_response(&mut self, status: StatusCode) {
        if self.noted.is_some() {
            self.log_if_slow(Some(status));
        }
        self.registry.counters.count_response(status);
    }

    /// Whether the connection ends with this response.
    fn is_last(&self, source: ResponseSource) -> bool {
        let ends = self.registry.is_draining(&self.state)
            || self.state.ends_after_response()
            || self.state.body_failure() != BodyFailure::None
            || (source == ResponseSource::Server && self.state.is_body_unread());
        // An HTTP/2 stream ends by itself; GOAWAY announces the end of the connection.
        ends && !self.state.is_of_stream()
    }

    /// Whether a part of the request's body is left in the connection, where the next request
    /// follows it.
    pub(crate) fn leaves_body(&self) -> bool {
        self.state.is_body_unread() && !self.state.is_of_stream()
    }

    /// Whether another protocol begins after a response with this status.
    fn switches(&self, status: StatusCode) -> bool {
        match self.asks {
            Asks::Nothing => false,
            Asks::Upgrade => status == StatusCode::SWITCHING_PROTOCOLS,
            Asks::Tunnel => status.is_success(),
        }
    }

    /// Whether the handler may respond with this status. If not, the handler has failed, with the
    /// error [`NOT_FINAL`].
    #[inline]
    pub(crate) fn permits(&self, status: StatusCode) -> bool {
        match status {
            StatusCode::SWITCHING_PROTOCOLS => self.asks == Asks::Upgrade,
            status => !status.is_informational(),
        }
    }

    /// The status of the response to a request whose handler returned an error.
    pub(crate) fn failed(&self, error: &(dyn Error + Send + Sync + 'static)) -> StatusCode {
        let error = without_wrappers(error);
        let RequestLine { method, target } = &self.line;
        let request_id = self.request_id();
        let Some(status) = self.note_failed_body() else {
            tracing::warn!(error, %method, uri = %target, request_id, "handler failed");
            return StatusCode::INTERNAL_SERVER_ERROR;
        };
        tracing::debug!(error, %status, %method, uri = %target, "request failed by its body");
        status
    }

    /// The status of a request whose body failed, else `None`. Logs it if the limit was the cause.
    fn note_failed_body(&self) -> Option<StatusCode> {
        match self.state.body_failure() {
            BodyFailure::TooLarge => {
                self.body_is_over_limit();
                Some(StatusCode::PAYLOAD_TOO_LARGE)
            }
            BodyFailure::TimedOut => Some(StatusCode::REQUEST_TIMEOUT),
            BodyFailure::Broken => Some(StatusCode::BAD_REQUEST),
            BodyFailure::None => None,
        }
    }

    /// The first one of a worker is logged as info: the program may have a higher limit of its
    /// own, and its author may not know of this one.
    #[cold]
    pub(crate) fn body_is_over_limit(&self) {
        let limit = self.registry.http.max_body_size;
        let RequestLine { method, target } = &self.line;
        let request_id = self.request_id();
        if self.registry.told_of_body_limit.replace(true) {
            tracing::debug!(limit, %method, uri = %target, request_id, "{BODY_OVER_LIMIT}");
        } else {
            tracing::info!(
                limit,
                %method,
                uri = %target,
                request_id,
                "{BODY_OVER_LIMIT}; this worker logs more of them as debug"
            );
        }
    }

    /// The response's body ended with an error. So the connection ends too.
    pub(crate) fn broke_off(&self, error: &(dyn Error + Send + Sync + 'static)) {
        let error = without_wrappers(error);
        let RequestLine { method, target } = &self.line;
        let request_id = self.request_id();
        tracing::warn!(
            error,
            %method,
            uri = %target,
            request_id,
            "response broken off: its body failed"
        );
        self.registry.counters.broken_response();
    }

    /// The response's body is not as long as its head says. So the connection ends, or the stream.
    #[cold]
    pub(crate) fn broke_length(&self, wrong: WrongLength) -> BoxError {
        self.log_wrong_length(wrong);
        self.registry.counters.broken_response();
        "the response's body does not have its length".into()
    }

    fn log_wrong_length(&self, WrongLength { said, body }: WrongLength) {
        let RequestLine { method, target } = &self.line;
        let request_id = self.request_id();
        tracing::error!(
            content_length = said,
            body_length = body,
            %method,
            uri = %target,
            request_id,
            "the response's Content-Length is not the length of its body"
        );
    }

    /// Whether the request came on an HTTP/2 stream.
    pub(crate) fn is_of_stream(&self) -> bool {
        self.state.is_of_stream()
    }

    /// Logs and counts a panic of the handler or of the response's body, and returns the status of
    /// the response. The panic hook has printed the place in the code.
    pub(crate) fn panicked(&self, payload: &(dyn Any + Send)) -> StatusCode {
        let message = said_by(payload);
        let RequestLine { method, target } = &self.line;
        let request_id = self.request_id();
        tracing::error!(panic = message, %method, uri = %target, request_id, "handler panicked");
        self.registry.counters.panic();
        StatusCode::INTERNAL_SERVER_ERROR
    }
}

/// The error within those that say the same as their cause, as axum's do. The log would have the
/// cause once for each.
fn without_wrappers<'a>(mut error: &'a (dyn Error + 'static)) -> &'a (dyn Error + 'static) {
    while let Some(cause) = error.source()
        && cause.to_string() == error.to_string()
    {
        error = cause;
    }
    error
}

/// Whether nobody knows the length of the body yet.
pub(crate) fn is_unsized<B: Body>(body: &B) -> bool {
    body.size_hint().exact().is_none()
}

/// A response of the server, without a body.
pub(crate) fn server_response<B>(status: StatusCode) -> (Parts, Option<B>, ResponseSource) {
    let mut response = Response::new(None);
    *response.status_mut() = status;
    let (head, body) = response.into_parts();
    (head, body, ResponseSource::Server)
}

/// Whether `Connection` has the option `close` (RFC 9112 9.6).
fn has_close(headers: &HeaderMap) -> bool {
    let values = headers.get_all(CONNECTION).into_iter();
    values
        .flat_map(|value| value.as_bytes().split(|&byte| byte == b','))
        .any(|option| option.trim_ascii().eq_ignore_ascii_case(b"close"))
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use std::fmt;

    use super::*;

    /// Says what its cause says.
    #[derive(Debug)]
    struct Wrapper(Box<dyn Error>);

    impl fmt::Display for Wrapper {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            self.0.fmt(f)
        }
    }

    impl Error for Wrapper {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(&*self.0)
        }
    }

    #[test]
    fn an_error_that_only_repeats_its_cause_is_not_logged() {
        let error = Wrapper(Wrapper(Wrapper("no tea".into()).into()).into());
        let within = without_wrappers(&error);
        assert_eq!(within.to_string(), "no tea");
        assert!(within.source().is_none());
    }
}
