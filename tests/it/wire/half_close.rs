//! Clients that shut down their writing side and wait for the responses (shutdown(2), `SHUT_WR`).

use super::{Case, half_closed};

const SECTION: &str = "9112 9.6";

pub(super) fn cases() -> Vec<Case> {
    let mut cases = whole();
    cases.extend(broken());
    cases
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n")
}

fn post(path: &str, fields: &str, body: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nHost: h\r\n{fields}\r\n\r\n{body}")
}

/// A complete request gets its response, however long its handler takes.
fn whole() -> Vec<Case> {
    let fine = |name, bytes: String, said: &[&str]| half_closed(name, SECTION, bytes, said);
    vec![
        fine("nothing", String::new(), &[]),
        fine("empty lines", "\r\n\r\n".to_owned(), &[]),
        fine("a request", get("/"), &["200 GET / h"]),
        fine(
            "a request that takes time",
            get("/late"),
            &["200 GET /late h"],
        ),
        fine(
            "two that take time",
            get("/late") + &get("/late"),
            &["200 GET /late h", "200 GET /late h"],
        ),
        fine(
            "a request that takes time behind a request that does not",
            get("/") + &get("/late"),
            &["200 GET / h", "200 GET /late h"],
        ),
        fine(
            "a body, and time",
            post("/late", "Content-Length: 5", "hello"),
            &["200 POST /late h [hello]"],
        ),
        fine(
            "chunks, and time",
            post(
                "/late",
                "Transfer-Encoding: chunked",
                "5\r\nhello\r\n0\r\n\r\n",
            ),
            &["200 POST /late h [hello]"],
        ),
        fine(
            "close, and time",
            "GET /late HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n".to_owned(),
            &["200 GET /late h"],
        ),
        fine(
            "HTTP/1.0, and time",
            "GET /late HTTP/1.0\r\n\r\n".to_owned(),
            &["200 GET /late -"],
        ),
        fine(
            "a bad request",
            "GET / HTTP/1.1\r\n\r\n".to_owned(),
            &["400"],
        ),
        fine(
            "a bad request behind a request that takes time",
            get("/late") + "GET / HTTP/1.1\r\n\r\n",
            &["200 GET /late h", "400"],
        ),
    ]
}

/// The last request is cut short. The requests before it get their responses.
fn broken() -> Vec<Case> {
    let cut = |name, bytes: String, said: &[&str]| half_closed(name, "9112 8", bytes, said);
    vec![
        cut("half a request line", "GET /".to_owned(), &[]),
        cut(
            "half a head",
            "GET / HTTP/1.1\r\nHost: h\r\n".to_owned(),
            &[],
        ),
        cut(
            "half a head behind a request that takes time",
            get("/late") + "GET / HTTP/1.1\r\nHo",
            &["200 GET /late h"],
        ),
        cut(
            "half a body",
            post("/", "Content-Length: 9", "hello"),
            &["400"],
        ),
        cut(
            "half a chunk",
            post("/", "Transfer-Encoding: chunked", "9\r\nhello"),
            &["400"],
        ),
        cut(
            "chunks without the last",
            post("/", "Transfer-Encoding: chunked", "5\r\nhello\r\n"),
            &["400"],
        ),
        cut(
            "chunks without the last line end",
            post("/", "Transfer-Encoding: chunked", "5\r\nhello\r\n0\r\n"),
            &["400"],
        ),
    ]
}
