//! What the binary serves: a page that says it works, a fixed text, an echo, or files.

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Method, Request, Response, StatusCode,
    header::{ALLOW, CONTENT_LENGTH, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS},
};
use http_body_util::Full;
use prefork_server::{BodyError, reply_with};

mod body;
mod welcome;

pub(crate) use self::{body::ResponseBody, welcome::Welcome};

const PLAIN_TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
const READS: HeaderValue = HeaderValue::from_static("GET, HEAD");
const ALL_BUT_CONNECT: HeaderValue =
    HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS, TRACE");
const NOSNIFF: HeaderValue = HeaderValue::from_static("nosniff");

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

impl Immediate {
    /// The response to one request. An error is a response too, with its status; only the body may
    /// fail later, while it is sent. An echo's body is made of the request's.
    pub(crate) fn respond<A, B: From<A>>(&self, request: Request<A>) -> Response<ResponseBody<B>> {
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

/// What a load test measures. In the steady state it does not allocate.
fn respond<A, B>(text: &Bytes, request: Request<A>) -> Response<ResponseBody<B>> {
    let (head, _unread) = request.into_parts();
    let method = head.method.clone();
    let mut response = reply_with(head, ResponseBody::empty());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, PLAIN_TEXT);
    *response.body_mut() = full(text.clone(), &method, headers);
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

fn echo<A, B: From<A>>(request: Request<A>) -> Response<ResponseBody<B>> {
    let (head, body) = request.into_parts();
    let body = match head.method {
        Method::HEAD => ResponseBody::empty(),
        _ => ResponseBody::Echo(body.into()),
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
