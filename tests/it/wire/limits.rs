//! Targets, heads and bodies that are too large.

use super::server::{MAX_BODY, MAX_HEAD, MAX_TARGET};
use super::{Case, closed, open};

pub(super) fn cases() -> Vec<Case> {
    let mut cases = targets();
    cases.extend(heads());
    cases.extend(bodies());
    cases
}

fn targets() -> Vec<Case> {
    let get = |target: &str| format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n");
    let path = |len: usize| format!("/{}", "t".repeat(len - 1));
    let long = |name, target: &str| closed(name, "9112 3", get(target), &["414"]);
    vec![
        open(
            "a target at the limit",
            "9112 3",
            get(&path(MAX_TARGET)),
            &["200 GET 512 bytes h"],
        ),
        long("a target beyond the limit", &path(MAX_TARGET + 1)),
        long(
            "a query beyond the limit",
            &format!("/?{}", path(MAX_TARGET)),
        ),
        long(
            "a host beyond the limit",
            &format!("http://a{}/", "a".repeat(MAX_TARGET)),
        ),
        long(
            "a target almost as long as a head may be",
            &path(MAX_HEAD - 50),
        ),
        long("a target longer than a head may be", &path(MAX_HEAD + 100)),
        long(
            "a target longer than both limits",
            &path(MAX_HEAD + MAX_TARGET),
        ),
        long("a target far beyond both limits", &path(20 * MAX_HEAD)),
        closed(
            "a target far beyond both limits, without an end",
            "9110 15.5.15",
            format!("GET {}", path(20 * MAX_HEAD)),
            &["414"],
        ),
        // The fields are too large, not the target.
        closed(
            "fields far beyond both limits behind a target",
            "9110 5.4",
            get(&path(MAX_TARGET)).replace("Host: h", &format!("Host: h\r\nX: {}", path(4000))),
            &["431"],
        ),
    ]
}

fn heads() -> Vec<Case> {
    let get = |fields: &str| format!("GET / HTTP/1.1\r\nHost: h\r\n{fields}\r\n");
    let filled = |len: usize| {
        let filler = len - get("X: \r\n").len();
        get(&format!("X: {}\r\n", "x".repeat(filler)))
    };
    let large = |name, bytes: String| closed(name, "9110 5.4", bytes, &["431"]);
    vec![
        open(
            "a head at the limit",
            "9110 5.4",
            filled(MAX_HEAD),
            &["200 GET / h"],
        ),
        large("a head beyond the limit", filled(MAX_HEAD + 1)),
        large("a head far beyond the limit", filled(4 * MAX_HEAD)),
        open(
            "100 fields",
            "9110 5.4",
            get(&"a: b\r\n".repeat(99)),
            &["200 GET / h"],
        ),
        large("101 fields", get(&"a: b\r\n".repeat(100))),
        large(
            "a name beyond the limit",
            get(&format!("{}: x\r\n", "n".repeat(MAX_HEAD))),
        ),
        large(
            "a head without end",
            format!("GET / HTTP/1.1\r\nX: {}", "x".repeat(4000)),
        ),
        large("a method without end", "M".repeat(4000)),
        large("empty lines without end", "\r\n".repeat(2000)),
        large(
            "a method beyond the limit",
            format!("{} / HTTP/1.1\r\nHost: h\r\n\r\n", "M".repeat(MAX_HEAD)),
        ),
    ]
}

fn bodies() -> Vec<Case> {
    let post =
        |fields: &str, body: &str| format!("POST / HTTP/1.1\r\nHost: h\r\n{fields}\r\n\r\n{body}");
    let sized = |len: usize| post(&format!("Content-Length: {len}"), &"x".repeat(len));
    let announced = |number: &str| post(&format!("Content-Length: {number}"), "");
    let chunked = |sizes: &[usize]| {
        let chunks = sizes
            .iter()
            .map(|&len| format!("{len:x}\r\n{}\r\n", "x".repeat(len)));
        let body = chunks.collect::<String>() + "0\r\n\r\n";
        post("Transfer-Encoding: chunked", &body)
    };
    let seen = "200 POST / h [1000 bytes]";
    let large = |name, bytes: String| closed(name, "9110 15.5.14", bytes, &["413"]);
    vec![
        open(
            "a body at the limit",
            "9110 15.5.14",
            sized(MAX_BODY),
            &[seen],
        ),
        large("a body beyond the limit", sized(MAX_BODY + 1)),
        large(
            "a body announced beyond the limit, not sent",
            announced("1001"),
        ),
        large(
            "a body announced beyond all limits",
            announced("9223372036854775808"),
        ),
        large(
            "a body announced as long as can be",
            announced("18446744073709551613"),
        ),
        open(
            "chunks up to the limit",
            "9110 15.5.14",
            chunked(&[400, 600]),
            &[seen],
        ),
        large("chunks beyond the limit", chunked(&[400, 601])),
        large("a chunk beyond the limit", chunked(&[MAX_BODY + 1])),
        large(
            "a chunk announced as long as can be",
            post(
                "Transfer-Encoding: chunked",
                &format!("ffffffffffffffff\r\n{}", "x".repeat(1001)),
            ),
        ),
    ]
}
