//! Finds plain requests. A plain request has a usual method, a path (RFC 9112 3.2.1), one host, and
//! no field that only hyper supports. It has no body, or a body that has come as a whole.
//!
//! No request is refused here. Every request that is not certainly plain goes to hyper, valid or
//! not, so that one place decides whether a request is valid.

use std::convert::Infallible;
use std::mem::MaybeUninit;

use bytes::{Bytes, BytesMut};
use http::header::{CONNECTION, CONTENT_LENGTH, HOST};
use http::{HeaderMap, HeaderValue, Method, Request, Uri};
use httparse::{Header, Status};

use crate::http::conn::stream::READ_AT_ONCE;
use crate::http::exchange::{length, rules};
use crate::http::http1::field::{Field, Span};
use crate::http::http1::head_cache::{CachedHead, HeadCache, Line, NewValues};
use crate::http::options::Http;
use crate::pool::field_maps;

/// The most fields of a plain head. Browsers send about fifteen.
const FIELDS_MAX: usize = u32::BITS as usize;

/// A longer part of a head goes to hyper. The rest of the head must fit into one read.
const PART_MAX: usize = READ_AT_ONCE / 2;

/// The beginning of the input.
pub(crate) enum Found {
    /// A plain request.
    Plain {
        head: Head,
        body: Bytes,
        /// Which of its fields' values are not from the cache.
        new: NewValues,
        /// Whether the client will send no other request (RFC 9112 9.6).
        is_last: bool,
    },
    /// The beginning of the head of a request that may be plain.
    Part,
    /// The request is plain if the rest of its body has come too.
    PartOfBody,
    /// A request that is not plain. These bytes of it were taken from the input.
    Other(Bytes),
}

/// Where the bytes of a head are.
pub(crate) enum Head {
    /// The head is the first so many bytes of the input.
    InInput(usize),
    /// The head was taken from the input, with the body. The request shares its memory.
    Taken(Bytes),
}

impl Head {
    /// The head, perhaps with the body, if `input` is the input that it was found in.
    pub(crate) fn bytes<'a>(&'a self, input: &'a [u8]) -> &'a [u8] {
        match self {
            Self::InInput(len) => &input[..*len],
            Self::Taken(head) => head,
        }
    }
}

impl Default for Head {
    fn default() -> Self {
        Self::InInput(0)
    }
}

/// Finds the first request of the input. If it is plain, its method, target and fields are put into
/// `request`, which is new. `cache` has a head that came before on this connection.
pub(crate) fn find<B>(
    input: &mut BytesMut,
    request: &mut Request<B>,
    cache: &mut HeadCache,
    http: &Http,
) -> Found {
    if !input.first().is_some_and(u8::is_ascii_uppercase) {
        return Found::Other(Bytes::new());
    }
    if let Some(cached) = cache.cached()
        && let Some(line) = cached.line(input)
    {
        let has_section = cached.has_section(&input[line.len..]);
        if has_section && line.is_cached && cached.body() == 0 {
            return repeated(request, cached);
        }
        if let Some(found) = similar(input, line, has_section, request, cached, http) {
            return found;
        }
    }
    parse(input, request, cache, http)
}

/// Parses the first head of the input.
fn parse<B>(
    input: &mut BytesMut,
    request: &mut Request<B>,
    cache: &mut HeadCache,
    http: &Http,
) -> Found {
    let part_max = http.max_header_size.min(PART_MAX);
    let mut fields = [Field::default(); FIELDS_MAX];
    let (len, body, method, target, count) = {
        let mut headers = [const { MaybeUninit::<Header<'_>>::uninit() }; FIELDS_MAX];
        let mut parsed = httparse::Request::new(&mut []);
        let len = match parsed.parse_with_uninit_headers(input, &mut headers) {
            Ok(Status::Complete(len)) => len,
            Ok(Status::Partial) if input.len() <= part_max => return Found::Part,
            Ok(Status::Partial) | Err(_) => return Found::Other(Bytes::new()),
        };
        let (Some(method), Some(path), Some(1)) = (parsed.method, parsed.path, parsed.version)
        else {
            return Found::Other(Bytes::new());
        };
        let (Some(method), Some(body)) = (usual(method.as_bytes()), body_len(parsed.headers))
        else {
            return Found::Other(Bytes::new());
        };
        for (field, header) in fields.iter_mut().zip(parsed.headers.iter()) {
            field.name = Span::of(header.name.as_bytes(), input);
            field.value = Span::of(header.value, input);
        }
        let target = Span::of(path.as_bytes(), input);
        (len, body, method, target, parsed.headers.len())
    };
    if !target.of_slice(input).starts_with(b"/") {
        return Found::Other(Bytes::new());
    }
    if let Some(found) = lacks(input, len, body, target, count, http) {
        return found;
    }
    let taken = input.split_to(len + body).freeze();
    let fields = &fields[..count];
    let headers = request.headers_mut();
    field_maps::give(headers);
    headers.clear();
    match fill(&taken, target, fields, request, cache.cached()) {
        Some((is_last, new)) => {
            *request.method_mut() = method;
            // A head that equals the cached one does not end the connection.
            if !is_last {
                cache.learn(&taken[..len], request.method(), target, fields, body, new);
            }
            plain(taken, len, NewValues::All, is_last)
        }
        None => Found::Other(taken),
    }
}

/// A plain request that was taken from the input. Its head has this length.
#[inline]
fn plain(taken: Bytes, len: usize, new: NewValues, is_last: bool) -> Found {
    let body = match taken.len() == len {
        true => Bytes::new(),
        false => taken.slice(len..),
    };
    Found::Plain {
        head: Head::Taken(taken),
        body,
        new,
        is_last,
    }
}

/// The methods of plain requests.
fn usual(method: &[u8]) -> Option<Method> {
    Some(match method {
        b"GET" => Method::GET,
        b"HEAD" => Method::HEAD,
        b"POST" => Method::POST,
        b"PUT" => Method::PUT,
        b"DELETE" => Method::DELETE,
        b"PATCH" => Method::PATCH,
        b"OPTIONS" => Method::OPTIONS,
        _ => return None,
    })
}

/// The length of a request's body, as its fields say. `None`: hyper decides.
fn body_len(fields: &[Header<'_>]) -> Option<usize> {
    let is_length = |field: &&Header<'_>| field.name.eq_ignore_ascii_case("content-length");
    let mut lengths = fields.iter().filter(is_length);
    match (lengths.next(), lengths.next()) {
        (None, _) => Some(0),
        (Some(length), None) => length::number(length.value),
        (Some(_), Some(_)) => None,
    }
}

/// Why a request with this head cannot be taken from the input: it is over a limit, or not
/// complete. `None` if it can. `count` is the number of its fields.
fn lacks(
    input: &[u8],
    len: usize,
    body: usize,
    target: Span,
    count: usize,
    http: &Http,
) -> Option<Found> {
    // The rules compute the size of a head with a CR in each line and a space after each colon. So
    // their size is larger than the length in bytes if the client leaves these out.
    let size_max = len + 2 * (count + 1);
    let target_len = (target.end - target.start) as usize;
    if target_len > http.max_target_size || size_max > http.max_header_size {
        return Some(Found::Other(Bytes::new()));
    }
    if input.len() - len >= body {
        let is_allowed = http.max_body_size.is_none_or(|max| body as u64 <= max);
        return (!is_allowed).then(|| Found::Other(Bytes::new()));
    }
    Some(match len.saturating_add(body) <= READ_AT_ONCE {
        true => Found::PartOfBody,
        false => Found::Other(Bytes::new()),
    })
}

/// Makes a request whose head is the cached one.
fn repeated<B>(request: &mut Request<B>, cached: &CachedHead) -> Found {
    let (method, uri) = (cached.method().clone(), cached.uri().clone());
    let headers = begin(request, method, uri);
    let Ok(()) = cached.put_fields(headers, |_| None::<Result<_, Infallible>>);
    Found::Plain {
        head: Head::InInput(cached.len()),
        body: Bytes::new(),
        new: NewValues::At(0),
        is_last: false,
    }
}

/// Makes a request that has the names of the cached head. Some values may differ, or none if
/// `has_section`. `None`: the whole head must be parsed.
#[inline(never)]
fn similar<B>(
    input: &mut BytesMut,
    line: Line,
    has_section: bool,
    request: &mut Request<B>,
    cached: &CachedHead,
    http: &Http,
) -> Option<Found> {
    let mut values = [None; FIELDS_MAX];
    let (len, body) = match has_section {
        true => (line.len + cached.section_len(), cached.body()),
        false => cached.same_names(input, line.len, &mut values)?,
    };
    let (method, target) = match line.is_cached {
        true => (cached.method().clone(), cached.target()),
        false => request_line(&input[..line.len])?,
    };
    let count = cached.fields().len();
    if let Some(found) = lacks(input, len, body, target, count, http) {
        return Some(found);
    }
    let taken = input.split_to(len + body).freeze();
    let uri = match line.is_cached {
        true => Ok(cached.uri().clone()),
        false => Uri::from_maybe_shared(target.of_bytes(&taken)),
    };
    let Ok(uri) = uri else {
        return Some(Found::Other(taken));
    };
    let headers = begin(request, method, uri);
    let other = |at: usize| {
        let span = values[at]?;
        Some(HeaderValue::from_maybe_shared(span.of_bytes(&taken)))
    };
    if cached.put_fields(headers, other).is_err() {
        return Some(Found::Other(taken));
    }
    let bits = values.iter().enumerate();
    let bits = bits.fold(0, |bits, (at, value)| {
        bits | u32::from(value.is_some()) << at
    });
    Some(plain(taken, len, NewValues::At(bits), false))
}

/// Gives a new request its method and target, and a map that may have the fields of another one.
#[inline]
fn begin<B>(request: &mut Request<B>, method: Method, uri: Uri) -> &mut HeaderMap {
    *request.method_mut() = method;
    *request.uri_mut() = uri;
    let headers = request.headers_mut();
    field_maps::give(headers);
    headers
}

/// The method and the target of a request line. `None` if the line is not plain.
fn request_line(line: &[u8]) -> Option<(Method, Span)> {
    let words = line.strip_suffix(b" HTTP/1.1\r\n")?;
    let end = memchr::memchr(b' ', words)?;
    let (method, target) = (usual(&words[..end])?, &words[end + 1..]);
    // One pass without a branch. RFC 3986 allows fewer characters, but hyper allows these.
    let is_visible = |plain, byte: &u8| plain & matches!(byte, b'!'..=b'~');
    let is_plain = target.starts_with(b"/") && target.iter().fold(true, is_visible);
    is_plain.then(|| (method, Span::of(target, line)))
}

/// Gives the request its target and its fields. Returns whether the request is the last one, and
/// how many fields were not in the cache. `None`: the request is not plain.
fn fill<B>(
    head: &Bytes,
    target: Span,
    fields: &[Field],
    request: &mut Request<B>,
    cache: Option<&CachedHead>,
) -> Option<(bool, u32)> {
    *request.uri_mut() = match cache.and_then(|cache| cache.uri_of(target.of_slice(head))) {
        Some(uri) => uri.clone(),
        None => Uri::from_maybe_shared(target.of_bytes(head)).ok()?,
    };
    let headers = request.headers_mut();
    let mut is_last = false;
    let mut hosts = 0;
    let mut new = 0;
    headers.reserve(fields.len());
    for (at, field) in fields.iter().enumerate() {
        let repeated = cache.and_then(|cache| cache.field(at, field.line(head)));
        let is_cached = repeated.is_some();
        let (name, value) = match repeated {
            Some((name, value)) => (name.clone(), value.clone()),
            None => {
                new += 1;
                field.parse(head)?
            }
        };
        match name {
            HOST if is_cached || rules::is_host_and_perhaps_port(value.as_bytes()) => hosts += 1,
            CONNECTION if value.as_bytes().eq_ignore_ascii_case(b"keep-alive") => {}
            CONNECTION if value.as_bytes().eq_ignore_ascii_case(b"close") => is_last = true,
            // `body_len` has read it.
            CONTENT_LENGTH => {}
            name if rules::is_about_the_message(&name) => return None,
            _ => {}
        }
        headers.append(name, value);
    }
    if hosts != 1 {
        return None;
    }
    Some((is_last, new))
}

#[cfg(test)]
mod tests;
