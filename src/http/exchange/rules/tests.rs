//! The rules on heads as hyper parses them.

use super::*;

const FINE: Result<(), StatusCode> = Ok(());

fn refused(status: u16) -> Result<(), StatusCode> {
    Err(StatusCode::from_u16(status).expect("a status"))
}

/// The result for a request line, given without its version, and fields.
fn outcome(version: Version, line: &str, fields: &[(&str, &str)]) -> Result<(), StatusCode> {
    check(&request(version, line, fields), &Http::new()).map_err(Refusal::status)
}

fn request(version: Version, line: &str, fields: &[(&str, &str)]) -> Request<()> {
    let (method, target) = line.split_once(' ').expect("a method and a target");
    let mut request = Request::builder()
        .version(version)
        .method(method)
        .uri(target);
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    request.body(()).expect("a head that hyper accepts")
}

fn outcome_11(line: &str, fields: &[(&str, &str)]) -> Result<(), StatusCode> {
    let fields: Vec<_> = [("host", "h")].iter().chain(fields).copied().collect();
    outcome(Version::HTTP_11, line, &fields)
}

#[test]
fn a_target_is_of_the_form_that_its_method_wants() {
    for (line, expected) in [
        ("GET /", FINE),
        ("GET //a", FINE),
        ("GET /*", FINE),
        ("get /?a=b", FINE),
        ("OPTIONS *", FINE),
        ("OPTIONS /", FINE),
        ("GET http://a/b?c", FINE),
        ("GET HTTPS://a:1", FINE),
        ("GET http://[::1]:80/", FINE),
        ("CONNECT a:443", FINE),
        ("CONNECT [::1]:443", FINE),
        ("GET *", refused(400)),
        ("options *", refused(400)),
        ("CONNECT *", refused(400)),
        ("GET a", refused(400)),
        ("GET a:443", refused(400)),
        ("OPTIONS a:443", refused(400)),
        ("CONNECT /", refused(400)),
        ("CONNECT http://a:443/", refused(400)),
        ("CONNECT a", refused(400)),
        ("CONNECT a:", refused(400)),
        ("CONNECT a:0", refused(400)),
        ("CONNECT a:65536", refused(400)),
        ("CONNECT :443", refused(400)),
        ("CONNECT u@a:443", refused(400)),
        ("GET ftp://a/", refused(400)),
        ("GET ws://a/", refused(400)),
        ("GET http://u@a/", refused(400)),
        ("GET http://u:p@a/", refused(400)),
        ("GET http://:80/", refused(400)),
    ] {
        assert_eq!(outcome_11(line, &[]), expected, "{line}");
    }
}

#[test]
fn a_request_has_one_valid_host() {
    use Version as V;
    for (version, hosts, expected) in [
        (V::HTTP_11, &["a"][..], FINE),
        (V::HTTP_11, &[""], FINE),
        (V::HTTP_11, &["[::1]:80"], FINE),
        (V::HTTP_10, &[], FINE),
        (V::HTTP_10, &["a"], FINE),
        (V::HTTP_11, &[], refused(400)),
        (V::HTTP_11, &["a", "a"], refused(400)),
        (V::HTTP_11, &["a", ""], refused(400)),
        (V::HTTP_10, &["a", "b"], refused(400)),
        (V::HTTP_11, &["a b"], refused(400)),
        (V::HTTP_11, &["a/b"], refused(400)),
        (V::HTTP_10, &["u@a"], refused(400)),
    ] {
        let fields: Vec<_> = hosts.iter().map(|host| ("host", *host)).collect();
        for line in ["GET /", "GET http://a/", "OPTIONS *"] {
            let outcome = outcome(version, line, &fields);
            assert_eq!(outcome, expected, "{version:?} {line} {hosts:?}");
        }
    }
}

#[test]
fn chunked_is_the_only_coding_and_is_applied_once() {
    for (codings, expected) in [
        (&["chunked"][..], FINE),
        (&["CHUNKED"], FINE),
        (&["gzip, chunked"], refused(501)),
        (&["gzip", "chunked"], refused(501)),
        (&["identity, chunked"], refused(501)),
        (&["gzip;level=9, chunked"], refused(501)),
        (&["xchunked, chunked"], refused(501)),
        (&["chunked, chunked"], refused(400)),
        (&["chunked", "chunked"], refused(400)),
        (&["chunked, gzip, chunked"], refused(400)),
        (&[", chunked"], refused(400)),
        (&["\"chunked\", chunked"], refused(400)),
        (&["", "chunked"], refused(400)),
        (&["g zip, chunked"], refused(400)),
        (&[";q=1, chunked"], refused(400)),
    ] {
        let fields: Vec<_> = codings
            .iter()
            .map(|it| ("transfer-encoding", *it))
            .collect();
        assert_eq!(outcome_11("POST /", &fields), expected, "{codings:?}");
    }
}

#[test]
fn a_tunnel_has_no_body() {
    let length = |digits| [("content-length", digits)];
    assert_eq!(outcome_11("CONNECT a:1", &length("0")), FINE);
    assert_eq!(outcome_11("CONNECT a:1", &length("5")), refused(400));
    let chunked = [("transfer-encoding", "chunked")];
    assert_eq!(outcome_11("CONNECT a:1", &chunked), refused(400));
    assert_eq!(outcome_11("GET /", &length("5")), FINE);
}

#[test]
fn the_only_supported_expectation_is_100_continue() {
    let expect = |value| [("expect", value)];
    for supported in ["100-continue", "100-Continue", ""] {
        assert_eq!(outcome_11("GET /", &expect(supported)), FINE, "{supported}");
    }
    for other in ["200-ok", "100-continue, 200-ok", "100-continued", "x"] {
        assert_eq!(outcome_11("GET /", &expect(other)), refused(417));
        let old = outcome(Version::HTTP_10, "GET /", &expect(other));
        assert_eq!(old, FINE, "HTTP/1.0 has no expectations");
    }
}

#[test]
fn the_limits_for_sizes_are_exact() {
    let http = Http::new().max_target_size(10).max_header_size(50);
    let outcome = |target: usize, filler: usize| {
        let target = format!("GET /{}", "t".repeat(target - 1));
        let filler = "f".repeat(filler);
        let fields = [("host", "h"), ("filler", &*filler)];
        check(&request(Version::HTTP_11, &target, &fields), &http)
    };
    let rest = "GET  HTTP/1.1\r\nhost: h\r\nfiller: \r\n\r\n".len();
    assert_eq!(outcome(10, 50 - 10 - rest), Ok(()));
    assert_eq!(outcome(10, 50 - 10 - rest + 1), Err(Refusal::LargeHead));
    assert_eq!(outcome(11, 0), Err(Refusal::LongTarget));
    assert_eq!(outcome(11, 100), Err(Refusal::LongTarget));
}

#[test]
fn the_size_of_a_target_counts_all_its_parts() {
    for target in ["/a?b", "*", "http://a/b?c", "a:443"] {
        let uri: Uri = target.parse().expect("a target");
        assert_eq!(target_size(&uri), target.len(), "{target}");
    }
}

#[test]
fn the_host_of_the_target_replaces_host() {
    let host = |line, fields: &[_]| {
        let mut request = request(Version::HTTP_11, line, fields);
        settle_host(&mut request);
        let host = request.headers().get(HOST).cloned();
        host.map(|host| host.to_str().expect("text").to_owned())
    };
    let other = [("host", "other")];
    assert_eq!(host("GET http://a:80/", &other).as_deref(), Some("a:80"));
    assert_eq!(host("GET http://a/", &[]).as_deref(), Some("a"));
    assert_eq!(host("CONNECT a:443", &other).as_deref(), Some("a:443"));
    assert_eq!(host("GET /", &other).as_deref(), Some("other"));
    assert_eq!(host("GET /", &[]), None);
}

#[test]
fn a_long_target_is_found_in_a_part_of_a_head() {
    let http = Http::new().max_target_size(4);
    let is_long = |head: &str| is_target_long(head.as_bytes(), &http);
    for long in ["GET /2345", "\r\nGET /2345 HTTP/1.1\r\n", "X /2345\n"] {
        assert!(is_long(long), "{long:?}");
    }
    for short in [
        "",
        "GET",
        "GET /234",
        "GET /234 HTTP/1.1\r\nx: /2345",
        "GET\n/2345",
        "G\t/2345",
    ] {
        assert!(!is_long(short), "{short:?}");
    }
}
