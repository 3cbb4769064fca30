//! How a case is played: its bytes in one write, then again cut in two at every place (a long case
//! at the line ends and at some other places), then byte by byte. The responses must be the same
//! each time. All this with an app on `service_fn`; with the other kinds of apps whole and byte by
//! byte.
//!
//! The server reads each piece before the next one is sent: in between, its event loop runs. Then
//! one more request is sent. It must get a response if the connection is to stay open, and must get
//! none if the connection is to end.

use std::collections::BTreeSet;
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;

use super::server::Server;
use super::{Case, End};
use crate::frameworks::Kind;
use crate::support::CEILING;

/// More failures than this in one group have one cause.
const FAILURES_MAX: usize = 5;

/// Up to this length a case is cut everywhere.
const CUT_EVERYWHERE: usize = 120;

const LAST: &[u8] = b"GET /last HTTP/1.1\r\nHost: last\r\nConnection: close\r\n\r\n";
const LAST_RESPONSE: &str = "200 GET /last last";
const SMUGGLED: &[u8] = b"GET /smuggled HTTP/1.1\r\nHost: h\r\n\r\n";

/// Plays each case in all ways, with an app of each kind.
pub(super) fn all(cases: Vec<Case>) {
    for kind in Kind::ALL {
        all_with(kind, &cases);
    }
}

/// Lists the failures.
fn all_with(kind: Kind, cases: &[Case]) {
    let server = Server::start(kind);
    let failures: Vec<String> = cases
        .iter()
        .filter_map(|case| play(&server, kind, case).err())
        .take(FAILURES_MAX)
        .collect();
    assert!(
        failures.is_empty(),
        "{kind:?}: {} of {} cases:\n{}",
        failures.len(),
        cases.len(),
        failures.join("\n")
    );
}

fn play(server: &Server, kind: Kind, case: &Case) -> Result<(), String> {
    let mut expected = case.responses.clone();
    if case.end == End::Open {
        expected.push(LAST_RESPONSE.to_owned());
    }
    let attempt = |bytes: &[u8], cuts: &[usize]| {
        let responses = exchange(server, bytes, cuts, case.end);
        if responses == expected {
            return Ok(());
        }
        let (name, section) = (case.name, case.section);
        let cuts = &cuts[..cuts.len().min(5)];
        Err(format!(
            "{name} (RFC {section}), cut at {cuts:?}:\n  expected {expected:?}\n  \
             got      {responses:?}"
        ))
    };
    let bytes = &case.bytes;
    attempt(bytes, &[])?;
    if case.end == End::Closed {
        attempt(&[bytes, SMUGGLED].concat(), &[])?;
    }
    // What parses the bytes does not depend on the kind of the app.
    if let Kind::ServiceFn = kind {
        for cut in places(bytes) {
            attempt(bytes, &[cut])?;
        }
    }
    if case.end == End::HalfClosed {
        // The server reads all bytes before it sees the client's end.
        attempt(bytes, &[bytes.len()])?;
    }
    if bytes.len() <= CUT_EVERYWHERE {
        attempt(bytes, &(1..bytes.len()).collect::<Vec<_>>())?;
    }
    Ok(())
}

/// The places to cut at.
fn places(bytes: &[u8]) -> BTreeSet<usize> {
    let len = bytes.len();
    if len <= CUT_EVERYWHERE {
        return (1..len).collect();
    }
    let near_line_ends = bytes
        .iter()
        .enumerate()
        .filter(|(_, byte)| matches!(byte, b'\r' | b'\n'))
        .flat_map(|(at, _)| at.saturating_sub(1)..=at + 2)
        .take(150);
    let here_and_there = (1..len).step_by(len / 20);
    near_line_ends
        .chain(here_and_there)
        .chain(1..20)
        .chain(len - 20..len)
        .filter(|cut| (1..len).contains(cut))
        .collect()
}

/// Sends the bytes in pieces, and reads until the connection ends.
fn exchange(server: &Server, bytes: &[u8], cuts: &[usize], end: End) -> Vec<String> {
    let stream = UnixStream::connect(server.path()).expect("the server accepts");
    stream
        .set_read_timeout(Some(CEILING))
        .expect("a sane timeout");
    let mut at = 0;
    for &cut in cuts {
        send(&stream, &bytes[at..cut]);
        server.wait_until_seen();
        at = cut;
    }
    send(&stream, &bytes[at..]);
    match end {
        End::Open => send(&stream, LAST),
        // Fails if the server was faster.
        End::HalfClosed => drop(stream.shutdown(Shutdown::Write)),
        End::Closed | End::ClosedInside => {}
    }
    responses(&take_all(&stream))
}

fn send(mut stream: &UnixStream, bytes: &[u8]) {
    // A server that has refused the first bytes may be gone.
    let _ = stream.write_all(bytes);
}

fn take_all(mut stream: &UnixStream) -> Vec<u8> {
    let mut all = Vec::new();
    match stream.read_to_end(&mut all) {
        // A reset is an end. The bytes before it are in `all`.
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        Err(error) => all.extend_from_slice(format!("({error})").as_bytes()),
    }
    all
}

/// All cases depend on this: at a cut the server has read the bytes before it, and has responded.
pub(super) fn the_server_has_read_each_piece_before_the_next_is_sent() {
    let server = Server::start(Kind::ServiceFn);
    for _ in 0..100 {
        let stream = UnixStream::connect(server.path()).expect("the server accepts");
        stream.set_nonblocking(true).expect("a socket");
        for _ in 0..3 {
            send(&stream, SMUGGLED);
            server.wait_until_seen();
            let len = (&stream).read(&mut [0; 512]).expect("it is answered");
            assert!(len > 0, "it stays open");
        }
    }
}

/// Splits a stream into responses. Bytes that are no response are shown as they are.
fn responses(mut bytes: &[u8]) -> Vec<String> {
    let mut responses = Vec::new();
    while !bytes.is_empty() {
        let Some((response, rest)) = response(bytes) else {
            responses.push(format!("no response: {:?}", String::from_utf8_lossy(bytes)));
            break;
        };
        responses.push(response);
        bytes = rest;
    }
    responses
}

fn response(bytes: &[u8]) -> Option<(String, &[u8])> {
    let end = bytes.windows(4).position(|it| it == b"\r\n\r\n")? + 4;
    let head = std::str::from_utf8(&bytes[..end]).ok()?;
    let status = head.strip_prefix("HTTP/1.")?.get(2..5)?;
    let field = |name| {
        head.lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    };
    let is_empty = status.starts_with('1') || matches!(status, "204" | "304");
    let len = match field("content-length") {
        _ if is_empty || field("to-head").is_some() => 0,
        Some(len) => len.parse().ok()?,
        None => return None,
    };
    let body = std::str::from_utf8(bytes.get(end..end + len)?).ok()?;
    let gap = if body.is_empty() { "" } else { " " };
    Some((format!("{status}{gap}{body}"), &bytes[end + len..]))
}
