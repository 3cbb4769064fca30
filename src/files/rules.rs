//! Fields that the user adds to the responses of some files.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE,
    DATE, ETAG, LAST_MODIFIED, LOCATION, TRAILER, TRANSFER_ENCODING, UPGRADE, VARY,
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use super::hashed::has_hash;

/// A file with the same name will never have other bytes, so a browser need not ask again.
const NEVER_CHANGES: HeaderValue = HeaderValue::from_static("public, max-age=31536000, immutable");

/// A browser may keep the file, and asks before it uses it again.
const ASK_FIRST: HeaderValue = HeaderValue::from_static("no-cache");

/// Fields that the server computes, or that are the connection's.
const FIXED: [HeaderName; 13] = [
    ACCEPT_RANGES,
    CONNECTION,
    CONTENT_ENCODING,
    CONTENT_LENGTH,
    CONTENT_RANGE,
    DATE,
    ETAG,
    LAST_MODIFIED,
    LOCATION,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
    VARY,
];

/// A field for the responses of the files that a pattern matches.
///
/// It is written `PATTERN: NAME: VALUE`. In the pattern `*` stands for any characters but a slash,
/// `**` for any directories, `?` for one character, `[a-z]` for one of these and `{js,css}` for one
/// of these words. A pattern without a slash matches the last part of the path; any other matches
/// the whole path, so `/*.html` is for files of the directory itself.
///
/// The path is that of the file in the directory. A response without a file, such as a plain 404,
/// has the path of its request. An error (4xx, 5xx) gets `cache-control` only if that says
/// `no-store` or `no-cache`: a missing file may come, and no cache should keep its 404 until then.
///
/// ```
/// use prefork_server::files::{Files, HeaderRule};
///
/// let frames: HeaderRule = "**: X-Frame-Options: DENY".parse()?;
/// let fonts = HeaderRule::new("fonts/**", "cache-control", "max-age=86400")?;
/// let files = Files::new("./public").header(frames).header(fonts);
/// # Ok::<(), prefork_server::files::RuleError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderRule {
    pattern: String,
    name: HeaderName,
    value: HeaderValue,
}

impl HeaderRule {
    /// Fails if the pattern, the name or the value is malformed, or if the server itself computes
    /// the field, as it does `content-length`.
    pub fn new(pattern: &str, name: &str, value: &str) -> Result<Self, RuleError> {
        let refuse = |why| RuleError {
            rule: format!("{pattern}: {name}: {value}"),
            why,
        };
        if pattern.is_empty() {
            return Err(refuse(Why::NoPattern));
        }
        fast_glob::validate(pattern).map_err(|error| refuse(Why::Pattern(error)))?;
        let field = HeaderName::try_from(name).map_err(|_| refuse(Why::Name))?;
        if FIXED.contains(&field) {
            return Err(refuse(Why::Fixed));
        }
        Ok(Self {
            pattern: pattern.to_owned(),
            name: field,
            value: HeaderValue::try_from(value).map_err(|_| refuse(Why::Value))?,
        })
    }

    fn matches(&self, path: &[u8]) -> bool {
        let last = path.rsplit(|&byte| byte == b'/').next();
        let subject = match self.pattern.contains('/') {
            true => path,
            false => last.unwrap_or_default(),
        };
        let pattern = self.pattern.trim_start_matches('/');
        pattern == "**" || fast_glob::glob_match(pattern, subject)
    }
}

impl FromStr for HeaderRule {
    type Err = RuleError;

    fn from_str(rule: &str) -> Result<Self, RuleError> {
        let mut parts = rule.splitn(3, ':').map(str::trim);
        match (parts.next(), parts.next(), parts.next()) {
            (Some(pattern), Some(name), Some(value)) => Self::new(pattern, name, value),
            _ => Err(RuleError {
                rule: rule.to_owned(),
                why: Why::Form,
            }),
        }
    }
}

impl fmt::Display for HeaderRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = String::from_utf8_lossy(self.value.as_bytes());
        write!(f, "{}: {}: {value}", self.pattern, self.name)
    }
}

/// The reason why a [`HeaderRule`] was refused.
#[derive(Debug)]
pub struct RuleError {
    rule: String,
    why: Why,
}

#[derive(Debug)]
enum Why {
    Form,
    NoPattern,
    Pattern(fast_glob::Error),
    Name,
    Value,
    Fixed,
}

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the rule {:?} is wrong: ", self.rule)?;
        f.write_str(match &self.why {
            Why::Form => "it is not PATTERN: NAME: VALUE",
            Why::NoPattern => "its pattern is empty",
            Why::Pattern(error) => return write!(f, "in its pattern: {error}"),
            Why::Name => "its name is no name of a field",
            Why::Value => "its value has a character that no field may have",
            Why::Fixed => "the server computes that field itself",
        })
    }
}

impl std::error::Error for RuleError {}

/// Fields for the responses of one file.
pub(super) type Fields = Box<[(HeaderName, HeaderValue)]>;

/// All rules.
#[derive(Clone, Debug, Default)]
pub(super) struct Rules {
    pub(super) headers: Vec<HeaderRule>,
    pub(super) safe_caching: bool,
}

impl Rules {
    /// The fields for a file. The path has single slashes.
    pub(super) fn fields(&self, path: &[u8]) -> Fields {
        self.fields_after(path, || match has_hash(path) {
            true => NEVER_CHANGES,
            false => ASK_FIRST,
        })
    }

    /// The fields of a response without a file.
    pub(super) fn fields_without_file(&self, path: &[u8]) -> Fields {
        self.fields_after(&single_slashes(path), || ASK_FIRST)
    }

    /// Later rules come last, and replace earlier ones.
    fn fields_after(&self, path: &[u8], caching: impl FnOnce() -> HeaderValue) -> Fields {
        let safe = self.safe_caching.then(|| (CACHE_CONTROL, caching()));
        let chosen = self.headers.iter().filter(|rule| rule.matches(path));
        let chosen = chosen.map(|rule| (rule.name.clone(), rule.value.clone()));
        safe.into_iter().chain(chosen).collect()
    }
}

/// The path as the kernel reads it. A client that writes two slashes for one gets the same file,
/// and must not get it without its fields.
pub(super) fn single_slashes(path: &[u8]) -> Cow<'_, [u8]> {
    if !path.windows(2).any(|two| two == b"//") {
        return path.into();
    }
    let mut path = path.to_vec();
    path.dedup_by(|next, slash| (*slash, *next) == (b'/', b'/'));
    path.into()
}

/// Adds the fields to the head of a response.
pub(super) fn write(
    fields: &[(HeaderName, HeaderValue)],
    status: StatusCode,
    headers: &mut HeaderMap,
) {
    let is_error = status.is_client_error() || status.is_server_error();
    for (name, value) in fields {
        if !is_error || *name != CACHE_CONTROL || forbids_use(value) {
            headers.insert(name, value.clone());
        }
    }
}

/// Whether a cache must ask before it uses the response, or may not store it (RFC 9111 5.2.2).
fn forbids_use(cache_control: &HeaderValue) -> bool {
    let value = cache_control.to_str().unwrap_or_default();
    let value = value.to_ascii_lowercase();
    value.contains("no-cache") || value.contains("no-store")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_for_names_or_for_paths() {
        for (pattern, path, matches) in [
            ("*.html", "index.html", true),
            ("*.html", "docs/index.html", true),
            ("*.html", "docs/index.htm", false),
            ("/*.html", "index.html", true),
            ("/*.html", "docs/index.html", false),
            ("/docs/*.html", "docs/index.html", true),
            ("docs/*.html", "docs/index.html", true),
            ("docs/*.html", "docs/a/index.html", false),
            ("docs/**", "docs/a/index.html", true),
            ("docs/**/*.html", "docs/index.html", true),
            ("docs/**", "doc/a", false),
            ("*.{js,css}", "a/b.css", true),
            ("*.{js,css}", "a/b.png", false),
            ("[a-c]?", "x/b1", true),
            ("**", "any/thing", true),
            ("**", "", true),
        ] {
            let rule = HeaderRule::new(pattern, "x-a", "1").expect("a rule");
            assert_eq!(rule.matches(path.as_bytes()), matches, "{pattern} {path}");
        }
    }

    #[test]
    fn a_wrong_rule_says_why() {
        for (rule, why) in [
            ("*.js", "PATTERN: NAME: VALUE"),
            ("*.js: x-a", "PATTERN: NAME: VALUE"),
            (": x-a: 1", "pattern"),
            ("[a: x-a: 1", "unclosed"),
            ("a}{b: x-a: 1", "unclosed"),
            ("a\\: x-a: 1", "backslash"),
            ("*: x a: 1", "name"),
            ("*: x-a: \u{7f}", "value"),
            ("*: Content-Length: 1", "computes"),
        ] {
            let error = HeaderRule::from_str(rule).expect_err(rule).to_string();
            assert!(error.contains(why), "{error}");
        }
        let rule = "a/*.js: x-a: b: c ".parse::<HeaderRule>().expect("a rule");
        assert_eq!(rule.to_string(), "a/*.js: x-a: b: c");
    }
}
