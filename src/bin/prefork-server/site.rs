//! What the binary serves: a page that says it works, a fixed text, an echo, or files.

use std::time::Duration;

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Method, Request, Response, StatusCode,
    header::{ALLOW, CONTENT_LENGTH, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS},
};
use http_body::Body;
use http_body_util::Full;
use prefork_server::{BodyError, BoxError, ConnectionId};

mod beneath;
mod body;
mod files;
mod path;
mod welcome;

pub(crate) use self::{body::ResponseBody, files::Files, welcome::Welcome};

const PLAIN_TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
const READS: HeaderValue = HeaderValue::from_static("GET, HEAD");
const ALL_BUT_CONNECT: HeaderValue =
    HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS, TRACE");
const NOSNIFF: HeaderValue = HeaderValue::from_static("nosniff");

/// The content that a worker serves, and how long it waits before each response.
#[derive(Debug)]
pub(crate) struct Site {
    content: Content,
    delay: Duration,
}

/// What is served.
#[derive(Debug)]
pub(crate) enum Content {
    Immediate(Immediate),
    /// The files of a directory.
    Files(Files),
}

/// Content that needs no wait.
#[derive(Debug)]
pub(crate) enum Immediate {
    /// A page that says it works, at `/` only.
    Welcome(Welcome),
    /// Every request gets 200 with this text, whatever its method and path.
    Respond(Bytes),
    /// Every request gets 200 with its own body, as it arrives.
    Echo,
}

impl From<Immediate> for Content {
    fn from(content: Immediate) -> Self {
        Self::Immediate(content)
    }
}

impl From<Files> for Content {
    fn from(content: Files) -> Self {
        Self::Files(content)
    }
}

impl Site {
    /// A site that answers at once; see [`Site::delayed_by`].
    pub(crate) fn new(content: impl Into<Content>) -> Self {
        Self {
            content: content.into(),
            delay: Duration::ZERO,
        }
    }

    /// Waits this long before each response, as for a backend: the event loop serves other requests
    /// meanwhile. Default: zero.
    pub(crate) fn delayed_by(self, delay: Duration) -> Self {
        Self { delay, ..self }
    }

    /// The content, if it needs no wait.
    pub(crate) fn immediate(&self) -> Option<&Immediate> {
        match &self.content {
            Content::Immediate(content) if self.delay.is_zero() => Some(content),
            _ => None,
        }
    }

    /// Whether a response has the body of its request.
    pub(crate) fn echoes(&self) -> bool {
        matches!(self.content, Content::Immediate(Immediate::Echo))
    }

    /// The response to one request. An error is a response too, with its status; only the body may
    /// fail later, while it is sent.
    ///
    /// The request is boxed: a future keeps a copy of each argument for every call that it passes
    /// it to, and an HTTP/2 client may have 128 requests waiting.
    pub(crate) async fn respond<B>(
        &self,
        request: Box<Request<B>>,
        connection: ConnectionId,
    ) -> Response<ResponseBody<B>>
    where
        B: Body<Data = Bytes> + Unpin + 'static,
        B::Error: Into<BoxError>,
    {
        if !self.delay.is_zero() {
            tokio::time::sleep(self.delay).await;
        }
        match &self.content {
            Content::Immediate(content) => content.respond(*request),
            Content::Files(_) if !is_read(request.method()) => method_not_allowed(READS),
            Content::Files(files) => files.respond(request.into_parts().0, connection).await,
        }
    }
}

impl Immediate {
    /// As [`Site::respond`].
    pub(crate) fn respond<B>(&self, request: Request<B>) -> Response<ResponseBody<B>> {
        match self {
            // A status 2xx would open a tunnel (RFC 9110 9.3.6).
            Self::Respond(_) | Self::Echo if *request.method() == Method::CONNECT => {
                method_not_allowed(ALL_BUT_CONNECT)
            }
            Self::Respond(text) => respond(text, request),
            Self::Echo => echo(request),
            Self::Welcome(_) if !is_read(request.method()) => method_not_allowed(READS),
            Self::Welcome(welcome) => welcome.respond(&request),
        }
    }
}

/// What a load test measures. The response takes over the header map of the request, so that it
/// does not allocate in the steady state.
fn respond<B>(text: &Bytes, request: Request<B>) -> Response<ResponseBody<B>> {
    let (head, _unread) = request.into_parts();
    let mut headers = head.headers;
    headers.clear();
    headers.insert(CONTENT_TYPE, PLAIN_TEXT);
    let mut response = Response::new(full(text.clone(), &head.method, &mut headers));
    *response.headers_mut() = headers;
    response
}

/// The response to a request whose body cannot be read.
pub(crate) fn unreadable<B>(error: &BodyError) -> Response<ResponseBody<B>> {
    let status = match error {
        BodyError::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
        BodyError::TimedOut => StatusCode::REQUEST_TIMEOUT,
        _ => StatusCode::BAD_REQUEST,
    };
    plain(status, &Method::POST)
}

fn echo<B>(request: Request<B>) -> Response<ResponseBody<B>> {
    let (head, body) = request.into_parts();
    let body = match head.method {
        Method::HEAD => ResponseBody::empty(),
        _ => ResponseBody::Echo(body),
    };
    let mut response = Response::new(body);
    if let Some(content_type) = head.headers.get(CONTENT_TYPE) {
        response
            .headers_mut()
            .insert(CONTENT_TYPE, content_type.clone());
    }
    // The client chose the body: a browser must not interpret it as a page.
    response
        .headers_mut()
        .insert(X_CONTENT_TYPE_OPTIONS, NOSNIFF);
    response
}

fn is_read(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
}

/// `allowed` are the methods that the resource accepts (RFC 9110 15.5.6).
fn method_not_allowed<B>(allowed: HeaderValue) -> Response<ResponseBody<B>> {
    let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, &Method::GET);
    response.headers_mut().insert(ALLOW, allowed);
    response
}

/// A status, and its name as the text.
pub(crate) fn plain<B>(status: StatusCode, method: &Method) -> Response<ResponseBody<B>> {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, PLAIN_TEXT);
    headers.insert(X_CONTENT_TYPE_OPTIONS, NOSNIFF);
    let reason = status.canonical_reason().unwrap_or_default();
    let text = Bytes::from_static(reason.as_bytes());
    let mut response = Response::new(full(text, method, &mut headers));
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

/// The body; in a response to HEAD its length alone (RFC 9110 9.3.2), so that no HTTP version has
/// to remove the body.
fn full<B>(bytes: Bytes, method: &Method, headers: &mut HeaderMap) -> ResponseBody<B> {
    if method == Method::HEAD {
        headers.insert(CONTENT_LENGTH, HeaderValue::from(bytes.len()));
        return ResponseBody::empty();
    }
    ResponseBody::Full(Full::new(bytes))
}

#[cfg(test)]
mod tests;
