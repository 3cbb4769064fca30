//! Detects the HTTP/2 preface at the start of a connection (RFC 9113 3.4). hyper's HTTP/1 parser
//! reports a preface only if it comes in one piece. So a part of a preface is withheld here until
//! it is complete, or turns out to be something else.

use crate::http::options::Http;
use crate::http::registry::state::{ConnState, Stage};

/// First bytes of an HTTP/2 client. No HTTP/1 request begins with them.
pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// What the first bytes of a connection are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Preface {
    /// This many bytes of the preface have come. They are withheld from the protocol.
    Awaited { withheld: usize },
    /// The preface is complete.
    Whole,
    /// The connection began with other bytes, or the server does not look for a preface.
    Absent,
}

impl Preface {
    const AWAITED: Self = Self::Awaited { withheld: 0 };

    /// Looks for the preface if the client may not have sent anything yet. A connection that was
    /// handed over while idle, or that the other server gave back, is one of these: its client may
    /// have sent nothing so far.
    pub(crate) fn expected(http: &Http, state: &ConnState) -> Self {
        match state.stage() {
            Stage::Fresh | Stage::Idle if http.speaks_http2() && !state.has_requested() => {
                Self::AWAITED
            }
            _ => Self::Absent,
        }
    }

    /// Number of withheld bytes. They are passed on before the next ones.
    pub(crate) fn withheld(self) -> usize {
        match self {
            Self::Awaited { withheld } => withheld,
            Self::Whole | Self::Absent => 0,
        }
    }

    /// Takes the bytes of one read; an empty slice is the end of file. Returns the withheld bytes
    /// that go before them, or `None` if these bytes are withheld too.
    pub(crate) fn check(&mut self, read: &[u8]) -> Option<&'static [u8]> {
        let Self::Awaited { withheld } = *self else {
            return Some(b"");
        };
        let (before, missing) = PREFACE.split_at(withheld);
        if read.starts_with(missing) {
            *self = Self::Whole;
        } else if missing.starts_with(read) && !read.is_empty() {
            *self = Self::Awaited {
                withheld: withheld + read.len(),
            };
            return None;
        } else {
            *self = Self::Absent;
        }
        Some(before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks these pieces. Returns the bytes that are passed on, and the state after the last
    /// piece.
    fn checked(pieces: &[&[u8]]) -> (Vec<u8>, Preface) {
        let mut preface = Preface::AWAITED;
        let mut passed = Vec::new();
        for piece in pieces {
            if let Some(before) = preface.check(piece) {
                passed.extend_from_slice(before);
                passed.extend_from_slice(piece);
            }
        }
        (passed, preface)
    }

    #[test]
    fn a_preface_is_found_wherever_it_is_split() {
        for first in 1..PREFACE.len() {
            for second in first + 1..PREFACE.len() {
                let pieces = [
                    &PREFACE[..first],
                    &PREFACE[first..second],
                    &PREFACE[second..],
                    b"more",
                ];
                let whole = [PREFACE, b"more"].concat();
                assert_eq!(checked(&pieces), (whole, Preface::Whole));
            }
        }
    }

    #[test]
    fn other_bytes_are_passed_on_at_the_first_difference() {
        assert_eq!(checked(&[b"GET /"]), (b"GET /".to_vec(), Preface::Absent));
        assert_eq!(
            checked(&[b"P", b"OST /"]),
            (b"POST /".to_vec(), Preface::Absent)
        );
        assert_eq!(checked(&[b"PRI", b""]), (b"PRI".to_vec(), Preface::Absent));
    }
}
