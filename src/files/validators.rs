//! The entity tag and the date of a version of a file, and conditional requests (RFC 9110 8.8, 13).

use std::fs::Metadata;
use std::hash::Hasher;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::header::{
    ETAG, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE, LAST_MODIFIED,
};
use http::{HeaderMap, HeaderName, HeaderValue};
use httpdate::{fmt_http_date, parse_http_date};

use super::encoding::Encoding;

/// The first second that an HTTP date cannot express: the year 10000.
const DATES_END: u64 = 253_402_300_800;

/// The first second that a file may really be from. Some builds give each file the time 0 (OSTree)
/// or 1 (Nix). If a response has no `Cache-Control`, a browser uses it for a tenth of its age
/// without a question (RFC 9111 4.2.2): with such a date it would show an old page for years.
const DATES_BEGIN: u64 = 2;

/// A change that comes so many seconds after a date has another date. One second would do if all
/// clocks were exact.
const DATE_SETTLED: u64 = 2;

/// The validators of one version of one file.
#[derive(Debug)]
pub(super) struct Validators {
    /// The tag with its quotes, without the mark of a weak one.
    tag: String,
    /// What is sent.
    etag: HeaderValue,
    strength: Strength,
    /// In seconds since 1970, and as it is sent. `None` for a time that no HTTP date can express,
    /// and for one before [`DATES_BEGIN`].
    modified: Option<(u64, HeaderValue)>,
}

/// Whether two bodies with the same tag have the same bytes (RFC 9110 8.8.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Strength {
    Strong,
    Weak,
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
    /// `contents` are the bytes, if they are known: builds may give each version of a file the same
    /// time. `coding` is what tells a compressed file from the plain one: both may have the same
    /// time and length.
    pub(super) fn of(
        metadata: &Metadata,
        contents: Option<&[u8]>,
        coding: &str,
        strength: Strength,
    ) -> Self {
        let (seconds, nanos) = (metadata.mtime(), metadata.mtime_nsec());
        let length = metadata.len();
        let hash = contents.map_or_else(String::new, |bytes| format!("-{:016x}", hash(bytes)));
        let tag = format!("\"{seconds:x}.{nanos:08x}-{length:x}{hash}{coding}\"");
        let etag = match strength {
            Strength::Strong => HeaderValue::try_from(&tag),
            Strength::Weak => HeaderValue::try_from(format!("W/{tag}")),
        };
        let modified = u64::try_from(seconds).ok();
        let modified = modified.filter(|seconds| (DATES_BEGIN..DATES_END).contains(seconds));
        Self {
            tag,
            etag: etag.expect("letters, digits and dots"),
            strength,
            modified: modified.map(|seconds| {
                let date = fmt_http_date(UNIX_EPOCH + Duration::from_secs(seconds));
                (
                    seconds,
                    HeaderValue::try_from(date).expect("a date is ASCII"),
                )
            }),
        }
    }

    /// Those of the same version after the server has compressed it.
    #[cfg(feature = "compression")]
    pub(super) fn compressed(&self, coding: &str) -> Self {
        let tag = format!("{}{coding}+\"", self.tag.trim_end_matches('"'));
        let etag = HeaderValue::try_from(format!("W/{tag}"));
        Self {
            tag,
            etag: etag.expect("letters, digits, dots and a plus"),
            strength: Strength::Weak,
            modified: self.modified.clone(),
        }
    }

    pub(super) fn write(&self, headers: &mut HeaderMap) {
        headers.insert(ETAG, self.etag.clone());
        if let Some((_, date)) = self.modified() {
            headers.insert(LAST_MODIFIED, date.clone());
        }
    }

    /// Checks the conditions in the order of RFC 9110 13.2.2.
    pub(super) fn judge(&self, headers: &HeaderMap) -> Verdict {
        let is_unmet = match self.is_listed(headers, IF_MATCH, |tag| self.strong(tag)) {
            Some(listed) => !listed,
            None => self.is_newer(headers, IF_UNMODIFIED_SINCE) == Some(true),
        };
        if is_unmet {
            return Verdict::Failed;
        }
        let is_known = match self.is_listed(headers, IF_NONE_MATCH, |tag| self.weak(tag)) {
            Some(listed) => listed,
            None => self.is_newer(headers, IF_MODIFIED_SINCE) == Some(false),
        };
        match is_known {
            true => Verdict::NotModified,
            false => Verdict::Send,
        }
    }

    /// Whether a range may be sent: the client has the rest of the same version, if it says which
    /// one (RFC 9110 13.1.5). A client such as apt has only the date. What the server compresses
    /// has the date of the plain file, so no date tells a client that accepts both which one it
    /// has.
    pub(super) fn allow_range(&self, headers: &HeaderMap) -> bool {
        headers.get(IF_RANGE).is_none_or(|validator| {
            let validator = validator.as_bytes();
            let has_one_form = || Encoding::accepted(headers).next().is_none();
            self.strong(validator) || (self.has_strong_date(validator, now()) && has_one_form())
        })
    }

    /// Whether this is the date of this version, and no later version can get it: its second is
    /// over (RFC 9110 8.8.2.2). An earlier version of the same second may have had it. The server
    /// cannot know that; nginx and Apache accept it too.
    fn has_strong_date(&self, date: &[u8], now: u64) -> bool {
        let modified = self.modified.as_ref();
        self.strength == Strength::Strong
            && modified.is_some_and(|(at, ours)| date == ours && at + DATE_SETTLED <= now)
    }

    /// Whether the list names this version; `None` if there is no list. An empty list names none.
    /// Several lines are one list (RFC 9110 5.3). Our tags have no comma, so to split at a comma
    /// inside a foreign tag cannot make a match.
    fn is_listed(
        &self,
        headers: &HeaderMap,
        name: HeaderName,
        is_ours: impl Fn(&[u8]) -> bool,
    ) -> Option<bool> {
        let mut lines = headers.get_all(name).into_iter().peekable();
        lines.peek()?;
        let tags = lines.flat_map(|line| line.as_bytes().split(|&byte| byte == b','));
        let mut tags = tags.map(<[u8]>::trim_ascii);
        Some(tags.any(|tag| tag == b"*" || is_ours(tag)))
    }

    /// Whether this version is newer than the date; `None` if one of the two dates is missing or
    /// malformed.
    fn is_newer(&self, headers: &HeaderMap, name: HeaderName) -> Option<bool> {
        let mut lines = headers.get_all(name).iter();
        let (line, None) = (lines.next()?, lines.next()) else {
            return None;
        };
        Some(self.modified()?.0 > seconds(line)?)
    }

    /// `None` as long as the time is in the future: it must not be sent then (RFC 9110 8.8.2.1). A
    /// client that has it would keep this version when the next one has a right time.
    fn modified(&self) -> Option<&(u64, HeaderValue)> {
        self.modified.as_ref().filter(|(at, _)| *at <= now())
    }

    /// The strong comparison, in which no weak tag matches (RFC 9110 8.8.3.2).
    fn strong(&self, tag: &[u8]) -> bool {
        self.strength == Strength::Strong && tag == self.tag.as_bytes()
    }

    fn weak(&self, tag: &[u8]) -> bool {
        tag.strip_prefix(b"W/").unwrap_or(tag) == self.tag.as_bytes()
    }
}

/// SipHash 2-4 with the key 0. std names the algorithm of this hasher only, so it is the same in
/// each release: the tags of two servers must be equal.
#[expect(deprecated, reason = "the algorithm of the newer one may change")]
fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = std::hash::SipHasher::new();
    hasher.write(bytes);
    hasher.finish()
}

/// In seconds since 1970.
fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or_default().as_secs()
}

/// An HTTP date in seconds since 1970.
fn seconds(date: &HeaderValue) -> Option<u64> {
    let time = parse_http_date(date.to_str().ok()?).ok()?;
    Some(time.duration_since(UNIX_EPOCH).ok()?.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By another implementation of SipHash 2-4.
    #[test]
    fn the_hash_is_the_same_in_each_release() {
        assert_eq!(hash(b"<p>hi"), 0x5669_4287_3a5f_0f3a);
        assert_eq!(hash(b"0123456789"), 0x5830_7d8e_8396_0833);
    }

    #[test]
    fn a_date_is_a_strong_validator_when_its_second_is_over() {
        let file = tempfile::tempfile().expect("a file");
        let time = UNIX_EPOCH + Duration::from_millis(1_000_000_999);
        file.set_modified(time).expect("it is open");
        let metadata = file.metadata().expect("it is open");
        let date = b"Mon, 12 Jan 1970 13:46:40 GMT";
        for (strength, date, now, expected) in [
            (Strength::Strong, date, 999_999, false),
            (Strength::Strong, date, 1_000_001, false),
            (Strength::Strong, date, 1_000_002, true),
            (Strength::Weak, date, 1_000_002, false),
            (
                Strength::Strong,
                b"Mon, 12 Jan 1970 13:46:41 GMT",
                1_000_002,
                false,
            ),
        ] {
            let validators = Validators::of(&metadata, None, "", strength);
            let is_strong = validators.has_strong_date(date, now);
            assert_eq!(is_strong, expected, "{strength:?} {now}");
        }
    }
}
