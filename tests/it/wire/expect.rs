//! Expectations (RFC 9110 10.1.1).

use super::{Case, closed, open};

const SECTION: &str = "9110 10.1.1";

pub(super) fn cases() -> Vec<Case> {
    let mut cases = known_ones();
    cases.extend(unknown_ones());
    cases.extend(old());
    cases
}

fn post(path: &str, fields: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n{fields}\r\n\r\n")
}

fn known_ones() -> Vec<Case> {
    let known = |name, value: &str| {
        let request = post("/", &format!("Expect: {value}")) + "hello";
        open(name, SECTION, request, &["100", "200 POST / h [hello]"])
    };
    vec![
        known("100-continue", "100-continue"),
        known("100-continue in capitals", "100-Continue"),
        known("100-continue twice", "100-continue\r\nExpect: 100-continue"),
        open(
            "100-continue and chunks",
            SECTION,
            "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\
             \r\n5\r\nhello\r\n0\r\n\r\n",
            &["100", "200 POST / h [hello]"],
        ),
        open(
            "100-continue without a body",
            SECTION,
            "GET / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\n\r\n",
            &["200 GET / h"],
        ),
        open(
            "100-continue to a handler that streams the body back",
            SECTION,
            post("/stream", "Expect: 100-continue") + "hello",
            &["100", "200 hello"],
        ),
        // The response is final: the client need not send the body.
        closed(
            "100-continue to a handler that does not ask",
            SECTION,
            post("/unread", "Expect: 100-continue"),
            &["200 POST /unread h"],
        )
        .inside(),
    ]
}

fn unknown_ones() -> Vec<Case> {
    let unknown = |name, fields: &str| closed(name, SECTION, post("/", fields), &["417"]);
    vec![
        unknown("another expectation", "Expect: x"),
        unknown("100-continue with a parameter", "Expect: 100-continue;a=b"),
        unknown("100-continue and another", "Expect: 100-continue, x"),
        unknown(
            "100-continue and another field",
            "Expect: 100-continue\r\nExpect: x",
        ),
        unknown(
            "another field and 100-continue",
            "Expect: x\r\nExpect: 100-continue",
        ),
        closed(
            "another expectation without a body",
            SECTION,
            "GET / HTTP/1.1\r\nHost: h\r\nExpect: x\r\n\r\n",
            &["417"],
        ),
        closed(
            "100-continue and a body that is too large",
            SECTION,
            "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1001\r\nExpect: 100-continue\r\n\r\n",
            &["413"],
        ),
        closed(
            "100-continue and no host",
            SECTION,
            "POST / HTTP/1.1\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n",
            &["400"],
        ),
    ]
}

fn old() -> Vec<Case> {
    let old =
        |fields: &str| format!("POST / HTTP/1.0\r\nContent-Length: 5\r\n{fields}\r\n\r\nhello");
    vec![
        closed(
            "100-continue in HTTP/1.0",
            SECTION,
            old("Expect: 100-continue"),
            &["200 POST / - [hello]"],
        ),
        closed(
            "another expectation in HTTP/1.0",
            SECTION,
            old("Expect: x"),
            &["200 POST / - [hello]"],
        ),
    ]
}
