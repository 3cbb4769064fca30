//! The rules on a request's head in HTTP/2 that hyper does not check.

use http::header::{COOKIE, EXPECT, HOST};
use http::{HeaderMap, HeaderValue, Method, Request};

use crate::http::exchange::rules::{
    Authority, Refusal, check_target, is_known_expectation, refuse, target_size,
};
use crate::http::options::Http;

/// The limit for the number of fields, the same as that of hyper's HTTP/1. A field of one byte uses
/// a hundred bytes of memory, so the limit for the size of a head does not limit the memory that a
/// request uses while its handler is slow.
const MAX_FIELDS: usize = 100;

/// Checks the head of an HTTP/2 request, as [`check`](super::check) does for HTTP/1.
///
/// The framing of HTTP/2 is unambiguous, and h2 limits the size of a head while it decodes the
/// head. A fragment in `:path` (RFC 9113 8.3.1) is not seen here: h2 parses the path as a URI and
/// leaves the fragment out, as hyper does in HTTP/1.
pub(crate) fn check_http2<B>(request: &Request<B>, http: &Http) -> Result<(), Refusal> {
    refuse(fields(request.headers()) > MAX_FIELDS, Refusal::LargeHead)?;
    let (method, uri) = (request.method(), request.uri());
    refuse(target_size(uri) > http.max_target_size, Refusal::LongTarget)?;
    let fits = match uri.path() {
        "*" => *method == Method::OPTIONS,
        path => path.starts_with('/') || *method == Method::CONNECT,
    };
    refuse(!fits, Refusal::Target)?;
    check_target(method, uri)?;
    let mut hosts = request.headers().get_all(HOST).iter();
    let is_host = |host: &HeaderValue| Authority::parse(host.as_bytes()).is_some();
    refuse(!hosts.all(is_host), Refusal::Host)?;
    refuse(!has_one_authority(request), Refusal::Authority)?;
    refuse(request.headers().values().any(is_padded), Refusal::Field)?;
    let mut expectations = request.headers().get_all(EXPECT).iter();
    refuse(
        !expectations.all(is_known_expectation),
        Refusal::Expectation,
    )
}

/// Whether a value begins or ends with white space, which is invalid (RFC 9113 8.2.1).
fn is_padded(value: &HeaderValue) -> bool {
    let is_space = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    let value = value.as_bytes();
    is_space(value.first()) || is_space(value.last())
}

/// Joins the pieces of `Cookie` into one field, as handlers expect it: `a=1; b=2`
/// (RFC 9113 8.2.3).
pub(crate) fn join_cookies(headers: &mut HeaderMap) {
    if headers.get_all(COOKIE).iter().nth(1).is_none() {
        return;
    }
    let pieces: Vec<_> = headers.get_all(COOKIE).iter().collect();
    let pieces: Vec<_> = pieces.into_iter().map(HeaderValue::as_bytes).collect();
    let cookie = HeaderValue::from_bytes(&pieces.join(&b"; "[..]));
    let cookie = cookie.expect("values and a separator that is allowed in them");
    // A new map: the old one would keep the memory that the pieces used.
    let mut joined = HeaderMap::with_capacity(headers.keys_len());
    for (name, value) in headers.iter().filter(|(name, _)| *name != COOKIE) {
        joined.append(name, value.clone());
    }
    joined.insert(COOKIE, cookie);
    *headers = joined;
}

/// The number of fields. The pieces of `Cookie` count as one.
fn fields(headers: &HeaderMap) -> usize {
    let pieces = headers.get_all(COOKIE).iter().count();
    headers.len() - pieces.saturating_sub(1)
}

/// Whether a request names one host: by `:authority`, by `Host`, or by both, if they agree
/// (RFC 9113 8.3.1).
fn has_one_authority<B>(request: &Request<B>) -> bool {
    let mut hosts = request.headers().get_all(HOST).iter();
    match (request.uri().authority(), hosts.next(), hosts.next()) {
        (Some(_), None, _) => true,
        (Some(authority), Some(host), None) => host
            .as_bytes()
            .eq_ignore_ascii_case(authority.as_str().as_bytes()),
        (None, Some(_), None) => true,
        (None, None, _) | (_, _, Some(_)) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn has_one(authority: &str, hosts: &[&str]) -> bool {
        let uri = match authority {
            "" => "/".to_owned(),
            authority => format!("http://{authority}/"),
        };
        let request = hosts.iter().fold(Request::get(uri), |request, host| {
            request.header(HOST, *host)
        });
        has_one_authority(&request.body(()).expect("a request"))
    }

    #[test]
    fn authority_or_host_is_enough_and_both_must_agree() {
        assert!(has_one("a.test", &[]));
        assert!(has_one("", &["a.test"]));
        assert!(has_one("a.test", &["A.test"]));
        assert!(!has_one("a.test", &["b.test"]));
        assert!(!has_one("a.test", &["a.test", "a.test"]));
        assert!(!has_one("", &[]));
    }
}
