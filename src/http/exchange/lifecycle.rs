//! One request and its response: what is counted and timed of it, and what is put on the answer.

use std::any::Any;
use std::error::Error;
use std::rc::Rc;
use std::sync::Arc;

use http::header::{CONNECTION, SERVER};
use http::response::Parts;
use http::{HeaderMap, HeaderValue, Response, StatusCode, Version};

use crate::http::registry::list::Registry;
use crate::http::registry::state::{BodyFailure, ConnState, Stage};
use crate::stats::Timing;

/// Who made an answer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResponseSource {
    Handler,
    Server,
}

/// See the module's head. It ends when it is dropped: also if the client leaves.
///
/// hyper gets one for each request: it lives in the answer, then in the response's body. Plain
/// requests, which come one after the other, have one that begins anew.
pub(crate) struct Exchange {
    registry: Rc<Registry>,
    state: Arc<ConnState>,
    /// Of the request that is under way.
    timing: Option<Timing>,
    /// What the client speaks.
    version: Version,
    /// Whether the request asked for a tunnel (CONNECT), which any 2xx grants.
    tunnel: bool,
}

impl Exchange {
    /// One that has not begun.
    pub(crate) fn new(registry: &Rc<Registry>, state: &Arc<ConnState>) -> Self {
        Self {
            registry: Rc::clone(registry),
            state: Arc::clone(state),
            timing: None,
            version: Version::HTTP_11,
            tunnel: false,
        }
    }

    /// A request has come.
    #[inline]
    pub(crate) fn begin(&mut self, version: Version, tunnel: bool) {
        self.state.begin_request();
        self.timing = Some(self.registry.request_begins(&self.state));
        self.version = version;
        self.tunnel = tunnel;
    }

    pub(crate) fn is_under_way(&self) -> bool {
        self.timing.is_some()
    }

    /// The last byte of the answer is handed on, or there is nobody to take it.
    #[inline]
    pub(crate) fn end(&mut self) {
        if let Some(timing) = self.timing.take() {
            self.state.enter(Stage::Idle);
            self.registry.counters.request_ends(timing);
        }
    }

    /// Puts on the head of a response what is ours to add.
    pub(crate) fn complete_head(&self, head: &mut Parts, source: ResponseSource) {
        self.state.enter(Stage::Responding);
        if let Some(server) = &self.registry.http.server_header
            && !head.headers.contains_key(SERVER)
        {
            head.headers.insert(SERVER, server.clone());
        }
        let is_upgrade = head.status == StatusCode::SWITCHING_PROTOCOLS
            || (self.tunnel && head.status.is_success());
        if is_upgrade {
            // The bytes that follow are not ours to schedule, so the head must not wait for them.
            self.state.hold_nothing();
        } else if self.is_last(source) {
            let close = HeaderValue::from_static("close");
            head.headers.insert(CONNECTION, close);
        }
        if self.version == Version::HTTP_10 && says_close(&head.headers) {
            // An answer of HTTP/1.1 would get a `keep-alive` beside it from hyper, if the client
            // has asked for that, and old clients look for nothing else.
            head.version = Version::HTTP_10;
        }
    }

    /// The client is to be told this. Once for each request.
    #[inline]
    pub(crate) fn count_response(&self, status: StatusCode) {
        self.registry.counters.answer(status);
    }

    /// Whether the connection ends with this response.
    fn is_last(&self, source: ResponseSource) -> bool {
        // A stream of HTTP/2 ends by itself, and the connection's end is for GOAWAY to tell.
        if self.state.is_of_stream() {
            return false;
        }
        self.registry.is_draining(&self.state)
            || self.state.ends_after_response()
            || self.state.body_failure() != BodyFailure::None
            || (source == ResponseSource::Server && self.state.is_body_unread())
    }

    /// The handler returned an error: the status it means.
    pub(crate) fn failed(&self, error: &(dyn Error + Send + Sync + 'static)) -> StatusCode {
        let status = match self.state.body_failure() {
            BodyFailure::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            BodyFailure::TimedOut => StatusCode::REQUEST_TIMEOUT,
            BodyFailure::Broken => StatusCode::BAD_REQUEST,
            BodyFailure::None => {
                tracing::warn!(error, "handler failed");
                return StatusCode::INTERNAL_SERVER_ERROR;
            }
        };
        tracing::debug!(error, %status, "request failed by its body");
        status
    }

    /// The response's body ended with an error, so its connection does too.
    pub(crate) fn broke_off(&self, error: &(dyn Error + Send + Sync + 'static)) {
        tracing::warn!(error, "response broken off: its body failed");
        self.registry.counters.broken_response();
    }

    /// The handler or the response's body panicked. The panic hook has printed where.
    pub(crate) fn panicked(&self, payload: &(dyn Any + Send)) -> StatusCode {
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

/// An answer of ours, without a body.
pub(crate) fn own<B>(status: StatusCode) -> (Parts, Option<B>, ResponseSource) {
    let mut response = Response::new(None);
    *response.status_mut() = status;
    let (head, body) = response.into_parts();
    (head, body, ResponseSource::Server)
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
        self.end();
    }
}
