//! The lines that requests leave in the access log.

use std::fs;

use nix::sys::signal::Signal;

use crate::client::{Client, get};
use crate::support::{Server, until};

tests! {
    requests_that_the_server_refuses_are_logged,
    fields_that_were_not_parsed_are_null_in_json,
    reopening_the_access_log_is_logged,
}

/// The line of a request that no handler got has the fields that were read, and `-` for the others.
fn requests_that_the_server_refuses_are_logged() {
    let dir = tempfile::tempdir().expect("a directory");
    let log = dir.path().join("log");
    let path = log.to_str().expect("text");
    let options = ["--header-timeout", "500ms", "--respond", "hi"];
    let options = [&["--access-log", path], &options[..]].concat();
    let mut server = Server::start(&options);
    let address = server.address();
    let long = format!("/{}", "a".repeat(9000));
    let field = "b".repeat(20_000);
    let asked = [
        ("no request\r\n\r\n".to_owned(), 400),
        (
            "GET / HTTP/1.1\r\nUser-Agent: no host\r\n\r\n".to_owned(),
            400,
        ),
        ("GET / HTTP/1.1\r\nHost: te".to_owned(), 408),
        (
            "PUT /up HTTP/1.1\r\nHost: test\r\nContent-Length: 5000000\r\n\r\n".to_owned(),
            413,
        ),
        (format!("GET {long} HTTP/1.1\r\nHost: test\r\n\r\n"), 414),
        (
            format!("GET / HTTP/1.1\r\nHost: test\r\nX-Large: {field}\r\n\r\n"),
            431,
        ),
        (
            format!("GET / HTTP/1.1\r\nHost: test\r\nX-Larger: {field}{field}\r\n\r\n"),
            431,
        ),
    ];
    for (request, status) in asked {
        let mut client = Client::connect(address);
        client.send(&request);
        let line = client.take("HTTP/1.1 400".len());
        assert_eq!(line, format!("HTTP/1.1 {status}").into_bytes());
    }
    assert_eq!(get(address, "/served").body, "hi");
    server.signal(Signal::SIGTERM);
    assert_eq!(server.end().code, Some(0));

    let log = fs::read_to_string(log).expect("it was written");
    let mut lines: Vec<_> = log
        .lines()
        .map(|line| {
            let (client, rest) = line.split_once(" - - [").expect("the client");
            assert_eq!(client, "127.0.0.1");
            let (_, rest) = rest.split_once("] ").expect("the time");
            rest.rsplit_once(' ').expect("the seconds").0.to_owned()
        })
        .collect();
    lines.sort_unstable();
    let cut = &long[..2048];
    let mut expected = [
        r#""-" 400 0 "-" "-""#.to_owned(),
        r#""GET / HTTP/1.1" 400 0 "-" "no host""#.to_owned(),
        r#""-" 408 0 "-" "-""#.to_owned(),
        r#""PUT /up HTTP/1.1" 413 0 "-" "-""#.to_owned(),
        format!(r#""GET {cut} HTTP/1.1" 414 0 "-" "-""#),
        r#""GET / HTTP/1.1" 431 0 "-" "-""#.to_owned(),
        r#""-" 431 0 "-" "-""#.to_owned(),
        r#""GET /served HTTP/1.1" 200 2 "-" "-""#.to_owned(),
    ];
    expected.sort_unstable();
    assert_eq!(lines, expected);
}

fn fields_that_were_not_parsed_are_null_in_json() {
    let dir = tempfile::tempdir().expect("a directory");
    let log = dir.path().join("log");
    let path = log.to_str().expect("text");
    let mut server = Server::start(&["--access-log", path, "--log-format", "json"]);
    let mut client = Client::connect(server.address());
    client.send("no request\r\n\r\n");
    client.take(1);
    server.signal(Signal::SIGTERM);
    assert_eq!(server.end().code, Some(0));
    let log = fs::read_to_string(log).expect("it was written");
    let line: serde_json::Value = serde_json::from_str(&log).expect("one object");
    assert_eq!(line["status"], 400);
    for name in ["method", "target", "version", "referer", "user_agent"] {
        assert_eq!(line.get(name), Some(&serde_json::Value::Null), "{name}");
    }
}

/// The worker creates the new file, and the master logs the signal once.
fn reopening_the_access_log_is_logged() {
    let dir = tempfile::tempdir().expect("a directory");
    let log = dir.path().join("log");
    let mut server = Server::start(&["--access-log", log.to_str().expect("text")]);
    server.address();
    fs::rename(&log, dir.path().join("old")).expect("it is ours");
    server.signal(Signal::SIGUSR1);
    until(|| log.exists());
    assert_eq!(server.log().matches("logs are reopened").count(), 1);
}
