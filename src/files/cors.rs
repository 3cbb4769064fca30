//! Which other sites may read the files: CORS, of the Fetch standard (fetch.spec.whatwg.org).

use std::fmt;
use std::str::FromStr;

use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS,
    ACCESS_CONTROL_REQUEST_METHOD, ORIGIN, VARY,
};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Uri};

const ANY: HeaderValue = HeaderValue::from_static("*");
const METHODS: HeaderValue = HeaderValue::from_static("GET, HEAD");
const BY_ORIGIN: HeaderValue = HeaderValue::from_static("origin");

/// Fields that a script needs for ranges and validators, and that it may not read without this.
const EXPOSED: HeaderValue =
    HeaderValue::from_static("accept-ranges, content-encoding, content-range, etag");

/// For so many seconds a browser need not ask again: the most that one of them grants.
const MAX_AGE: HeaderValue = HeaderValue::from_static("7200");

/// A longer list of fields is not allowed.
const LIST_MAX: usize = 1024;

/// An origin whose scripts may read the files: `https://app.example`, or `*` for every one.
///
/// ```
/// use prefork_server::files::{Files, Origin};
///
/// let files = Files::new("./public").allow_origin("https://app.example".parse()?);
/// # Ok::<(), prefork_server::files::OriginError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin(HeaderValue);

impl FromStr for Origin {
    type Err = OriginError;

    /// `*`, or a scheme, a host and perhaps a port.
    fn from_str(text: &str) -> Result<Self, OriginError> {
        let refuse = || OriginError(text.to_owned());
        if text == "*" {
            return Ok(Self(ANY));
        }
        let lower = text.to_ascii_lowercase();
        let uri: Uri = lower.parse().map_err(|_| refuse())?;
        let (scheme, host) = (uri.scheme_str(), uri.authority());
        let (Some(scheme), Some(host)) = (scheme, host) else {
            return Err(refuse());
        };
        // A browser names no path, and no user.
        if format!("{scheme}://{host}") != lower || host.as_str().contains('@') {
            return Err(refuse());
        }
        // Browsers leave out the port that belongs to the scheme.
        let port = match scheme {
            "http" => ":80",
            "https" => ":443",
            _ => "",
        };
        let origin = lower.strip_suffix(port).unwrap_or(&lower);
        origin.try_into().map(Self).map_err(|_| refuse())
    }
}

/// The text cannot be read as an [`Origin`].
#[derive(Debug)]
pub struct OriginError(String);

impl fmt::Display for OriginError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(text) = self;
        write!(f, "{text:?} is no origin: give * or SCHEME://HOST[:PORT]")
    }
}

impl std::error::Error for OriginError {}

/// What a request from a script asks for.
pub(super) struct Asked {
    origin: Option<HeaderValue>,
    /// Of a question before the request itself. `None`: it is no such question.
    fields: Option<Option<HeaderValue>>,
}

impl Asked {
    /// `None` if no origin is allowed: all stays as it is.
    pub(super) fn of(head: &Parts, origins: &[Origin]) -> Option<Self> {
        if origins.is_empty() {
            return None;
        }
        let origin = head.headers.get(ORIGIN);
        let is_allowed = |origin: &&HeaderValue| {
            let mut all = origins.iter();
            all.any(|Origin(allowed)| *allowed == ANY || allowed == *origin)
        };
        let is_question = head.method == Method::OPTIONS
            && origin.is_some()
            && head.headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD);
        let fields = head.headers.get(ACCESS_CONTROL_REQUEST_HEADERS);
        let fields = fields.filter(|list| list.len() <= LIST_MAX).cloned();
        Some(Self {
            origin: match origins.contains(&Origin(ANY)) {
                true => Some(ANY),
                false => origin.filter(is_allowed).cloned(),
            },
            fields: is_question.then_some(fields),
        })
    }

    /// Adds the fields to the response.
    pub(super) fn write(self, headers: &mut HeaderMap) {
        let Self { origin, fields } = self;
        if origin != Some(ANY) {
            headers.append(VARY, BY_ORIGIN);
        }
        let Some(origin) = origin else {
            return;
        };
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        let Some(fields) = fields else {
            headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
            return;
        };
        headers.insert(ACCESS_CONTROL_ALLOW_METHODS, METHODS);
        headers.insert(ACCESS_CONTROL_MAX_AGE, MAX_AGE);
        if let Some(fields) = fields {
            headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, fields);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_a_scheme_a_host_and_a_port() {
        for text in [
            "*",
            "https://a.example",
            "http://127.0.0.1:3000",
            "HTTPS://A.example",
        ] {
            assert!(text.parse::<Origin>().is_ok(), "{text}");
        }
        for (text, as_browsers_say) in [
            ("https://a.example:443", "https://a.example"),
            ("http://[::1]:80", "http://[::1]"),
            ("http://a.example:443", "http://a.example:443"),
        ] {
            assert_eq!(text.parse::<Origin>().unwrap().0, as_browsers_say);
        }
        for text in [
            "",
            "a.example",
            "https://",
            "https://a/",
            "https://a/b",
            "https://u@a",
            "null",
        ] {
            assert!(text.parse::<Origin>().is_err(), "{text}");
        }
    }
}
