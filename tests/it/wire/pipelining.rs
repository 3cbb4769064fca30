//! Several requests at once, and requests that are only bytes of others.

use super::server::MAX_HEAD;
use super::{Case, closed, open};

const SECTION: &str = "9112 9.3.2";

pub(super) fn cases() -> Vec<Case> {
    let mut cases = rows();
    cases.extend(mixes());
    cases.extend(errors());
    cases.extend(last_ones());
    cases.extend(disguises());
    cases.extend(tricks());
    cases
}

fn line(line: &str) -> String {
    format!("{line} HTTP/1.1\r\nHost: h\r\n\r\n")
}

fn get(path: &str) -> String {
    line(&format!("GET {path}"))
}

fn post(body: &str) -> String {
    let len = body.len();
    format!("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: {len}\r\n\r\n{body}")
}

fn chunked(body: &str) -> String {
    let len = body.len();
    format!(
        "PUT / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n\
         {len:x}\r\n{body}\r\n0\r\n\r\n"
    )
}

fn rows() -> Vec<Case> {
    let many = (0..20).map(|n| get(&format!("/{n}"))).collect::<String>();
    let responses: Vec<String> = (0..20).map(|n| format!("200 GET /{n} h")).collect();
    let responses: Vec<&str> = responses.iter().map(String::as_str).collect();
    vec![
        open(
            "two",
            SECTION,
            get("/1") + &get("/2"),
            &["200 GET /1 h", "200 GET /2 h"],
        ),
        open("twenty", SECTION, many, &responses),
        open(
            "a body, then none",
            SECTION,
            post("hello") + &get("/"),
            &["200 POST / h [hello]", "200 GET / h"],
        ),
        open(
            "chunks, then none",
            SECTION,
            chunked("hello") + &get("/"),
            &["200 PUT / h [hello]", "200 GET / h"],
        ),
        open(
            "bodies of both kinds",
            SECTION,
            post("a") + &chunked("b") + &chunked("c") + &post("d"),
            &[
                "200 POST / h [a]",
                "200 PUT / h [b]",
                "200 PUT / h [c]",
                "200 POST / h [d]",
            ],
        ),
    ]
}

fn mixes() -> Vec<Case> {
    vec![
        open(
            "methods of all kinds",
            SECTION,
            get("/1")
                + "OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n"
                + &post("a")
                + "HEAD / HTTP/1.1\r\nHost: h\r\n\r\n"
                + &get("/2"),
            &[
                "200 GET /1 h",
                "200 OPTIONS * h",
                "200 POST / h [a]",
                "200",
                "200 GET /2 h",
            ],
        ),
        open(
            "an expectation in the middle",
            SECTION,
            get("/1")
                + "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nExpect: 100-continue\r\n\r\na"
                + &get("/2"),
            &["200 GET /1 h", "100", "200 POST / h [a]", "200 GET /2 h"],
        ),
        open(
            "a trailer in the middle",
            SECTION,
            "PUT / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\na: b\r\n\r\n"
                .to_owned()
                + &get("/"),
            &["200 PUT / h +a=b", "200 GET / h"],
        ),
        // Old clients send an empty line behind a body. No length includes it.
        open(
            "an empty line in the middle",
            "9112 2.2",
            post("hello") + "\r\n" + &get("/"),
            &["200 POST / h [hello]", "200 GET / h"],
        ),
        open(
            "HTTP/1.0 with keep-alive in the middle",
            SECTION,
            get("/1") + "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n" + &get("/2"),
            &["200 GET /1 h", "200 GET / -", "200 GET /2 h"],
        ),
    ]
}

/// The request in the middle ends the connection. The requests before it get their responses, and
/// the one behind it gets none.
fn ends(name: &'static str, section: &'static str, middle: &str, last: &str) -> Case {
    let said = ["200 GET /1 h", "200 POST / h [a]", last];
    let bytes = get("/1") + &post("a") + middle + &get("/2");
    closed(name, section, bytes, &said)
}

fn errors() -> Vec<Case> {
    let long = format!("/{}", "t".repeat(MAX_HEAD));
    let put = "PUT / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
    let bad = |name, section, fields: &str, status: &str| {
        let middle = format!("GET / HTTP/1.1\r\n{fields}\r\n\r\n");
        ends(name, section, &middle, status)
    };
    vec![
        ends("then no request", "9112 3", "no request\r\n\r\n", "400"),
        ends("then no version", "9112 3", "GET /\r\n\r\n", "400"),
        ends("then a bad target", "9112 3.2", &line("GET *"), "400"),
        ends("then too long a target", "9110 15.5.15", &get(&long), "414"),
        bad("then no host", "9112 3.2", "X: y", "400"),
        bad("then a bad field", "9112 5.1", "Host : h", "400"),
        bad(
            "then a bad length",
            "9112 6.3",
            "Host: h\r\nContent-Length: x",
            "400",
        ),
        bad(
            "then a bad coding",
            "9112 6.1",
            "Host: h\r\nTransfer-Encoding: x, chunked",
            "501",
        ),
        bad(
            "then an expectation",
            "9110 10.1.1",
            "Host: h\r\nExpect: x",
            "417",
        ),
        bad(
            "then too large a body",
            "9110 15.5.14",
            "Host: h\r\nContent-Length: 1001",
            "413",
        ),
        bad(
            "then too large a head",
            "9110 5.4",
            &format!("X: {long}"),
            "431",
        ),
        ends(
            "then a bad chunk",
            "9112 7.1",
            &(put.to_owned() + "x\r\n"),
            "400",
        ),
    ]
}

fn last_ones() -> Vec<Case> {
    vec![
        ends(
            "then close",
            "9112 9.6",
            "GET /3 HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
            "200 GET /3 h",
        ),
        ends(
            "then HTTP/1.0",
            "9112 9.3",
            "GET /3 HTTP/1.0\r\n\r\n",
            "200 GET /3 -",
        ),
        ends(
            "then a length and a coding",
            "9112 6.3",
            "PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n\
             5\r\nhello\r\n0\r\n\r\n",
            "200 PUT / h [hello]",
        ),
    ]
}

const HIDDEN: &str = "GET /no HTTP/1.1\r\n\r\n";

fn get_with(fields: &str, body: &str) -> String {
    format!("GET / HTTP/1.1\r\nHost: h\r\n{fields}\r\n\r\n{body}")
}

/// Bytes that look like a request to a server that counts wrongly.
fn disguises() -> Vec<Case> {
    let hidden = HIDDEN;
    vec![
        open(
            "a request as a body",
            "9112 11.2",
            post(hidden) + &get("/"),
            &[&format!("200 POST / h [{hidden}]"), "200 GET / h"],
        ),
        open(
            "a request as a chunk",
            "9112 11.2",
            chunked(hidden) + &get("/"),
            &[&format!("200 PUT / h [{hidden}]"), "200 GET / h"],
        ),
        open(
            "a request as the body of GET",
            "9112 11.2",
            get_with(&format!("Content-Length: {}", hidden.len()), hidden),
            &[&format!("200 GET / h [{hidden}]")],
        ),
        open(
            "a request as a trailer's value",
            "9112 11.2",
            "PUT / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n\
             0\r\na: GET /no HTTP/1.1\r\n\r\n",
            &["200 PUT / h +a=GET /no HTTP/1.1"],
        ),
        open(
            "a request as a field's value",
            "9112 11.2",
            get_with("X: GET /no HTTP/1.1", ""),
            &["200 GET / h"],
        ),
        open(
            "a body without a length is a request",
            "9112 6.3",
            get_with("X: y", &get("/2")),
            &["200 GET / h", "200 GET /2 h"],
        ),
    ]
}

/// Heads and bodies that two servers might read in two ways.
fn tricks() -> Vec<Case> {
    vec![
        closed(
            "a body longer than its length",
            "9112 6.3",
            "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nhello, world\r\n\r\n",
            &["200 POST / h [hell]", "400"],
        ),
        closed(
            "a length that is smuggled in by a fold",
            "9112 11.2",
            get_with("X: y\r\n Content-Length: 40", HIDDEN),
            &["400"],
        ),
        closed(
            "a length that is smuggled in by a bare CR",
            "9112 11.2",
            get_with("X: y\rContent-Length: 40", HIDDEN),
            &["400"],
        ),
        closed(
            "a coding in disguise, and a length",
            "9112 11.2",
            get_with("Content-Length: 4\r\nTransfer-Encoding: x, chunked", HIDDEN),
            &["501"],
        ),
        closed(
            "a coding in a second field, and a length",
            "9112 11.2",
            get_with(
                "Transfer-Encoding: chunked\r\nContent-Length: 4\r\nTransfer-Encoding: x",
                HIDDEN,
            ),
            &["400"],
        ),
    ]
}
