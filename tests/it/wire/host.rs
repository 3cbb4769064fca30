//! The `Host` field.

use super::{Case, bad, closed, open};

pub(super) fn cases() -> Vec<Case> {
    let mut cases = valid();
    cases.extend(invalid());
    cases.extend(counts());
    cases.extend(old());
    cases.extend(others());
    cases
}

fn get(fields: &str) -> String {
    format!("GET / HTTP/1.1\r\n{fields}\r\n\r\n")
}

fn valid() -> Vec<Case> {
    let fine = |name, host: &str, seen: &str| {
        let said = format!("200 GET / {seen}");
        open(name, "9112 3.2", get(&format!("Host:{host}")), &[&said])
    };
    vec![
        fine("a name", " example.org", "example.org"),
        fine("a name and a port", " example.org:8080", "example.org:8080"),
        fine("an empty port", " example.org:", "example.org:"),
        fine("an IPv4 address", " 192.0.2.1", "192.0.2.1"),
        fine("an IPv6 address", " [2001:db8::1]", "[2001:db8::1]"),
        fine("an IPv6 address and a port", " [::1]:80", "[::1]:80"),
        fine("an address of the future", " [v1.a:b]", "[v1.a:b]"),
        fine("an underscore", " a_b", "a_b"),
        fine("an escape", " %C3%A4.example", "%C3%A4.example"),
        fine("sub-delimiters", " !$&'()*+,;=", "!$&'()*+,;="),
        fine("nothing", "", "empty"),
        fine("white space alone", " \t ", "empty"),
        fine("no space before it", "h", "h"),
        fine("white space around it", "\t h \t", "h"),
        open("any case", "9110 5.1", get("hOST: h"), &["200 GET / h"]),
    ]
}

fn invalid() -> Vec<Case> {
    let none = |name, host: &str| bad(name, "9112 3.2", get(&format!("Host: {host}")));
    vec![
        none("a space inside", "a b"),
        none("a tab inside", "a\tb"),
        none("a path", "a/b"),
        none("a query", "a?b"),
        none("a fragment", "a#b"),
        none("a user", "u@a"),
        none("a URI", "http://a"),
        none("a list", "a, b"),
        none("a port that is no number", "a:x"),
        none("a negative port", "a:-1"),
        none("two ports", "a:80:80"),
        none("an IPv6 address without brackets", "2001:db8::1"),
        none("a bracket left open", "[::1"),
        none("an empty address", "[]"),
        none("an address that is none", "[1.2]"),
        none("a zone", "[fe80::1%25eth0]"),
        none("something after an address", "[::1]a"),
        none("an escape that is none", "a%zz"),
        none("an escape cut short", "a%4"),
        none("quotes", "\"a\""),
        none("a backslash", "a\\b"),
        none("UTF-8", "\u{e4}"),
        bad("a NUL", "9110 5.5", get("Host: a\0b")),
        bad(
            "invalid with absolute form",
            "9112 3.2",
            absolute("Host: a b\r\n"),
        ),
    ]
}

fn absolute(fields: &str) -> String {
    format!("GET http://a/ HTTP/1.1\r\n{fields}\r\n")
}

fn counts() -> Vec<Case> {
    vec![
        bad("missing", "9112 3.2", "GET / HTTP/1.1\r\n\r\n"),
        bad(
            "missing among others",
            "9112 3.2",
            get("Accept: a\r\nX-Host: h"),
        ),
        bad("missing with absolute form", "9112 3.2", absolute("")),
        bad(
            "missing for OPTIONS *",
            "9112 3.2",
            "OPTIONS * HTTP/1.1\r\n\r\n",
        ),
        bad("twice the same", "9112 3.2", get("Host: a\r\nHost: a")),
        bad("two", "9112 3.2", get("Host: a\r\nHost: b")),
        bad(
            "two, far apart",
            "9112 3.2",
            get("Host: a\r\nX: y\r\nZ: z\r\nhost: b"),
        ),
        bad("two, one empty", "9112 3.2", get("Host: a\r\nHost:")),
        bad(
            "two with absolute form",
            "9112 3.2",
            absolute("Host: a\r\nHost: b\r\n"),
        ),
        bad(
            "two in HTTP/1.0",
            "9112 3.2",
            "GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n",
        ),
    ]
}

fn old() -> Vec<Case> {
    vec![
        closed(
            "none in HTTP/1.0",
            "9112 3.2",
            "GET / HTTP/1.0\r\n\r\n",
            &["200 GET / -"],
        ),
        closed(
            "one in HTTP/1.0",
            "9112 3.2",
            "GET / HTTP/1.0\r\nHost: a\r\n\r\n",
            &["200 GET / a"],
        ),
        closed(
            "an invalid one in HTTP/1.0",
            "9112 3.2",
            "GET / HTTP/1.0\r\nHost: a b\r\n\r\n",
            &["400"],
        ),
        closed(
            "none in HTTP/1.0 with absolute form",
            "9112 3.2.2",
            "GET http://a/ HTTP/1.0\r\n\r\n",
            &["200 GET http://a/ a"],
        ),
    ]
}

fn others() -> Vec<Case> {
    vec![
        open(
            "another than the target's",
            "9112 3.2.2",
            absolute("Host: b\r\n"),
            &["200 GET http://a/ a"],
        ),
        open(
            "empty with absolute form",
            "9112 3.2.2",
            absolute("Host:\r\n"),
            &["200 GET http://a/ a"],
        ),
        open(
            "empty with OPTIONS *",
            "9112 3.2",
            "OPTIONS * HTTP/1.1\r\nHost:\r\n\r\n",
            &["200 OPTIONS * empty"],
        ),
    ]
}
