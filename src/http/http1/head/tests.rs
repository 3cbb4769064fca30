use std::mem;

use http::HeaderName;

use super::*;

/// The result, and the request, which is still new if it is not plain.
type Outcome = (Found, Request<()>);

fn find_next(input: &mut BytesMut, cache: &mut HeadCache) -> Outcome {
    let mut request = Request::new(());
    let found = find(input, &mut request, cache, &Http::new());
    (found, request)
}

fn found(text: &str) -> (Outcome, BytesMut) {
    let mut input = BytesMut::from(text);
    let outcome = find_next(&mut input, &mut HeadCache::default());
    (outcome, input)
}

impl Head {
    fn len(&self) -> usize {
        match self {
            Self::InInput(len) => *len,
            Self::Taken(head) => head.len(),
        }
    }
}

fn is_taken(found: &Found, head: &str) -> bool {
    matches!(found, Found::Plain { head: Head::Taken(taken), .. } if taken == head)
}

/// A head that is parsed with a cache gives the same request as without a cache.
#[test]
fn the_cache_does_not_change_a_request() {
    let mut cache = HeadCache::default();
    let mut found_next = |head: &str| find_next(&mut BytesMut::from(head), &mut cache);
    let heads = [
        ("/", "Host: h\r\nCookie: a\r\nx-a: 1\r\n"),
        ("/", "Host: h\r\nCookie: a\r\nx-a: 1\r\n"),
        ("/", "Host: h\r\nCookie: a\r\nx-a: 1\r\n"),
        ("/a?b", "Host: h\r\nCookie: a\r\nx-a: 1\r\n"),
        ("/a?c", "Host: h\r\nCookie: b\r\nx-a: 1\r\nx-b: 1\r\n"),
        ("/", "Cookie: a\r\nHost: h\r\n"),
        (
            "/",
            "Host: h\r\nCookie: a1\r\nx-a: 1\r\nConnection: close\r\n",
        ),
        ("/", "Host: h\r\nCookie:a\r\nX-A: 1\r\n"),
        ("//", "Host: h\r\nCookie: a\r\nx-a: 1\r\n"),
        // The same names with other values.
        ("/", "Host: h\r\nCookie: other\r\nx-a: 1\r\n"),
        ("/a", "Host: h\r\nCookie: \t o\u{e9} \r\nx-a: 2\r\n"),
        ("/a", "Host: other:80\r\nCookie: \r\nx-a: 2\r\n"),
        ("/a", "Host: h\r\nCookie: a\nx-a: 2\r\n"),
        ("/a", "Host: h\r\nCookie: a b\r\nx-a: 2\r\nx-c: 1\r\n"),
    ];
    for (target, fields) in heads {
        let head = format!("GET {target} HTTP/1.1\r\n{fields}\r\n");
        let ((cached, request), ((uncached, expected), _)) = (found_next(&head), found(&head));
        assert_eq!(request.uri(), expected.uri(), "{head}");
        assert_eq!(request.headers(), expected.headers(), "{head}");
        let Found::Plain {
            head: taken,
            is_last,
            ..
        } = cached
        else {
            panic!("it is plain: {head}");
        };
        assert_eq!(taken.len(), head.len());
        assert!(
            matches!(uncached, Found::Plain { is_last: it, .. } if it == is_last),
            "{head}"
        );
    }
    let long = format!("GET /{}", "x".repeat(9 * 1024));
    for (line, fields) in [
        ("GET / HTTP/1.1", "Cookie: a\r\n"),
        ("GET / HTTP/1.1", "Host: h\r\nHost: h\r\n"),
        ("GET / HTTP/1.1", "Host: h\r\nCookie: \0\r\n"),
        ("GET / HTTP/1.1", "Host: h\r\nCookie: \0\r\nx-a: 1\r\n"),
        ("GET / HTTP/1.1", "Host: h\r\nCookie: a\rb\r\nx-a: 1\r\n"),
        ("GET / HTTP/1.1", "Host: /\r\nCookie: a\r\nx-a: 1\r\n"),
        ("GET /\0 HTTP/1.1", "Host: h\r\nCookie: other\r\nx-a: 1\r\n"),
        ("GET / HTTP/1.0", "Host: h\r\nCookie: other\r\nx-a: 1\r\n"),
        ("GET / HTTP/1.0", "Host: h\r\nCookie: a\r\nx-a: 1\r\n"),
        ("GET / HTTP/1.1 ", "Host: h\r\nCookie: a\r\nx-a: 1\r\n"),
        ("GET / /  HTTP/1.1", "Host: h\r\nCookie: a\r\nx-a: 1\r\n"),
        ("GET /\0 HTTP/1.1", "Host: h\r\nCookie: a\r\nx-a: 1\r\n"),
        ("GET /", "Host: h\r\nCookie: a\r\nx-a: 1\r\n"),
        (&long, "Host: h\r\nCookie: a\r\nx-a: 1\r\n"),
    ] {
        let (found, _) = found_next(&format!("{line}\r\n{fields}\r\n"));
        assert!(matches!(found, Found::Other(_)), "{line} {fields}");
    }
}

/// What a handler may do to the fields of its request before it makes a response of it.
const HANDLERS: [fn(&mut HeaderMap); 9] = [
    |_| {},
    |fields| {
        fields.remove("cookie");
    },
    |fields| fields.clear(),
    |fields| *fields = HeaderMap::new(),
    |fields| {
        fields.append("cookie", HeaderValue::from_static("of the handler"));
    },
    |fields| {
        fields.insert("cookie", HeaderValue::from_static("of the handler"));
    },
    |fields| {
        fields.append("x-new", HeaderValue::from_static("of the handler"));
    },
    |fields| {
        let cookie = fields.remove("cookie");
        fields.insert("x-new", cookie.unwrap_or(HeaderValue::from_static("")));
    },
    |fields| {
        fields
            .values_mut()
            .for_each(|value| value.set_sensitive(true))
    },
];

/// Serves a request as a connection does, and checks its fields.
fn serve(fields: &str, cache: &mut HeadCache, handler: fn(&mut HeaderMap)) {
    let text = format!("GET / HTTP/1.1\r\n{fields}\r\n");
    let mut input = BytesMut::from(&*text);
    let (found, mut request) = find_next(&mut input, cache);
    let Found::Plain { head, new, .. } = found else {
        panic!("it is plain: {text}");
    };
    let mut expected = HeaderMap::new();
    for line in fields.lines() {
        let (name, value) = line.split_once(": ").expect("a field");
        let name = HeaderName::try_from(name).expect("a name");
        expected.append(name, HeaderValue::try_from(value).expect("a value"));
    }
    let fields = request.headers_mut();
    assert_eq!(*fields, expected, "{text}");
    assert!(!fields.values().any(HeaderValue::is_sensitive), "{text}");
    handler(fields);
    field_maps::exchange(fields);
    let response = mem::take(fields);
    let cached = cache.cached();
    let keeps = |fields: &mut _| cached.is_some_and(|cached| cached.keep_fields(fields, new));
    field_maps::put_back(response, keeps);
    drop((request, input));
    if let Head::Taken(head) = head {
        assert!(head.is_unique(), "its memory is free: {text}");
    }
}

/// The map has the fields of an earlier request, perhaps of another client.
#[test]
fn the_fields_in_a_used_map_do_not_change_a_request() {
    let heads = [
        "host: h\r\ncookie: a\r\nx-a: 1\r\n",
        "host: h\r\ncookie: b\r\nx-a: 1\r\n",
        "host: h\r\ncookie: b\r\nx-a: 2\r\n",
        "host: h\r\nx-a: 1\r\ncookie: a\r\n",
        "host: h\r\nx-new: a\r\nx-a: 1\r\n",
        "host: h\r\ncookie: a\r\nx-a: 1\r\nx-new: 1\r\n",
        "host: h\r\ncookie: a\r\nx-a: 1\r\ncookie: b\r\n",
        "host: h\r\ncookie: a\r\ncookie: c\r\nx-a: 1\r\n",
        "host: h\r\n",
    ];
    for handler in HANDLERS {
        let mut caches = heads.map(|_| HeadCache::default());
        for (head, cache) in heads.iter().zip(&mut caches) {
            (0..3).for_each(|_| serve(head, cache, handler));
            assert!(cache.cached().is_some());
        }
        for cache in &mut caches {
            for (before, head) in heads.iter().flat_map(|it| heads.map(|head| (it, head))) {
                serve(before, cache, handler);
                serve(head, cache, |_| {});
            }
        }
    }
}

/// All texts that differ from this one in one place.
fn almost(text: &str) -> impl Iterator<Item = Vec<u8>> {
    const BYTES: &[u8] = b"\0\t\n\x0b\r !\"#%+,-./0129:;?@AGZ_agz~\x7f\x80\xff";
    let bytes = text.as_bytes();
    (0..bytes.len()).flat_map(move |at| {
        let (before, after) = bytes.split_at(at);
        let replaced = BYTES.iter().map(move |&byte| (byte, &after[1..]));
        let added = BYTES.iter().map(move |&byte| (byte, after));
        let changed = replaced.chain(added);
        let changed = changed.map(move |(byte, after)| [before, &[byte], after].concat());
        changed.chain([[before, &after[1..]].concat()])
    })
}

/// What is found, and what is left of the input.
fn described(text: &[u8], cache: &mut HeadCache) -> String {
    let mut input = BytesMut::from(text);
    let (found, request) = find_next(&mut input, cache);
    let (head, body, is_last) = match found {
        Found::Plain {
            head,
            body,
            is_last,
            ..
        } => (head, body, is_last),
        Found::Other(taken) => {
            assert_eq!([&taken[..], &input].concat(), text);
            return "other".into();
        }
        Found::Part => return "part".into(),
        Found::PartOfBody => return "part of a body".into(),
    };
    if let Head::InInput(len) = head {
        let _head = input.split_to(len);
    }
    let (method, uri, fields) = (request.method(), request.uri(), request.headers());
    format!("{method} {uri} {fields:?} {body:?} {is_last} {input:?}")
}

#[test]
fn a_head_that_differs_from_the_cached_one_in_a_byte_is_not_taken_for_it() {
    for head in [
        "GET /a?b HTTP/1.1\r\nHost: h\r\nCookie: a=b\r\nConnection: keep-alive\r\nx:\r\n\r\n",
        "POST /a HTTP/1.1\r\nhost:h:80\r\nX: a \r\nContent-Length: 12\r\ny: \t\r\n\r\nGET / HTTP/1",
        "PUT / HTTP/1.1\nhost: h\ncontent-length:0\nx-a: b\n\n",
    ] {
        for text in almost(head) {
            let mut cache = HeadCache::default();
            for _ in 0..2 {
                described(head.as_bytes(), &mut cache);
            }
            assert!(cache.cached().is_some());
            let text = [&text, &b"GET /next HTTP/1.1\r\n\r\n"[..]].concat();
            let cached = described(&text, &mut cache);
            let uncached = described(&text, &mut HeadCache::default());
            assert_eq!(cached, uncached, "{}", text.escape_ascii());
        }
    }
}

#[test]
fn a_cached_head_stays_in_the_input() {
    let head = "GET /polled HTTP/1.1\r\nHost: h\r\n\r\n";
    let mut cache = HeadCache::default();
    let mut input = BytesMut::from(&head.repeat(3)[..]);
    for left in [2, 1] {
        assert!(is_taken(&find_next(&mut input, &mut cache).0, head));
        assert_eq!(input.len(), left * head.len());
    }
    let Found::Plain { head: cached, .. } = find_next(&mut input, &mut cache).0 else {
        panic!("it is plain");
    };
    assert!(matches!(cached, Head::InInput(len) if len == head.len()));
    assert_eq!(input, head);
}

#[test]
fn a_plain_request_is_taken_and_the_next_stays_in_the_input() {
    let head = "GET /a?b HTTP/1.1\r\nHost: h\r\nx: 1\r\nX: 2\r\nConnection: Keep-Alive\r\n\r\n";
    let ((found, request), rest) = found(&format!("{head}GET /next"));
    assert!(is_taken(&found, head));
    assert!(matches!(found, Found::Plain { is_last: false, .. }));
    assert_eq!(rest, "GET /next");
    assert_eq!(request.uri(), "/a?b");
    let values: Vec<_> = request.headers().get_all("x").iter().collect();
    assert_eq!(values, ["1", "2"]);
    assert_eq!(request.headers().len(), 4);
}

#[test]
fn a_request_with_connection_close_is_the_last() {
    for options in ["close", "Close", "close\r\nConnection: keep-alive"] {
        let head = format!("GET / HTTP/1.1\r\nHost: h\r\nConnection: {options}\r\n\r\n");
        let ((found, _), _) = found(&head);
        assert!(
            matches!(found, Found::Plain { is_last: true, .. }),
            "{options}"
        );
    }
}

#[test]
fn a_part_of_a_plain_request_stays_in_the_input() {
    let head = "GET / HTTP/1.1\r\nHost: h\r\n\r\n";
    for end in 1..head.len() {
        let ((found, _), rest) = found(&head[..end]);
        assert!(matches!(found, Found::Part), "{end}");
        assert_eq!(rest.len(), end);
    }
}

#[test]
fn a_request_that_is_not_plain_is_passed_on_unchanged() {
    let many = "x: y\r\n".repeat(FIELDS_MAX);
    let long = "x".repeat(9 * 1024);
    let fields = [
        "",
        "Host: h\r\nHost: h\r\n",
        "Host: a b\r\n",
        "Host: h\r\nContent-Length: 70000\r\n",
        "Host: h\r\nContent-Length: +0\r\n",
        "Host: h\r\nContent-Length:\r\n",
        "Host: h\r\nContent-Length: 99999999999999999999\r\n",
        "Host: h\r\nContent-Length: 0\r\ncontent-length: 0\r\n",
        "Host: h\r\nContent-Length: 0\r\nTransfer-Encoding: chunked\r\n",
        "Host: h\r\nTransfer-Encoding: chunked\r\n",
        "Host: h\r\nExpect: 100-continue\r\n",
        "Host: h\r\nUpgrade: websocket\r\n",
        "Host: h\r\nConnection: upgrade\r\n",
        "Host: h\r\nConnection: keep-alive, close\r\n",
        "Host: h\r\nConnection:\r\n",
        "Host: h\r\nno field\r\n",
        "Host: h\r\nname : space\r\n",
        &format!("Host: h\r\n{many}"),
        &format!("Host: h\r\na: {long}\r\nb: {long}\r\n"),
    ]
    .map(|fields| format!("GET / HTTP/1.1\r\n{fields}\r\n"));
    let others = [
        "\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n",
        "TRACE / HTTP/1.1\r\nHost: h\r\n\r\n",
        "CONNECT h:80 HTTP/1.1\r\nHost: h:80\r\n\r\n",
        "get / HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET http://h/ HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET * HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET / HTTP/1.0\r\nHost: h\r\n\r\n",
        "GET / HTTP/2.0\r\nHost: h\r\n\r\n",
        "GET /\r\n",
        &format!("GET / HTTP/1.1\r\na: {long}{long}"),
        &format!("GET /{long} HTTP/1.1\r\nHost: h\r\n\r\n"),
    ]
    .map(str::to_owned);
    for text in fields.iter().chain(&others) {
        let ((Found::Other(taken), _), rest) = found(text) else {
            panic!("it is not plain: {text}");
        };
        assert_eq!([&taken[..], &rest[..]].concat(), text.as_bytes());
    }
}

/// Also if its head is similar to the cached one, or equal to it.
#[test]
fn a_body_that_has_come_is_taken_with_its_head() {
    let heads = [
        ("POST", "/a", "Host: h\r\nContent-Length: 3\r\n", "abc"),
        ("POST", "/a", "Host: h\r\nContent-Length: 3\r\n", "abc"),
        ("POST", "/a", "Host: h\r\nContent-Length: 3\r\n", "cba"),
        ("PUT", "/b", "Host: h\r\nContent-Length: 3\r\n", "abc"),
        ("DELETE", "/a", "Host: h\r\nContent-Length: 0\r\n", ""),
        ("PATCH", "/a", "Host: h\r\ncontent-length:01\r\n", "a"),
        (
            "POST",
            "/a",
            "Host: h\r\nContent-Length: 12\r\n",
            "GET / HTTP/1",
        ),
        ("OPTIONS", "/a", "Host: h\r\n", ""),
        ("POST", "/a", "Host: h\r\n", ""),
    ];
    let mut cache = HeadCache::default();
    for (method, target, fields, sent) in heads {
        let text = format!("{method} {target} HTTP/1.1\r\n{fields}\r\n{sent}");
        for next in ["", "GET /next"] {
            let mut input = BytesMut::from(&*format!("{text}{next}"));
            let (found, request) = find_next(&mut input, &mut cache);
            let Found::Plain { head, body, .. } = found else {
                panic!("it is plain: {text}");
            };
            assert_eq!(
                (&*body, request.method().as_str()),
                (sent.as_bytes(), method)
            );
            assert_eq!((head.len(), &input[..]), (text.len(), next.as_bytes()));
            assert_eq!(request.uri(), target);
        }
    }
}

#[test]
fn a_body_that_has_not_come_stays_in_the_input_and_one_that_is_too_long_is_hypers() {
    let http = Http::new().max_body_size(3);
    let mut cache = HeadCache::default();
    let mut find = |length: usize, body: &str| {
        let text = format!("POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: {length}\r\n\r\n{body}");
        let (mut input, mut request) = (BytesMut::from(&*text), Request::new(()));
        let found = find(&mut input, &mut request, &mut cache, &http);
        let is_plain = matches!(found, Found::Plain { .. });
        assert!(is_plain != (input == *text), "a plain one is taken");
        found
    };
    for _ in 0..3 {
        assert!(matches!(find(3, "abc"), Found::Plain { .. }));
        assert!(matches!(find(3, "ab"), Found::PartOfBody));
        assert!(matches!(find(2, ""), Found::PartOfBody));
        assert!(matches!(find(4, "abcd"), Found::Other(_)));
    }
}

#[test]
fn a_method_and_a_target_are_found_in_a_request_line_alone() {
    let read = |line: &'static str| {
        let (method, target) = request_line(line.as_bytes())?;
        Some((method, target.of_slice(line.as_bytes())))
    };
    assert_eq!(read("GET /a HTTP/1.1\r\n"), Some((Method::GET, &b"/a"[..])));
    let found = Some((Method::PUT, &b"/a?b~!"[..]));
    assert_eq!(read("PUT /a?b~! HTTP/1.1\r\n"), found);
    for line in [
        "GET /a HTTP/1.1\n",
        "GET /a HTTP/1.0\r\n",
        "GET /a HTTP/1.1\r\r\n",
        "GET /a HTTP/1.1 \r\n",
        "GET /a  HTTP/1.1\r\n",
        "GET  /a HTTP/1.1\r\n",
        "GET /\x7f HTTP/1.1\r\n",
        "GET /\u{e9} HTTP/1.1\r\n",
        "GET a HTTP/1.1\r\n",
        "GET /a\r\n",
        "TRACE /a HTTP/1.1\r\n",
    ] {
        assert_eq!(read(line), None, "{line}");
    }
}
