//! Which requests are plain: GET with a path (RFC 9112 3.2.1) in HTTP/1.1, for one host, without a
//! body and without a wish that only hyper grants.
//!
//! Nothing is refused here. What is not plain beyond doubt is hyper's, be it valid or not, so that
//! there is one place that says what a request is.

use std::mem::{self, MaybeUninit};

use bytes::{Bytes, BytesMut};
use http::header::{CONNECTION, CONTENT_LENGTH, EXPECT, HOST, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use httparse::{Header, Status};

use super::super::options::Http;
use super::super::rules;
use super::super::stream::READ_AT_ONCE;
use super::known::Known;

/// As many fields as a plain head has, at the most; browsers send about fifteen.
const FIELDS_MAX: usize = 32;

/// A longer part of a head is not waited for. There must be room for the rest.
const PART_MAX: usize = READ_AT_ONCE / 2;

const START: &[u8] = b"GET /";

/// What has come.
pub(super) enum Found {
    Plain(Plain),
    /// The beginning of what may become plain.
    Part,
    /// Not plain. These bytes were taken from the input for it.
    Other(Bytes),
}

/// A request that is plain.
pub(super) struct Plain {
    pub(super) uri: Uri,
    pub(super) headers: HeaderMap,
    /// Its head as it was sent.
    pub(super) head: Bytes,
    /// Whether the client will send no other (RFC 9112 9.6).
    pub(super) is_last: bool,
}

/// Where a field is in its head.
#[derive(Clone, Copy, Default)]
pub(super) struct Field {
    name: Span,
    value: Span,
}

impl Field {
    /// Name and value, with what is between them.
    #[inline]
    pub(super) fn line(self, head: &[u8]) -> &[u8] {
        &head[self.name.start as usize..self.value.end as usize]
    }

    /// Parses it. The value is a part of the head.
    pub(super) fn parse(self, head: &Bytes) -> Option<(HeaderName, HeaderValue)> {
        let name = HeaderName::from_bytes(self.name.of_slice(head)).ok()?;
        let value = HeaderValue::from_maybe_shared(self.value.of_bytes(head)).ok()?;
        Some((name, value))
    }
}

/// A part of a head.
#[derive(Clone, Copy, Default)]
pub(super) struct Span {
    start: u32,
    end: u32,
}

impl Span {
    #[inline]
    fn of(part: &[u8], whole: &[u8]) -> Self {
        let start = part.as_ptr().addr() - whole.as_ptr().addr();
        Self {
            start: start as u32,
            end: (start + part.len()) as u32,
        }
    }

    #[inline]
    pub(super) fn of_bytes(self, head: &Bytes) -> Bytes {
        head.slice(self.start as usize..self.end as usize)
    }

    #[inline]
    pub(super) fn of_slice(self, head: &[u8]) -> &[u8] {
        &head[self.start as usize..self.end as usize]
    }
}

/// Takes the first request from the input, if it is plain. `spare` is the memory for its fields,
/// `known` is what came before it on its connection.
pub(super) fn find(
    input: &mut BytesMut,
    spare: &mut HeaderMap,
    known: &mut Known,
    http: &Http,
) -> Found {
    let begun = input.len().min(START.len());
    if input[..begun] != START[..begun] {
        return Found::Other(Bytes::new());
    }
    let part_max = http.max_header_size.min(PART_MAX);
    let mut fields = [Field::default(); FIELDS_MAX];
    let (len, target, count) = {
        let mut headers = [const { MaybeUninit::<Header<'_>>::uninit() }; FIELDS_MAX];
        let mut parsed = httparse::Request::new(&mut []);
        let len = match parsed.parse_with_uninit_headers(input, &mut headers) {
            Ok(Status::Complete(len)) => len,
            Ok(Status::Partial) if input.len() <= part_max => return Found::Part,
            Ok(Status::Partial) | Err(_) => return Found::Other(Bytes::new()),
        };
        let (Some("GET"), Some(path), Some(1)) = (parsed.method, parsed.path, parsed.version)
        else {
            return Found::Other(Bytes::new());
        };
        for (field, header) in fields.iter_mut().zip(parsed.headers.iter()) {
            field.name = Span::of(header.name.as_bytes(), input);
            field.value = Span::of(header.value, input);
        }
        (len, Span::of(path.as_bytes(), input), parsed.headers.len())
    };
    let target_len = (target.end - target.start) as usize;
    // What the rules reckon for a head is more than what came if lines end without a CR and colons
    // have no space.
    let reckoned = len + 2 * (count + 1);
    if target_len > http.max_target_size || reckoned > http.max_header_size {
        return Found::Other(Bytes::new());
    }
    let head = input.split_to(len).freeze();
    let fields = &fields[..count];
    match request(&head, target, fields, mem::take(spare), known) {
        Some((uri, headers, is_last, new)) => {
            known.learn(&head, target, fields, new);
            Found::Plain(Plain {
                uri,
                headers,
                head,
                is_last,
            })
        }
        None => Found::Other(head),
    }
}

/// The request, whether it is the last, and how many of its fields were not known. `None` is "not
/// plain".
fn request(
    head: &Bytes,
    target: Span,
    fields: &[Field],
    mut headers: HeaderMap,
    known: &Known,
) -> Option<(Uri, HeaderMap, bool, u32)> {
    let uri = match known.target(target.of_slice(head)) {
        Some(uri) => uri.clone(),
        None => Uri::from_maybe_shared(target.of_bytes(head)).ok()?,
    };
    let mut is_last = false;
    let mut hosts = 0;
    let mut new = 0;
    headers.reserve(fields.len());
    for (at, field) in fields.iter().enumerate() {
        let repeated = known.field(at, field.line(head));
        let is_known = repeated.is_some();
        let (name, value) = match repeated {
            Some((name, value)) => (name.clone(), value.clone()),
            None => {
                new += 1;
                field.parse(head)?
            }
        };
        match name {
            HOST if is_known || rules::is_host_and_perhaps_port(value.as_bytes()) => hosts += 1,
            CONNECTION if value.as_bytes().eq_ignore_ascii_case(b"keep-alive") => {}
            CONNECTION if value.as_bytes().eq_ignore_ascii_case(b"close") => is_last = true,
            HOST | CONNECTION | CONTENT_LENGTH | TRANSFER_ENCODING | EXPECT | UPGRADE => {
                return None;
            }
            _ => {}
        }
        headers.append(name, value);
    }
    if hosts != 1 {
        return None;
    }
    Some((uri, headers, is_last, new))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> (Found, BytesMut) {
        let mut input = BytesMut::from(text);
        let (mut spare, mut known) = (HeaderMap::new(), Known::default());
        let found = find(&mut input, &mut spare, &mut known, &Http::new());
        (found, input)
    }

    /// What is known of a connection tells nobody anything else.
    #[test]
    fn repeated_fields_are_the_same_fields() {
        let mut known = Known::default();
        let heads = [
            "Host: h\r\nCookie: a\r\nx-a: 1\r\n",
            "Host: h\r\nCookie: a\r\nx-a: 1\r\n",
            "Host: h\r\nCookie: a\r\nx-a: 1\r\n",
            "Host: h\r\nCookie: b\r\nx-a: 1\r\nx-b: 1\r\n",
            "Cookie: a\r\nHost: h\r\n",
            "Host: h\r\nCookie: a1\r\nx-a: 1\r\nConnection: close\r\n",
            "Host: h\r\nCookie:a\r\nX-A: 1\r\n",
        ];
        for fields in heads {
            let head = format!("GET / HTTP/1.1\r\n{fields}\r\n");
            let mut input = BytesMut::from(&head[..]);
            let found = find(&mut input, &mut HeaderMap::new(), &mut known, &Http::new());
            let (Found::Plain(here), (Found::Plain(anew), _)) = (found, self::found(&head)) else {
                panic!("it is plain: {fields}");
            };
            assert_eq!(here.headers, anew.headers, "{fields}");
            assert_eq!(here.is_last, anew.is_last);
        }
        for fields in [
            "Cookie: a\r\n",
            "Host: h\r\nHost: h\r\n",
            "Host: h\r\nCookie: \0\r\n",
        ] {
            let mut input = BytesMut::from(&format!("GET / HTTP/1.1\r\n{fields}\r\n")[..]);
            let found = find(&mut input, &mut HeaderMap::new(), &mut known, &Http::new());
            assert!(matches!(found, Found::Other(_)), "{fields}");
        }
    }

    #[test]
    fn a_plain_request_is_taken_and_the_next_is_left() {
        let head = "GET /a?b HTTP/1.1\r\nHost: h\r\nx: 1\r\nX: 2\r\nConnection: Keep-Alive\r\n\r\n";
        let (Found::Plain(plain), rest) = found(&format!("{head}GET /next")) else {
            panic!("it is plain");
        };
        assert_eq!(
            (&plain.head[..], &rest[..]),
            (head.as_bytes(), &b"GET /next"[..])
        );
        assert_eq!(plain.uri, "/a?b");
        let values: Vec<_> = plain.headers.get_all("x").iter().collect();
        assert_eq!(values, ["1", "2"]);
        assert_eq!(plain.headers.len(), 4);
        assert!(!plain.is_last);
    }

    #[test]
    fn the_last_one_says_so() {
        for said in ["close", "Close", "close\r\nConnection: keep-alive"] {
            let head = format!("GET / HTTP/1.1\r\nHost: h\r\nConnection: {said}\r\n\r\n");
            let (Found::Plain(plain), _) = found(&head) else {
                panic!("it is plain: {said}");
            };
            assert!(plain.is_last, "{said}");
        }
    }

    #[test]
    fn part_of_a_plain_request_is_waited_for() {
        let head = "GET / HTTP/1.1\r\nHost: h\r\n\r\n";
        for end in 1..head.len() {
            let (found, rest) = found(&head[..end]);
            assert!(matches!(found, Found::Part), "{end}");
            assert_eq!(rest.len(), end);
        }
    }

    #[test]
    fn whatever_else_is_left_as_it_came() {
        let many = "x: y\r\n".repeat(FIELDS_MAX);
        let long = "x".repeat(9 * 1024);
        let fields = [
            "",
            "Host: h\r\nHost: h\r\n",
            "Host: a b\r\n",
            "Host: h\r\nContent-Length: 0\r\n",
            "Host: h\r\nTransfer-Encoding: chunked\r\n",
            "Host: h\r\nExpect: 100-continue\r\n",
            "Host: h\r\nUpgrade: websocket\r\n",
            "Host: h\r\nConnection: upgrade\r\n",
            "Host: h\r\nConnection: keep-alive, close\r\n",
            "Host: h\r\nConnection:\r\n",
            "Host: h\r\nno field\r\n",
            "Host: h\r\nname : space\r\n",
            &format!("Host: h\r\n{many}"),
            &format!("Host: h\r\na: {long}\r\nb: {long}\r\n"),
        ]
        .map(|fields| format!("GET / HTTP/1.1\r\n{fields}\r\n"));
        let others = [
            "\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n",
            "G",
            "POST / HTTP/1.1\r\nHost: h\r\n\r\n",
            "get / HTTP/1.1\r\nHost: h\r\n\r\n",
            "GET http://h/ HTTP/1.1\r\nHost: h\r\n\r\n",
            "GET * HTTP/1.1\r\nHost: h\r\n\r\n",
            "GET / HTTP/1.0\r\nHost: h\r\n\r\n",
            "GET / HTTP/2.0\r\nHost: h\r\n\r\n",
            "GET /\r\n",
            &format!("GET / HTTP/1.1\r\na: {long}{long}"),
            &format!("GET /{long} HTTP/1.1\r\nHost: h\r\n\r\n"),
        ]
        .map(str::to_owned);
        for text in fields.iter().chain(&others[2..]).chain(&others[..1]) {
            let (Found::Other(taken), rest) = found(text) else {
                panic!("it is not plain: {text}");
            };
            assert_eq!([&taken[..], &rest[..]].concat(), text.as_bytes());
        }
    }
}
