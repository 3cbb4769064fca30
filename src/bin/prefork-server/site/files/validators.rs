//! The entity tag and the date of a version of a file, and conditional requests (RFC 9110 8.8, 13).

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, UNIX_EPOCH};

use http::header::{
    ETAG, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE, LAST_MODIFIED,
};
use http::{HeaderMap, HeaderName, HeaderValue};
use httpdate::{fmt_http_date, parse_http_date};

use super::encoding::Encoding;

/// The first second that an HTTP date cannot express: the year 10000.
const DATES_END: u64 = 253_402_300_800;

/// The validators of one representation of a file.
#[derive(Debug)]
pub(super) struct Validators {
    etag: HeaderValue,
    /// In seconds since 1970. `None` for a time that an HTTP date cannot express.
    modified: Option<u64>,
}

/// The result of the conditions of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Send,
    /// 304
    NotModified,
    /// 412
    Failed,
}

impl Validators {
    pub(super) fn of(metadata: &Metadata, encoding: Option<Encoding>) -> Self {
        let (seconds, nanos) = (metadata.mtime(), metadata.mtime_nsec());
        let length = metadata.len();
        // A file and its compressed sibling may have the same time and length.
        let suffix = encoding.map_or("", Encoding::suffix);
        let etag = format!("\"{seconds:x}.{nanos:08x}-{length:x}{suffix}\"");
        let modified = u64::try_from(seconds).ok();
        Self {
            etag: HeaderValue::try_from(etag).expect("letters, digits and dots"),
            modified: modified.filter(|&seconds| seconds < DATES_END),
        }
    }

    pub(super) fn write(&self, headers: &mut HeaderMap) {
        headers.insert(ETAG, self.etag.clone());
        if let Some(seconds) = self.modified {
            let date = fmt_http_date(UNIX_EPOCH + Duration::from_secs(seconds));
            let date = HeaderValue::try_from(date).expect("a date is ASCII");
            headers.insert(LAST_MODIFIED, date);
        }
    }

    /// Checks the conditions in the order of RFC 9110 13.2.2.
    pub(super) fn judge(&self, headers: &HeaderMap) -> Verdict {
        let is_unmet = match self.is_listed(headers, IF_MATCH, strong) {
            Some(listed) => !listed,
            None => self.is_newer(headers, IF_UNMODIFIED_SINCE) == Some(true),
        };
        if is_unmet {
            return Verdict::Failed;
        }
        let is_known = match self.is_listed(headers, IF_NONE_MATCH, weak) {
            Some(listed) => listed,
            None => self.is_newer(headers, IF_MODIFIED_SINCE) == Some(false),
        };
        match is_known {
            true => Verdict::NotModified,
            false => Verdict::Send,
        }
    }

    /// Whether a range may be sent: the client has the rest of the same version, if it says which
    /// one (RFC 9110 13.1.5).
    pub(super) fn allow_range(&self, headers: &HeaderMap) -> bool {
        match headers.get(IF_RANGE) {
            None => true,
            Some(validator) if *validator == self.etag => true,
            Some(validator) => {
                let date = seconds(validator);
                date.is_some() && date == self.modified
            }
        }
    }

    /// Whether the list names this version; `None` if there is no list. Several lines are one list
    /// (RFC 9110 5.3). Our tags have no comma, so to split at a comma inside a foreign tag cannot
    /// make a match.
    fn is_listed(
        &self,
        headers: &HeaderMap,
        name: HeaderName,
        tag: fn(&[u8]) -> &[u8],
    ) -> Option<bool> {
        let lines = headers.get_all(name).into_iter();
        let tags = lines.flat_map(|line| line.as_bytes().split(|&byte| byte == b','));
        let mut tags = tags.map(<[u8]>::trim_ascii).filter(|tag| !tag.is_empty());
        let first = tags.next()?;
        let is_ours = |found: &[u8]| found == b"*" || tag(found) == self.etag.as_bytes();
        Some(is_ours(first) || tags.any(is_ours))
    }

    /// Whether this version is newer than the date; `None` if one of the two dates is missing or
    /// malformed.
    fn is_newer(&self, headers: &HeaderMap, name: HeaderName) -> Option<bool> {
        let mut lines = headers.get_all(name).iter();
        let (line, None) = (lines.next()?, lines.next()) else {
            return None;
        };
        Some(self.modified? > seconds(line)?)
    }
}

/// The tag itself, for the strong comparison, in which no weak tag matches (RFC 9110 8.8.3.2).
fn strong(tag: &[u8]) -> &[u8] {
    tag
}

fn weak(tag: &[u8]) -> &[u8] {
    tag.strip_prefix(b"W/").unwrap_or(tag)
}

/// An HTTP date in seconds since 1970.
fn seconds(date: &HeaderValue) -> Option<u64> {
    let time = parse_http_date(date.to_str().ok()?).ok()?;
    Some(time.duration_since(UNIX_EPOCH).ok()?.as_secs())
}
