//! How long a connection lasts, and responses without a body.

use super::{Case, closed, open};

pub(super) fn cases() -> Vec<Case> {
    let mut cases = new();
    cases.extend(old());
    cases.extend(upgrades());
    cases.extend(without_body());
    cases
}

fn get(fields: &str) -> String {
    format!("GET / HTTP/1.1\r\nHost: h\r\n{fields}\r\n")
}

fn new() -> Vec<Case> {
    let said = &["200 GET / h"];
    let ends = |name, fields: &str| closed(name, "9112 9.6", get(fields), said);
    let stays = |name, fields: &str| open(name, "9112 9.3", get(fields), said);
    vec![
        stays("nothing said", ""),
        stays("keep-alive", "Connection: keep-alive\r\n"),
        stays("an option that is not known", "Connection: x-thing\r\n"),
        stays("no option", "Connection:\r\n"),
        stays("a word that begins alike", "Connection: closed\r\n"),
        stays("a field that is none", "Proxy-Connection: close\r\n"),
        ends("close", "Connection: close\r\n"),
        ends("close in capitals", "CONNECTION: Close\r\n"),
        ends("close in a list", "Connection: te, close, x\r\n"),
        ends("close behind a comma", "Connection: ,close\r\n"),
        ends(
            "close in the second field",
            "Connection: x\r\nConnection: close\r\n",
        ),
        ends(
            "close, then keep-alive",
            "Connection: close\r\nConnection: keep-alive\r\n",
        ),
        ends(
            "keep-alive, then close",
            "Connection: keep-alive\r\nConnection: close\r\n",
        ),
        ends("both at once", "Connection: keep-alive, close\r\n"),
    ]
}

fn old() -> Vec<Case> {
    let get = |fields: &str| format!("GET / HTTP/1.0\r\nHost: h\r\n{fields}\r\n");
    let said = &["200 GET / h"];
    vec![
        closed("HTTP/1.0", "9112 9.3", get(""), said),
        open(
            "HTTP/1.0 with keep-alive",
            "9112 9.3",
            get("Connection: keep-alive\r\n"),
            said,
        ),
        open(
            "HTTP/1.0 with keep-alive in capitals",
            "9112 9.3",
            get("Connection: Keep-Alive\r\n"),
            said,
        ),
        open(
            "HTTP/1.0 with keep-alive in a list",
            "9112 9.3",
            get("Connection: x, keep-alive\r\n"),
            said,
        ),
        closed(
            "HTTP/1.0 with close",
            "9112 9.3",
            get("Connection: close\r\n"),
            said,
        ),
        closed(
            "HTTP/1.0 with both",
            "9112 9.3",
            get("Connection: close\r\nConnection: keep-alive\r\n"),
            said,
        ),
        closed(
            "HTTP/1.0 with a field of its own",
            "9112 9.3",
            get("Keep-Alive: 5\r\n"),
            said,
        ),
    ]
}

fn upgrades() -> Vec<Case> {
    let said = &["200 GET / h"];
    let offer = "Upgrade: websocket\r\nConnection: upgrade";
    vec![
        open(
            "an upgrade that is not granted",
            "9110 7.8",
            get(&format!("{offer}\r\n")),
            said,
        ),
        open(
            "an upgrade without its option",
            "9110 7.8",
            get("Upgrade: x\r\n"),
            said,
        ),
        closed(
            "an upgrade that is not granted, and close",
            "9110 7.8",
            get(&format!("{offer}, close\r\n")),
            said,
        ),
        closed(
            "an upgrade that is not granted, and close later",
            "9110 7.8",
            get(&format!("{offer}\r\n")) + &get("Connection: close\r\n"),
            &["200 GET / h", "200 GET / h"],
        ),
        open(
            "an upgrade offered with a body",
            "9110 7.8",
            get(&format!("{offer}\r\nContent-Length: 5\r\n")) + "hello",
            &["200 GET / h [hello]"],
        ),
        closed(
            "an upgrade in HTTP/1.0",
            "9110 7.8",
            format!("GET / HTTP/1.0\r\nHost: h\r\n{offer}\r\n\r\n"),
            said,
        ),
    ]
}

fn without_body() -> Vec<Case> {
    let line = |line: &str| format!("{line} HTTP/1.1\r\nHost: h\r\n\r\n");
    vec![
        open("HEAD", "9110 9.3.2", line("HEAD /"), &["200"]),
        open("204", "9112 6.3", line("GET /204"), &["204"]),
        open("304", "9112 6.3", line("GET /304"), &["304"]),
        open("HEAD of 204", "9112 6.3", line("HEAD /204"), &["204"]),
        open("HEAD of 304", "9112 6.3", line("HEAD /304"), &["304"]),
        open(
            "HEAD, 204 and 304 in a row",
            "9112 6.3",
            line("HEAD /") + &line("GET /204") + &line("GET /304") + &line("GET /"),
            &["200", "204", "304", "200 GET / h"],
        ),
        open(
            "HEAD with a body",
            "9112 6.3",
            "HEAD / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello",
            &["200"],
        ),
        closed(
            "HEAD in HTTP/1.0",
            "9110 9.3.2",
            "HEAD / HTTP/1.0\r\n\r\n",
            &["200"],
        ),
    ]
}
