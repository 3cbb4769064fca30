//! Finds plain requests. A plain request is a GET or HEAD with a path (RFC 9112 3.2.1) in HTTP/1.1,
//! with one host, without a body, and without a field that only hyper supports.
//!
//! No request is refused here. Every request that is not certainly plain goes to hyper, valid or
//! not, so that one place decides whether a request is valid.

use std::mem::{self, MaybeUninit};

use bytes::{Bytes, BytesMut};
use http::header::{CONNECTION, HOST};
use http::{HeaderMap, HeaderValue, Method, Request, Uri};
use httparse::{Header, Status};

use crate::http::conn::stream::READ_AT_ONCE;
use crate::http::exchange::rules;
use crate::http::http1::field::{Field, Span};
use crate::http::http1::field_maps::FieldMaps;
use crate::http::http1::head_cache::{CachedHead, HeadCache};
use crate::http::options::Http;

/// The most fields of a plain head. Browsers send about fifteen.
const FIELDS_MAX: usize = 32;

/// A longer part of a head goes to hyper. The rest of the head must fit into one read.
const PART_MAX: usize = READ_AT_ONCE / 2;

const GET: &[u8] = b"GET /";
const HEAD: &[u8] = b"HEAD /";

/// The beginning of the input.
pub(crate) enum Found {
    /// A plain request.
    Plain {
        head: Head,
        /// Whether the client will send no other request (RFC 9112 9.6).
        is_last: bool,
    },
    /// The beginning of a request that may be plain.
    Part,
    /// A request that is not plain. These bytes of it were taken from the input.
    Other(Bytes),
}

/// Where the bytes of a head are.
pub(crate) enum Head {
    /// The head is the first so many bytes of the input.
    InInput(usize),
    /// The head was taken from the input. The request shares its memory.
    Taken(Bytes),
}

impl Head {
    /// The head, if `input` is the input that it was found in.
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

/// Finds the first request of the input. If it is plain, its target and fields are put into
/// `request`, which is new. `cache` has a head that came before on this connection.
pub(crate) fn find<B>(
    input: &mut BytesMut,
    request: &mut Request<B>,
    cache: &mut HeadCache,
    maps: &FieldMaps,
    http: &Http,
) -> Found {
    if !begins_with(input, GET) {
        return match begins_with(input, HEAD) {
            true => parse(input, request, cache, maps, http),
            false => Found::Other(Bytes::new()),
        };
    }
    if let Some(cached) = cache.cached()
        && let Some((line, uri)) = cached.line(input)
    {
        if cached.has_section(&input[line..]) {
            if let Some(found) = from_cache(input, line, uri, request, cached, maps, http) {
                return found;
            }
        } else if let Some(found) = from_names(input, line, uri, request, cached, maps, http) {
            return found;
        }
    }
    parse(input, request, cache, maps, http)
}

/// Whether the input is the beginning of `start`, or goes on after it.
#[inline]
fn begins_with(input: &[u8], start: &[u8]) -> bool {
    let begun = input.len().min(start.len());
    input[..begun] == start[..begun]
}

/// Parses the first head of the input.
fn parse<B>(
    input: &mut BytesMut,
    request: &mut Request<B>,
    cache: &mut HeadCache,
    maps: &FieldMaps,
    http: &Http,
) -> Found {
    let part_max = http.max_header_size.min(PART_MAX);
    let mut fields = [Field::default(); FIELDS_MAX];
    let (len, method, target, count) = {
        let mut headers = [const { MaybeUninit::<Header<'_>>::uninit() }; FIELDS_MAX];
        let mut parsed = httparse::Request::new(&mut []);
        let len = match parsed.parse_with_uninit_headers(input, &mut headers) {
            Ok(Status::Complete(len)) => len,
            Ok(Status::Partial) if input.len() <= part_max => return Found::Part,
            Ok(Status::Partial) | Err(_) => return Found::Other(Bytes::new()),
        };
        let (method, path) = match (parsed.method, parsed.path, parsed.version) {
            (Some("GET"), Some(path), Some(1)) => (Method::GET, path),
            (Some("HEAD"), Some(path), Some(1)) => (Method::HEAD, path),
            _ => return Found::Other(Bytes::new()),
        };
        for (field, header) in fields.iter_mut().zip(parsed.headers.iter()) {
            field.name = Span::of(header.name.as_bytes(), input);
            field.value = Span::of(header.value, input);
        }
        let target = Span::of(path.as_bytes(), input);
        (len, method, target, parsed.headers.len())
    };
    if !fits(len, target, count, http) {
        return Found::Other(Bytes::new());
    }
    let head = input.split_to(len).freeze();
    let fields = &fields[..count];
    give_fields(request, maps);
    match fill(&head, target, fields, request, cache.cached()) {
        Some((is_last, new)) => {
            // A head that equals the cached one does not end the connection.
            if !is_last && method == Method::GET {
                cache.learn(&head, target, fields, new);
            }
            *request.method_mut() = method;
            Found::Plain {
                head: Head::Taken(head),
                is_last,
            }
        }
        None => Found::Other(head),
    }
}

/// Whether a head of this length, with this target and so many fields, is within the limits.
fn fits(len: usize, target: Span, count: usize, http: &Http) -> bool {
    // The rules compute the size of a head with a CR in each line and a space after each colon. So
    // their size is larger than the length in bytes if the client leaves these out.
    let size_max = len + 2 * (count + 1);
    let target_len = (target.end - target.start) as usize;
    target_len <= http.max_target_size && size_max <= http.max_header_size
}

/// Makes a request from the cache, which has all its fields, and its target if that is
/// `cached_uri`. `line` is the length of the request line. `None`: the whole head must be parsed.
fn from_cache<B>(
    input: &mut BytesMut,
    line: usize,
    cached_uri: Option<&Uri>,
    request: &mut Request<B>,
    cache: &CachedHead,
    maps: &FieldMaps,
    http: &Http,
) -> Option<Found> {
    let len = line + cache.section_len();
    let fields = cache.fields();
    let (uri, head) = match cached_uri {
        Some(uri) => (uri.clone(), Head::InInput(len)),
        None => {
            let target = target(&input[..line]).filter(|&it| fits(len, it, fields.len(), http))?;
            let head = input.split_to(len).freeze();
            match Uri::from_maybe_shared(target.of_bytes(&head)) {
                Ok(uri) => (uri, Head::Taken(head)),
                Err(_) => return Some(Found::Other(head)),
            }
        }
    };
    let headers = begin(request, uri, fields.len(), maps);
    for (name, value) in fields {
        headers.append(name, value.clone());
    }
    Some(Found::Plain {
        head,
        is_last: false,
    })
}

/// Makes a request whose fields have the names of the cache, and some have other values. The rest
/// is as for [`from_cache`].
#[inline(never)]
fn from_names<B>(
    input: &mut BytesMut,
    line: usize,
    cached_uri: Option<&Uri>,
    request: &mut Request<B>,
    cache: &CachedHead,
    maps: &FieldMaps,
    http: &Http,
) -> Option<Found> {
    let mut values = [None; FIELDS_MAX];
    let len = cache.same_names(input, line, &mut values)?;
    let fields = cache.fields();
    let target = target(&input[..line]).filter(|&it| fits(len, it, fields.len(), http))?;
    let head = input.split_to(len).freeze();
    let uri = match cached_uri {
        Some(uri) => Ok(uri.clone()),
        None => Uri::from_maybe_shared(target.of_bytes(&head)),
    };
    let Ok(uri) = uri else {
        return Some(Found::Other(head));
    };
    let headers = begin(request, uri, fields.len(), maps);
    for ((name, value), other) in fields.zip(values) {
        let value = match other {
            None => value.clone(),
            Some(other) => match HeaderValue::from_maybe_shared(other.of_bytes(&head)) {
                Ok(value) => value,
                Err(_) => return Some(Found::Other(head)),
            },
        };
        headers.append(name, value);
    }
    Some(Found::Plain {
        head: Head::Taken(head),
        is_last: false,
    })
}

/// Gives a new request its target, and room for so many fields.
#[inline]
fn begin<'a, B>(
    request: &'a mut Request<B>,
    uri: Uri,
    fields: usize,
    maps: &FieldMaps,
) -> &'a mut HeaderMap {
    *request.uri_mut() = uri;
    give_fields(request, maps);
    let headers = request.headers_mut();
    headers.reserve(fields);
    headers
}

/// Gives a new request a map for fields. The request's own map has no capacity, so nothing has to
/// be dropped. `forget` saves the sixty instructions by which the drop finds that out.
#[inline]
fn give_fields<B>(request: &mut Request<B>, maps: &FieldMaps) {
    debug_assert_eq!(request.headers().capacity(), 0);
    mem::forget(mem::replace(request.headers_mut(), maps.take()));
}

/// Where the target is in a request line. `None` if the line is not plain.
fn target(line: &[u8]) -> Option<Span> {
    let mut parsed = httparse::Request::new(&mut []);
    // `Partial`: the line is complete, and the fields are missing.
    let Ok(Status::Partial) = parsed.parse(line) else {
        return None;
    };
    match (parsed.method, parsed.path, parsed.version) {
        (Some("GET"), Some(path), Some(1)) => Some(Span::of(path.as_bytes(), line)),
        _ => None,
    }
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
    *request.uri_mut() = match cache.and_then(|cache| cache.uri(target.of_slice(head))) {
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
