//! The host that a request names.
//!
//! A web page may have its own name lead to an address of this machine (DNS rebinding). For the
//! browser, what is there is then of the page's site, so that the page may read it. The request
//! still names the host of the page.

use std::net::IpAddr;

use http::request::Parts;

use crate::http::named_host;

/// Whether the request may come from a web page whose name leads to this machine: it names a host
/// that is no address and not `localhost`. A browser always names one.
pub(super) fn may_be_rebound(head: &Parts) -> bool {
    named_host(&head.headers, &head.uri).is_some_and(|named| !is_fixed(named.host()))
}

/// Whether no name server is asked for this host (RFC 6761, section 6.3).
fn is_fixed(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']');
    let name = host.trim_end_matches('.');
    let last = name.rsplit('.').next();
    address.parse::<IpAddr>().is_ok()
        || last.is_some_and(|last| last.eq_ignore_ascii_case("localhost"))
}

#[cfg(test)]
mod tests {
    use http::header::HOST;

    use super::*;

    fn is_rebound(request: http::request::Builder) -> bool {
        let request = request.body(()).expect("a request");
        may_be_rebound(&request.into_parts().0)
    }

    #[test]
    fn a_request_for_a_name_may_come_from_its_page() {
        for (host, expected) in [
            ("127.0.0.1:9180", false),
            ("127.0.0.1", false),
            ("[::1]:9180", false),
            ("localhost:9180", false),
            ("LocalHost", false),
            ("app.localhost.", false),
            ("example.org:9180", true),
            ("localhost.example.org", true),
            ("127.0.0.1.example.org", true),
            ("mylocalhost", true),
        ] {
            let by_field = http::Request::get("/status").header(HOST, host);
            assert_eq!(is_rebound(by_field), expected, "{host}");
            let by_uri = http::Request::get(format!("http://{host}/status"));
            assert_eq!(is_rebound(by_uri), expected, "{host}");
        }
        assert!(!is_rebound(http::Request::get("/status")));
    }
}
