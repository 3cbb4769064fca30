//! HTTP/1.1 on the wire: a table of bytes, each with the section of RFC 9110, RFC 9112 or RFC 9931
//! that says how a server must respond. The server runs in this process.
//!
//! A case is a line in one of the files here: a name, a section, the bytes that a client sends, the
//! responses, and whether the connection ends with the last of them. The handler sends back what it
//! was given, so a smuggled request shows as one response too many. [`play`] says how often each
//! case is played, and how the bytes are cut.

mod chunked;
mod connection;
mod expect;
mod framing;
mod half_close;
mod host;
mod limits;
mod pipelining;
mod play;
mod request_line;
mod server;

use std::collections::BTreeSet;

use self::play::the_server_has_read_each_piece_before_the_next_is_sent;

/// The bytes that a client sends, and the responses that it must get.
pub(crate) struct Case {
    name: &'static str,
    /// The RFC and its section.
    section: &'static str,
    bytes: Vec<u8>,
    /// A status each, and the request as the handler got it, if it did: see [`server`].
    responses: Vec<String>,
    end: End,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// Another request is answered on the same connection, and nothing before it.
    Open,
    /// The server ends the connection, and does not respond to a request that follows.
    Closed,
    /// The server ends the connection. Bytes that follow would be the rest of the last request.
    ClosedInside,
    /// The client closes its side, and then the server ends the connection.
    HalfClosed,
}

/// The connection can be used again.
fn open(name: &'static str, section: &'static str, bytes: impl AsRef<[u8]>, said: &[&str]) -> Case {
    Case::new(name, section, bytes.as_ref(), said, End::Open)
}

/// The connection ends.
fn closed(
    name: &'static str,
    section: &'static str,
    bytes: impl AsRef<[u8]>,
    said: &[&str],
) -> Case {
    Case::new(name, section, bytes.as_ref(), said, End::Closed)
}

/// The client shuts down its writing side, and reads until the connection ends.
fn half_closed(
    name: &'static str,
    section: &'static str,
    bytes: impl AsRef<[u8]>,
    said: &[&str],
) -> Case {
    Case::new(name, section, bytes.as_ref(), said, End::HalfClosed)
}

/// The client gets 400 and nothing else, and the connection ends.
fn bad(name: &'static str, section: &'static str, bytes: impl AsRef<[u8]>) -> Case {
    closed(name, section, bytes, &["400"])
}

impl Case {
    fn new(
        name: &'static str,
        section: &'static str,
        bytes: &[u8],
        responses: &[&str],
        end: End,
    ) -> Self {
        Self {
            name,
            section,
            bytes: bytes.to_vec(),
            responses: responses
                .iter()
                .map(|&response| response.to_owned())
                .collect(),
            end,
        }
    }

    /// Bytes that a client sends after the case belong to its last request.
    fn inside(self) -> Self {
        Self {
            end: End::ClosedInside,
            ..self
        }
    }
}

/// The groups of cases, each of which is a test.
macro_rules! groups {
    ($($group:ident),+ $(,)?) => {
        tests! {
            $($group,)+
            the_server_has_read_each_piece_before_the_next_is_sent,
            the_table_has_150_cases_each_with_its_section,
        }

        const GROUPS: &[(&str, fn() -> Vec<Case>)] = &[$((stringify!($group), $group::cases)),+];
        $(fn $group() {
            play::all($group::cases());
        })+
    };
}

groups! {
    request_line,
    host,
    framing,
    chunked,
    limits,
    expect,
    connection,
    pipelining,
    half_close,
}

fn the_table_has_150_cases_each_with_its_section() {
    let mut names = BTreeSet::new();
    for (group, cases) in GROUPS {
        for case in cases() {
            let (name, section) = (case.name, case.section);
            assert!(
                names.insert((group, name)),
                "{group}: {name} is there twice"
            );
            let place = ["9110 ", "9112 ", "9931 "]
                .into_iter()
                .find_map(|rfc| section.strip_prefix(rfc));
            let is_place = |it: &str| it.split('.').all(|part| part.parse::<u8>().is_ok());
            assert!(place.is_some_and(is_place), "{group}: {name}: {section:?}");
        }
    }
    assert!(names.len() >= 150, "{} cases", names.len());
}
