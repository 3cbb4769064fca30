//! `uri-host [ ":" port ]` of RFC 9110 4.2 and RFC 3986 3.2.

use std::net::Ipv6Addr;
use std::str::from_utf8;

/// A host and perhaps a port, as the client wrote them.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Authority<'a> {
    /// May be empty. Includes the brackets of an IP literal.
    pub(crate) host: &'a [u8],
    /// The part after the colon: digits, or empty.
    pub(crate) port: Option<&'a [u8]>,
}

impl<'a> Authority<'a> {
    /// `None` if `text` is not valid. Userinfo is not valid.
    #[inline]
    pub(crate) fn parse(text: &'a [u8]) -> Option<Self> {
        let host = match text.first() {
            Some(b'[') => &text[..ip_literal(text)?],
            _ => &text[..registered_name(text)?],
        };
        let port = match &text[host.len()..] {
            [] => None,
            [b':', digits @ ..] if digits.iter().all(u8::is_ascii_digit) => Some(digits),
            _ => return None,
        };
        Some(Self { host, port })
    }
}

/// The length of `"[" ( IPv6address / IPvFuture ) "]"` at the start.
fn ip_literal(text: &[u8]) -> Option<usize> {
    let end = text.iter().position(|&byte| byte == b']')?;
    let inside = from_utf8(&text[1..end]).ok()?;
    (inside.parse::<Ipv6Addr>().is_ok() || is_future(inside)).then_some(end + 1)
}

/// `"v" 1*HEXDIG "." 1*( unreserved / sub-delims / ":" )`
fn is_future(text: &str) -> bool {
    let Some((version, address)) = text.split_once('.') else {
        return false;
    };
    let Some(version) = version.strip_prefix(['v', 'V']) else {
        return false;
    };
    let is_part = |byte| byte == b':' || is_name_char(byte);
    !version.is_empty()
        && version.bytes().all(|byte| byte.is_ascii_hexdigit())
        && !address.is_empty()
        && address.bytes().all(is_part)
}

/// The length of `*( unreserved / pct-encoded / sub-delims )` at the start. This includes IPv4
/// addresses. `None` if an escape is incomplete.
#[inline]
fn registered_name(text: &[u8]) -> Option<usize> {
    let mut rest = text;
    loop {
        let plain = rest.iter().position(|&byte| !is_name_char(byte));
        rest = &rest[plain.unwrap_or(rest.len())..];
        let [b'%', escape @ ..] = rest else {
            return Some(text.len() - rest.len());
        };
        let digits = escape.first_chunk::<2>()?;
        if !digits.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        rest = &escape[2..];
    }
}

/// Whether a byte is unreserved or a sub-delimiter (RFC 3986 2.2, 2.3).
#[inline]
fn is_name_char(byte: u8) -> bool {
    /// A table, so that each byte of each request's `Host` costs one load.
    static NAME_CHARS: [bool; 256] = {
        let mut table = [false; 256];
        let mut byte = 0;
        while byte < 256 {
            table[byte] = matches!(byte as u8,
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9'
                | b'-' | b'.' | b'_' | b'~'
                | b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b',' | b';' | b'=');
            byte += 1;
        }
        table
    };
    NAME_CHARS[usize::from(byte)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(text: &str) -> Option<(&str, Option<&str>)> {
        let text_of = |bytes| from_utf8(bytes).expect("it was text");
        Authority::parse(text.as_bytes()).map(|it| (text_of(it.host), it.port.map(text_of)))
    }

    #[test]
    fn host_and_port_are_separated() {
        for (text, expected) in [
            ("", ("", None)),
            (":", ("", Some(""))),
            (":80", ("", Some("80"))),
            ("example.org", ("example.org", None)),
            ("Example.ORG:8080", ("Example.ORG", Some("8080"))),
            ("example.org:", ("example.org", Some(""))),
            ("192.0.2.1:1", ("192.0.2.1", Some("1"))),
            ("a_b~c-d", ("a_b~c-d", None)),
            ("a!$&'()*+,;=b", ("a!$&'()*+,;=b", None)),
            ("%C3%A4.example", ("%C3%A4.example", None)),
            ("[::1]", ("[::1]", None)),
            ("[2001:db8::1]:443", ("[2001:db8::1]", Some("443"))),
            ("[::ffff:192.0.2.1]", ("[::ffff:192.0.2.1]", None)),
            ("[v1.fe:80]", ("[v1.fe:80]", None)),
        ] {
            assert_eq!(parts(text), Some(expected), "{text:?}");
        }
    }

    #[test]
    fn an_invalid_authority_is_refused() {
        for text in [
            " ",
            "a b",
            "a\tb",
            "a/b",
            "a?b",
            "a#b",
            "a@b",
            "u:p@h",
            "a:b",
            "a:80:80",
            "a:-1",
            "a:+1",
            "a: 80",
            "::1",
            "[::1",
            "::1]",
            "[]",
            "[::1]x",
            "[::1]:x",
            "[[::1]]",
            "[1.2]",
            "[fe80::1%25eth0]",
            "[v.x]",
            "[vg.x]",
            "[v1.]",
            "[v1]",
            "%",
            "%4",
            "%4g",
            "a%zz",
            "a\"",
            "a<b",
            "a\\b",
            "a^b",
            "a`b",
            "a{b",
            "a|b",
            "\u{e4}",
            "http://a",
            "a, b",
            "a\0b",
        ] {
            assert_eq!(parts(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_single_byte_is_a_host_if_it_is_allowed() {
        let allowed = b"-._~!$&'()*+,;=";
        for byte in 0..=u8::MAX {
            let is_host = byte.is_ascii_alphanumeric() || allowed.contains(&byte);
            // A colon alone is an empty host with an empty port.
            let expected = is_host || byte == b':';
            assert_eq!(Authority::parse(&[byte]).is_some(), expected, "{byte:#x}");
        }
    }
}
