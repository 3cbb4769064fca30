//! The rules of RFC 9112 and RFC 9110 on a request's head that hyper does not check.
//!
//! hyper finds the end of a head. It responds with 400 to an invalid name, value or line, to a
//! `Content-Length` that is not one number, and to a `Transfer-Encoding` that does not end in
//! `chunked` or comes with HTTP/1.0. hyper accepts some heads that two servers in a row could
//! interpret in two ways. The server refuses those heads here, before a handler gets the request.
//! The end of the body of such a request is not certain either, so the connection ends with the
//! refusal.

mod authority;
#[cfg(test)]
mod fuzz;
#[cfg(feature = "http2")]
pub(crate) mod http2;
#[cfg(test)]
mod tests;

use std::fmt;

use http::header::{CONNECTION, CONTENT_LENGTH, EXPECT, HOST, TRANSFER_ENCODING, UPGRADE};
use http::uri::{self, Scheme};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri, Version};

use crate::http::exchange::rules::authority::Authority;
use crate::http::options::Http;

/// Why the server refuses a request before the handler gets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The target is longer than [`Http::max_target_size`].
    LongTarget,
    /// The head is larger than [`Http::max_header_size`].
    LargeHead,
    /// The target has none of the four forms, or not the form for this method (RFC 9112 3.2).
    Target,
    /// HTTP/1.1 without `Host`, or any version with two (RFC 9112 3.2).
    HostCount,
    /// HTTP/2 without `:authority` and `Host`, or the two differ (RFC 9113 8.3.1).
    #[cfg(feature = "http2")]
    Authority,
    /// In HTTP/2, a value that begins or ends with white space (RFC 9113 8.2.1).
    #[cfg(feature = "http2")]
    Field,
    /// `Host` is neither empty nor `uri-host [ ":" port ]` (RFC 9110 7.2).
    Host,
    /// `chunked` applied twice, or an invalid coding (RFC 9112 6.1, 7).
    Framing,
    /// A transfer coding besides `chunked` (RFC 9112 6.1).
    Coding,
    /// CONNECT with a body, in the place of the tunnel's first bytes (RFC 9110 9.3.6).
    TunnelBody,
    /// An expectation other than `100-continue` (RFC 9110 10.1.1).
    Expectation,
}

impl Refusal {
    pub(crate) fn status(self) -> StatusCode {
        match self {
            Self::LongTarget => StatusCode::URI_TOO_LONG,
            Self::LargeHead => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Self::Coding => StatusCode::NOT_IMPLEMENTED,
            Self::Expectation => StatusCode::EXPECTATION_FAILED,
            Self::Target | Self::HostCount | Self::Host | Self::Framing | Self::TunnelBody => {
                StatusCode::BAD_REQUEST
            }
            #[cfg(feature = "http2")]
            Self::Authority | Self::Field => StatusCode::BAD_REQUEST,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::LongTarget => "its target is too long",
            Self::LargeHead => "its head is too large",
            Self::Target => "its target is not valid for its method",
            Self::HostCount => "it has no Host, or several",
            #[cfg(feature = "http2")]
            Self::Authority => "it names no host, or several",
            #[cfg(feature = "http2")]
            Self::Field => "the value of a field begins or ends with white space",
            Self::Host => "its Host is not valid",
            Self::Framing => "its transfer codings contradict each other",
            Self::Coding => "its transfer coding is not supported",
            Self::TunnelBody => "it is a CONNECT with a body",
            Self::Expectation => "its expectation is not supported",
        })
    }
}

/// Checks the head of a request.
///
/// The size of the head is computed from its parsed fields, as if the client had written each as
/// `name: value`. hyper limits the size in bytes on the wire, by [`raw_head_size`].
pub(crate) fn check<B>(request: &Request<B>, http: &Http) -> Result<(), Refusal> {
    let (method, uri, version) = (request.method(), request.uri(), request.version());
    let target = target_size(uri);
    refuse(target > http.max_target_size, Refusal::LongTarget)?;
    check_target(method, uri)?;

    let mut fields = Fields::default();
    for (name, value) in request.headers() {
        fields.note(name, value);
    }
    let request_line = method.as_str().len() + target + "  HTTP/1.1\r\n".len();
    let head = request_line + fields.size + "\r\n".len();
    refuse(head > http.max_header_size, Refusal::LargeHead)?;
    let lacks_host = fields.hosts == 0 && version == Version::HTTP_11;
    refuse(lacks_host || fields.hosts > 1, Refusal::HostCount)?;
    refuse(fields.bad_host, Refusal::Host)?;
    let is_contradictory = fields.chunked > 1 || fields.bad_coding;
    refuse(is_contradictory, Refusal::Framing)?;
    refuse(fields.other_coding, Refusal::Coding)?;
    let has_body = fields.chunked > 0 || fields.length;
    refuse(has_body && *method == Method::CONNECT, Refusal::TunnelBody)?;
    // HTTP/1.0 has no expectations; an old proxy may have passed on the one of its own client.
    let has_expectations = version != Version::HTTP_10;
    let is_unsupported = fields.other_expectation && has_expectations;
    refuse(is_unsupported, Refusal::Expectation)
}

/// The limit for the size of a head on the wire, in bytes.
///
/// The limit is larger than [`Http::max_header_size`], so that the server can tell a target that
/// alone exceeds that size from a large head: hyper responds with 431 to every head that is larger
/// than this limit, and [`is_target_long`] looks for the reason. The limit is no larger than needed
/// for that, because each client can make the server buffer so many bytes.
pub(crate) fn raw_head_size(http: &Http) -> usize {
    http.max_header_size.saturating_add(http.max_target_size)
}

/// Whether a head is too large because of its target. `head` is the part that was read before the
/// head exceeded the limit.
pub(crate) fn is_target_long(head: &[u8], http: &Http) -> bool {
    let line = head.trim_ascii_start();
    let end = |bytes: &[u8]| bytes.iter().position(u8::is_ascii_whitespace);
    let Some(method) = end(line).filter(|&end| line[end] == b' ') else {
        return false;
    };
    let target = &line[method + 1..];
    end(target).unwrap_or(target.len()) > http.max_target_size
}

/// Sets `Host` to the host in the target, if the target has one: an origin server must use the host
/// in the target (RFC 9112 3.2.2), and handlers look at either.
pub(crate) fn settle_host<B>(request: &mut Request<B>) {
    if let Some(authority) = request.uri().authority() {
        let host = HeaderValue::from_str(authority.as_str());
        let host = host.expect("an authority is visible ASCII");
        request.headers_mut().insert(HOST, host);
    }
}

/// The host that a request names: by `Host`, which [`settle_host`] has set, or by `:authority` of
/// HTTP/2, which agrees with `Host` if there are both.
pub(crate) fn named_host(headers: &HeaderMap, uri: &Uri) -> Option<uri::Authority> {
    let field = headers.get(HOST);
    let field = field.and_then(|host| uri::Authority::try_from(host.as_bytes()).ok());
    field.or_else(|| uri.authority().cloned())
}

/// Whether the server itself reads this field of a request.
#[inline]
pub(crate) fn is_about_the_message(name: &HeaderName) -> bool {
    matches!(
        *name,
        HOST | CONNECTION | CONTENT_LENGTH | TRANSFER_ENCODING | EXPECT | UPGRADE
    )
}

/// Whether this value is valid in `Host`.
#[inline]
pub(crate) fn is_host_and_perhaps_port(value: &[u8]) -> bool {
    Authority::parse(value).is_some()
}

fn refuse(broken: bool, refusal: Refusal) -> Result<(), Refusal> {
    if broken { Err(refusal) } else { Ok(()) }
}

fn target_size(uri: &Uri) -> usize {
    let scheme = uri.scheme_str().map_or(0, |s| s.len() + "://".len());
    let authority = uri.authority().map_or(0, |a| a.as_str().len());
    let path = uri.path_and_query().map_or(0, |p| p.as_str().len());
    scheme + authority + path
}

/// The four forms of RFC 9112 3.2.1 to 3.2.4.
fn check_target(method: &Method, uri: &Uri) -> Result<(), Refusal> {
    let is_tunnel = *method == Method::CONNECT;
    let fits = match (uri.scheme(), uri.authority()) {
        (None, None) if uri.path() == "*" => *method == Method::OPTIONS,
        (None, None) => !is_tunnel,
        (None, Some(authority)) => is_tunnel && is_host_and_port(authority.as_str()),
        (Some(scheme), Some(authority)) => {
            // A URI of these schemes has neither userinfo (RFC 9110 4.2.4) nor an empty host
            // (4.2.1).
            let is_http = *scheme == Scheme::HTTP || *scheme == Scheme::HTTPS;
            !is_tunnel && is_http && is_host(authority.as_str())
        }
        (Some(_), None) => false,
    };
    refuse(!fits, Refusal::Target)
}

fn is_host(authority: &str) -> bool {
    Authority::parse(authority.as_bytes()).is_some_and(|parts| !parts.host.is_empty())
}

/// Whether this is a host with a port. CONNECT needs both, because a tunnel has no default port
/// (RFC 9110 9.3.6).
fn is_host_and_port(authority: &str) -> bool {
    let is_port = |digits: &[u8]| {
        let port = std::str::from_utf8(digits).map(str::parse::<u16>);
        matches!(port, Ok(Ok(1..)))
    };
    Authority::parse(authority.as_bytes())
        .is_some_and(|parts| !parts.host.is_empty() && parts.port.is_some_and(is_port))
}

/// The result of one pass over the fields.
#[derive(Default)]
struct Fields {
    size: usize,
    hosts: u8,
    bad_host: bool,
    chunked: u8,
    other_coding: bool,
    bad_coding: bool,
    length: bool,
    other_expectation: bool,
}

impl Fields {
    #[inline]
    fn note(&mut self, name: &HeaderName, field: &HeaderValue) {
        let value = field.as_bytes();
        self.size += name.as_str().len() + value.len() + ": \r\n".len();
        match *name {
            HOST => {
                self.hosts = self.hosts.saturating_add(1);
                self.bad_host |= !is_host_and_perhaps_port(value);
            }
            TRANSFER_ENCODING => self.note_codings(value),
            // hyper has checked that the value is a number.
            CONTENT_LENGTH => self.length |= value.iter().any(|&digit| digit != b'0'),
            EXPECT => self.other_expectation |= !is_known_expectation(field),
            _ => {}
        }
    }

    fn note_codings(&mut self, list: &[u8]) {
        for coding in list.split(|&byte| byte == b',') {
            let coding = coding.trim_ascii();
            let name = coding.split(|&byte| byte == b';').next();
            let name = name.unwrap_or_default().trim_ascii_end();
            if coding.eq_ignore_ascii_case(b"chunked") {
                self.chunked = self.chunked.saturating_add(1);
            } else if !name.is_empty() && name.iter().copied().all(is_token_char) {
                self.other_coding = true;
            } else {
                self.bad_coding = true;
            }
        }
    }
}

fn is_known_expectation(value: &HeaderValue) -> bool {
    value.is_empty() || value.as_bytes().eq_ignore_ascii_case(b"100-continue")
}

/// RFC 9110 5.6.2.
fn is_token_char(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}
