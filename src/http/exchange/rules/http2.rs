//! What is left to check of a head that came by HTTP/2.

use http::header::{COOKIE, EXPECT, HOST};
use http::{HeaderMap, HeaderValue, Method, Request};

use crate::http::exchange::rules::{
    Authority, Refusal, check_target, is_known_expectation, refuse, target_size,
};
use crate::http::options::Http;

/// As many fields as hyper's HTTP/1 takes. A field of one byte takes a hundred here, so that the
/// size of a head does not bound what a slow handler's request holds.
const MAX_FIELDS: usize = 100;

/// As [`check`](super::check), for what hyper's HTTP/2 leaves to its users.
///
/// The framing of HTTP/2 leaves no doubt, and the size of a head is bounded while it is decoded. A
/// fragment in `:path` (RFC 9113 8.3.1) is gone when a request gets here: h2 reads the path as a
/// URI and leaves the fragment out, as hyper does in HTTP/1.
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

/// A value neither begins nor ends with white space (RFC 9113 8.2.1).
fn is_padded(value: &HeaderValue) -> bool {
    let is_space = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    let value = value.as_bytes();
    is_space(value.first()) || is_space(value.last())
}

/// Has the pieces of `Cookie` be one field, as handlers know it: `a=1; b=2` (RFC 9113 8.2.3).
pub(crate) fn join_cookies(headers: &mut HeaderMap) {
    if headers.get_all(COOKIE).iter().nth(1).is_none() {
        return;
    }
    let pieces: Vec<_> = headers.get_all(COOKIE).iter().collect();
    let pieces: Vec<_> = pieces.into_iter().map(HeaderValue::as_bytes).collect();
    let cookie = HeaderValue::from_bytes(&pieces.join(&b"; "[..]));
    let cookie = cookie.expect("values and a separator that is allowed in them");
    // Into a new map: the old one keeps the room that the pieces took.
    let mut joined = HeaderMap::with_capacity(headers.keys_len());
    for (name, value) in headers.iter().filter(|(name, _)| *name != COOKIE) {
        joined.append(name, value.clone());
    }
    joined.insert(COOKIE, cookie);
    *headers = joined;
}

/// How many fields there are; the pieces of `Cookie` are one.
fn fields(headers: &HeaderMap) -> usize {
    let pieces = headers.get_all(COOKIE).iter().count();
    headers.len() - pieces.saturating_sub(1)
}

/// Whether it is clear whom a request is for: `:authority`, `Host`, or both, if they agree (RFC
/// 9113 8.3.1).
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

    fn is_clear(authority: &str, hosts: &[&str]) -> bool {
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
    fn one_is_enough_and_two_must_agree() {
        assert!(is_clear("a.test", &[]));
        assert!(is_clear("", &["a.test"]));
        assert!(is_clear("a.test", &["A.test"]));
        assert!(!is_clear("a.test", &["b.test"]));
        assert!(!is_clear("a.test", &["a.test", "a.test"]));
        assert!(!is_clear("", &[]));
    }
}
