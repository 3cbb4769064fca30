//! The request line, and bytes that may come before it.

use super::{Case, bad, closed, open};

pub(super) fn cases() -> Vec<Case> {
    let mut cases = targets();
    cases.extend(absolute());
    cases.extend(bad_targets());
    cases.extend(methods());
    cases.extend(versions());
    cases.extend(spaces());
    cases
}

/// A head with this request line.
fn line(line: &str) -> String {
    format!("{line}\r\nHost: h\r\n\r\n")
}

/// A target of GET, and the target and host that the handler gets.
fn fine(name: &'static str, section: &'static str, target: &str, said: &str) -> Case {
    let request = line(&format!("GET {target} HTTP/1.1"));
    open(name, section, request, &[&format!("200 GET {said}")])
}

fn targets() -> Vec<Case> {
    vec![
        fine("origin form", "9112 3.2.1", "/a", "/a h"),
        fine(
            "origin form with a query",
            "9112 3.2.1",
            "/a?b=/c?d",
            "/a?b=/c?d h",
        ),
        fine(
            "a path that looks like a host",
            "9112 3.2.1",
            "//a/b",
            "//a/b h",
        ),
        fine("an escape", "9112 3.2.1", "/%2F%41", "/%2F%41 h"),
        // No server frames by the target, and clients request files of such names without escapes.
        fine("an escape that is none", "9112 3.2", "/%zz", "/%zz h"),
        fine("UTF-8, unescaped", "9112 3.2", "/\u{e4}", "/\u{e4} h"),
        fine("braces, unescaped", "9112 3.2", "/{a}", "/{a} h"),
        // hyper removes the fragment before other code gets the target. This does no harm: all code
        // after it sees the same target, and servers agree where the target ends.
        fine("a fragment is cut off", "9112 3.2", "/a#b", "/a h"),
        open(
            "asterisk form",
            "9112 3.2.4",
            line("OPTIONS * HTTP/1.1"),
            &["200 OPTIONS * h"],
        ),
        closed(
            "authority form, and no tunnel",
            "9931 8",
            line("CONNECT h:443 HTTP/1.1"),
            &["405 CONNECT h:443 h:443"],
        ),
    ]
}

fn absolute() -> Vec<Case> {
    vec![
        fine("absolute form", "9112 3.2.2", "http://h/a", "http://h/a h"),
        fine(
            "absolute form without a path",
            "9112 3.2.2",
            "http://h",
            "http://h/ h",
        ),
        fine(
            "absolute form, of https",
            "9112 3.2.2",
            "https://h/",
            "https://h/ h",
        ),
        fine(
            "absolute form, in capitals",
            "9110 4.2.3",
            "HTTP://h/",
            "http://h/ h",
        ),
        fine(
            "absolute form, IPv6",
            "9112 3.2.2",
            "http://[::1]:80/",
            "http://[::1]:80/ [::1]:80",
        ),
        fine(
            "absolute form is heard, not Host",
            "9112 3.2.2",
            "http://a/",
            "http://a/ a",
        ),
    ]
}

fn bad_targets() -> Vec<Case> {
    let none = |name, section, start: &str| bad(name, section, line(&format!("{start} HTTP/1.1")));
    vec![
        none("asterisk form, not for OPTIONS", "9112 3.2.4", "GET *"),
        none("a word", "9112 3.2", "GET foo"),
        none("a relative path", "9112 3.2.1", "GET foo/bar"),
        none("a query alone", "9112 3.2.1", "GET ?a"),
        none("authority form, not for CONNECT", "9112 3.2.3", "GET h:80"),
        none("CONNECT to a path", "9112 3.2.3", "CONNECT /"),
        none("CONNECT to a URI", "9112 3.2.3", "CONNECT http://h:80/"),
        none("CONNECT to an asterisk", "9112 3.2.3", "CONNECT *"),
        none("CONNECT without a port", "9110 9.3.6", "CONNECT h"),
        none("CONNECT to an empty port", "9110 9.3.6", "CONNECT h:"),
        none("CONNECT to port 0", "9110 9.3.6", "CONNECT h:0"),
        none(
            "CONNECT to a port beyond all",
            "9110 9.3.6",
            "CONNECT h:65536",
        ),
        none("CONNECT with a user", "9112 3.2.3", "CONNECT u@h:443"),
        none("absolute form with a user", "9110 4.2.4", "GET http://u@h/"),
        none(
            "absolute form with a password",
            "9110 4.2.4",
            "GET http://u:p@h/",
        ),
        none(
            "absolute form without a host",
            "9110 4.2.1",
            "GET http:///a",
        ),
        none(
            "absolute form with a port alone",
            "9110 4.2.1",
            "GET http://:80/",
        ),
        none(
            "absolute form of another scheme",
            "9112 3.2.2",
            "GET ftp://h/",
        ),
        none(
            "absolute form with a bad host",
            "9112 3.2.2",
            "GET http://h%zz/",
        ),
        none("an empty target", "9112 3", "GET "),
        none("a control character", "9112 3.2", "GET /a\x01b"),
        none("a NUL", "9112 3.2", "GET /a\0b"),
        none("a DEL", "9112 3.2", "GET /a\x7fb"),
        none("a bare CR", "9112 2.2", "GET /a\rb"),
        bad(
            "bytes that are no text",
            "9112 3.2",
            b"GET /\xff HTTP/1.1\r\nHost: h\r\n\r\n",
        ),
        bad(
            "a space in the target",
            "9112 3.2",
            line("GET /a b HTTP/1.1"),
        ),
    ]
}

fn methods() -> Vec<Case> {
    let fine = |name, method: &str| {
        let request = line(&format!("{method} / HTTP/1.1"));
        open(name, "9110 9.1", request, &[&format!("200 {method} / h")])
    };
    let none = |name, method: &str| bad(name, "9112 3.1", line(&format!("{method} / HTTP/1.1")));
    vec![
        // Methods are case-sensitive: this is not GET. The handler decides what it is.
        fine("a method in lower case", "get"),
        fine("a method of another RFC", "PROPFIND"),
        fine(
            "a method of every character allowed",
            "!#$%&'*+-.^_`|~09azAZ",
        ),
        fine("a long method", &"M".repeat(60)),
        none("a parenthesis in the method", "GE(T"),
        none("a colon in the method", "GET:"),
        none("a control character in the method", "GE\x01T"),
        none("a NUL before the method", "\0GET"),
        none("no method", ""),
        bad(
            "a method beyond ASCII",
            "9112 3.1",
            b"G\xc3\x84T / HTTP/1.1\r\nHost: h\r\n\r\n",
        ),
    ]
}

fn versions() -> Vec<Case> {
    let none = |name, version: &str| bad(name, "9112 2.3", line(&format!("GET / {version}")));
    vec![
        bad("HTTP/0.9", "9112 3", "GET /\r\n\r\n"),
        none("no version", ""),
        none("HTTP/1.2", "HTTP/1.2"),
        none("HTTP/1.10", "HTTP/1.10"),
        none("HTTP/1.", "HTTP/1."),
        none("HTTP/1", "HTTP/1"),
        none("HTTP/2.0", "HTTP/2.0"),
        none("HTTP/0.9, said aloud", "HTTP/0.9"),
        none("HTTP/01.1", "HTTP/01.1"),
        none("HTTP/1,1", "HTTP/1,1"),
        none("the name in lower case", "http/1.1"),
        none("another protocol", "HTCPCP/1.0"),
        none("a space in the version", "HTTP/ 1.1"),
    ]
}

fn spaces() -> Vec<Case> {
    let none = |name, request_line: &str| bad(name, "9112 3", line(request_line));
    let get = "GET / HTTP/1.1\r\nHost: h\r\n\r\n";
    let fine =
        |name, before: &str| open(name, "9112 2.2", format!("{before}{get}"), &["200 GET / h"]);
    vec![
        fine("an empty line before it", "\r\n"),
        fine("three empty lines before it", "\r\n\r\n\r\n"),
        fine("a bare LF before it", "\n"),
        bad("a bare CR before it", "9112 2.2", format!("\r{get}")),
        none("two spaces before the target", "GET  / HTTP/1.1"),
        none("two spaces before the version", "GET /  HTTP/1.1"),
        none("a space after the version", "GET / HTTP/1.1 "),
        none("a tab before the target", "GET\t/ HTTP/1.1"),
        none("a tab before the version", "GET /\tHTTP/1.1"),
        none("a space before the method", " GET / HTTP/1.1"),
        none("a vertical tab", "GET /\x0bHTTP/1.1"),
        none("a bare CR at its end", "GET / HTTP/1.1\rX: y"),
        closed(
            "a field before it",
            "9112 2.2",
            format!("X: y\r\n{get}"),
            &["400"],
        ),
    ]
}
