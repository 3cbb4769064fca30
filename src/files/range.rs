//! The part of a file that a request asks for (RFC 9110 14).

use http::HeaderMap;
use http::header::RANGE;

/// The part of a file to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Range {
    Whole,
    /// From the byte `first` to the byte `last`, both included.
    Part {
        first: u64,
        last: u64,
    },
    /// The file has none of these bytes; 416.
    Beyond,
}

impl Range {
    /// The whole file, if the field is malformed: a server may always ignore it (RFC 9110 14.2). Of
    /// several parts the first that the file has: a client looks at what it got and asks for the
    /// next (15.3.7). zsync does so, and ends with an error if it gets the whole file. An empty
    /// file has no part that could be sent.
    pub(super) fn asked(headers: &HeaderMap, length: u64) -> Self {
        let mut lines = headers.get_all(RANGE).iter();
        let (Some(line), None) = (lines.next(), lines.next()) else {
            return Self::Whole;
        };
        if length == 0 {
            return Self::Whole;
        }
        let range = line.to_str().ok().and_then(|line| parse(line, length));
        range.unwrap_or(Self::Whole)
    }
}

/// The range; `None` if the field has no range of bytes, or a malformed one.
fn parse(line: &str, length: u64) -> Option<Range> {
    let (unit, set) = line.split_once('=')?;
    if !unit.eq_ignore_ascii_case("bytes") {
        return None;
    }
    // A list may have empty elements (RFC 9110 5.6.1.2).
    let specs = set.split(',').map(|spec| spec.trim_matches([' ', '\t']));
    let mut found = None;
    for spec in specs.filter(|spec| !spec.is_empty()) {
        let range = parse_one(spec, length)?;
        if matches!(found, None | Some(Range::Beyond)) {
            found = Some(range);
        }
    }
    found
}

fn parse_one(spec: &str, length: u64) -> Option<Range> {
    let (first, last) = match spec.split_once('-')? {
        ("", suffix) => match position(suffix)? {
            0 => return Some(Range::Beyond),
            suffix => (length.saturating_sub(suffix), u64::MAX),
        },
        (first, "") => (position(first)?, u64::MAX),
        (first, last) => (position(first)?, position(last)?),
    };
    match first {
        _ if first > last => None,
        _ if first >= length => Some(Range::Beyond),
        _ => Some(Range::Part {
            first,
            last: last.min(length - 1),
        }),
    }
}

/// Any number of digits (RFC 9110 14.1.1). A number that does not fit is beyond the end of any
/// file.
fn position(digits: &str) -> Option<u64> {
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| digits.parse().unwrap_or(u64::MAX))
}
