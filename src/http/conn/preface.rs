//! Whether a connection begins as HTTP/2 does (RFC 9113 3.4). hyper's HTTP/1 tells, but only of a
//! preface that comes in one piece; so a part of one is kept here until it is whole, or none.

use crate::http::options::Http;
use crate::http::registry::state::{ConnState, Stage};

/// What an HTTP/2 client says first. No HTTP/1 request begins so.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// What is known of a connection's first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Preface {
    /// So many bytes of it have come, and are kept.
    Awaited { kept: usize },
    /// It has come.
    Whole,
    /// The connection began otherwise, or nobody asks.
    Absent,
}

impl Preface {
    const AWAITED: Self = Self::Awaited { kept: 0 };

    /// It is heard as the first thing on a connection only. Of one that was idle elsewhere, or on
    /// its way there, nobody knows whether its client had said anything.
    pub(crate) fn expected(http: &Http, state: &ConnState) -> Self {
        match state.stage() {
            Stage::Fresh | Stage::Idle if http.speaks_http2() && !state.has_requested() => {
                Self::AWAITED
            }
            _ => Self::Absent,
        }
    }

    /// How many bytes are to be passed on with the next ones.
    pub(crate) fn kept(self) -> usize {
        match self {
            Self::Awaited { kept } => kept,
            Self::Whole | Self::Absent => 0,
        }
    }

    /// Takes what was read; none is the end of file. Says what goes before it, or `None` if it is
    /// kept too.
    pub(crate) fn judge(&mut self, read: &[u8]) -> Option<&'static [u8]> {
        let Self::Awaited { kept } = *self else {
            return Some(b"");
        };
        let (before, missing) = PREFACE.split_at(kept);
        if read.starts_with(missing) {
            *self = Self::Whole;
        } else if missing.starts_with(read) && !read.is_empty() {
            *self = Self::Awaited {
                kept: kept + read.len(),
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

    /// What is passed on of these pieces, and what is known then.
    fn judged(pieces: &[&[u8]]) -> (Vec<u8>, Preface) {
        let mut preface = Preface::AWAITED;
        let mut passed = Vec::new();
        for piece in pieces {
            if let Some(before) = preface.judge(piece) {
                passed.extend_from_slice(before);
                passed.extend_from_slice(piece);
            }
        }
        (passed, preface)
    }

    #[test]
    fn a_preface_is_known_wherever_it_is_split() {
        for first in 1..PREFACE.len() {
            for second in first + 1..PREFACE.len() {
                let pieces = [
                    &PREFACE[..first],
                    &PREFACE[first..second],
                    &PREFACE[second..],
                    b"more",
                ];
                let whole = [PREFACE, b"more"].concat();
                assert_eq!(judged(&pieces), (whole, Preface::Whole));
            }
        }
    }

    #[test]
    fn what_is_none_is_passed_on_as_soon_as_that_is_known() {
        assert_eq!(judged(&[b"GET /"]), (b"GET /".to_vec(), Preface::Absent));
        assert_eq!(
            judged(&[b"P", b"OST /"]),
            (b"POST /".to_vec(), Preface::Absent)
        );
        assert_eq!(judged(&[b"PRI", b""]), (b"PRI".to_vec(), Preface::Absent));
    }
}
