//! The request line, for the log.

use std::fmt::{self, Write as _};

use http::uri::{Authority, PathAndQuery};
use http::{Method, Request};

/// The method and the target of a request whose handler has the request itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct RequestLine {
    pub(crate) method: Method,
    pub(crate) target: Target,
}

/// The target of a request, without scheme and host if it has a path. It shares the memory of the
/// request's own.
#[derive(Clone, Debug, Default)]
pub(crate) enum Target {
    #[default]
    Unknown,
    Path(PathAndQuery),
    /// Of a CONNECT.
    Authority(Authority),
}

impl RequestLine {
    pub(crate) fn of<B>(request: &Request<B>) -> Self {
        let parts = (request.uri().path_and_query(), request.uri().authority());
        Self {
            method: request.method().clone(),
            target: match parts {
                (Some(path), _) => Target::Path(path.clone()),
                (None, Some(authority)) => Target::Authority(authority.clone()),
                (None, None) => Target::Unknown,
            },
        }
    }

    /// The first line of a head that was parsed before.
    pub(crate) fn of_head(head: &[u8]) -> Self {
        let mut words = head.splitn(3, |&byte| byte == b' ');
        let method = words.next().and_then(|word| Method::from_bytes(word).ok());
        let path = words.next().and_then(|word| word.try_into().ok());
        Self {
            method: method.unwrap_or_default(),
            target: path.map_or(Target::Unknown, Target::Path),
        }
    }
}

/// What is not visible ASCII is escaped, as the client should have done (RFC 3986 2.1): people read
/// logs in a terminal, and U+009B begins a command to it.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::Unknown => "-".to_owned(),
            Self::Path(path) => path.to_string(),
            Self::Authority(authority) => authority.to_string(),
        };
        text.bytes().try_for_each(|byte| match byte {
            b'!'..=b'~' => f.write_char(byte.into()),
            other => write!(f, "%{other:02X}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(line: &RequestLine) -> String {
        format!("{} {}", line.method, line.target)
    }

    #[test]
    fn each_form_of_a_target_is_named_without_scheme_and_host_if_it_has_a_path() {
        for (method, uri, target) in [
            ("GET", "/a?b=c", "/a?b=c"),
            ("GET", "http://example.org/a", "/a"),
            ("GET", "http://example.org", "/"),
            ("OPTIONS", "*", "*"),
            ("CONNECT", "example.org:443", "example.org:443"),
        ] {
            let request = Request::builder().method(method).uri(uri).body(());
            let line = RequestLine::of(&request.expect("a request"));
            assert_eq!(said(&line), format!("{method} {target}"));
        }
    }

    #[test]
    fn a_target_is_no_command_to_a_terminal() {
        let head = "GET /\u{9b}2J?\u{e4}\u{202e} HTTP/1.1\r\n";
        let line = RequestLine::of_head(head.as_bytes());
        assert_eq!(said(&line), "GET /%C2%9B2J?%C3%A4%E2%80%AE");
    }

    #[test]
    fn a_head_begins_with_its_request_line() {
        let head = b"GET /a?b=c HTTP/1.1\r\nhost: x y\r\n\r\n";
        assert_eq!(said(&RequestLine::of_head(head)), "GET /a?b=c");
        assert_eq!(said(&RequestLine::of_head(b"")), "GET -");
    }
}
