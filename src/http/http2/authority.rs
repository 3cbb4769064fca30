//! Whom a request is for: `:authority`, `Host`, or both, if they agree (RFC 9113 8.3.1).

use http::Request;
use http::header::HOST;

/// Whether that is clear.
pub(in crate::http) fn has_one_authority<B>(request: &Request<B>) -> bool {
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
