//! The cache of one request head per connection, so that repeated fields are parsed once.
//!
//! A client repeats most of its head with each request: `Host`, `User-Agent`, cookies, perhaps the
//! target. A connection has the cache while it is busy. If a later head has the same line at the
//! same position, the request gets the cached field: the server compares the line instead of
//! looking up the name and checking the value byte by byte. A head whose lines are all the same is
//! not parsed at all, and one that has other values behind the same names is parsed in these values
//! only. HPACK has a table for the same reason (RFC 7541 2.3.2).

use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};

use crate::http::exchange::{length, rules};
use crate::http::http1::field::{Field, Span};
use crate::http::http1::permanent;

/// A longer head is not cached, because each busy connection has a cache.
const HEAD_MAX: usize = 4 * 1024;

/// After so many new lines another head is cached: the client now sends other heads, or it is a
/// proxy for many clients.
const NEW_MAX: u32 = 256;

/// The cache of one connection.
#[derive(Default)]
pub(crate) struct HeadCache {
    heads: Heads,
    /// The number of new lines since a head was cached.
    new: u32,
    cached: Option<Box<CachedHead>>,
}

/// The number of heads that have come. The first head is not cached: it may be the only one.
#[derive(Clone, Copy, Default)]
enum Heads {
    #[default]
    None,
    One,
    /// Two or more.
    Two,
}

/// A cached head, parsed.
pub(crate) struct CachedHead {
    head: Bytes,
    /// Where the fields begin.
    section: usize,
    method: Method,
    target: Span,
    uri: Uri,
    lines: Vec<CachedField>,
    /// The length of the request's body.
    body: usize,
}

/// Which of the values of a request's fields are in the memory of its own head, and not in that of
/// the cached head.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum NewValues {
    /// Those at these positions, a bit each.
    At(u32),
    /// Perhaps all.
    All,
}

/// A request line of the input.
#[derive(Clone, Copy)]
pub(crate) struct Line {
    /// With the end of the line.
    pub(crate) len: usize,
    /// Whether it equals the cached one.
    pub(crate) is_cached: bool,
}

struct CachedField {
    field: Field,
    /// Where the next line begins.
    end: usize,
    /// Whether the request is plain whatever the value is, or whatever number.
    may_differ: bool,
    name: HeaderName,
    value: HeaderValue,
}

impl HeadCache {
    #[inline]
    pub(crate) fn cached(&self) -> Option<&CachedHead> {
        self.cached.as_deref()
    }

    /// Caches a head whose fields are plain, unless the cached head has most of its lines. `new` is
    /// the number of lines that the cached head did not have.
    #[inline]
    pub(crate) fn learn(
        &mut self,
        head: &[u8],
        method: &Method,
        target: Span,
        fields: &[Field],
        body: usize,
        new: u32,
    ) {
        self.heads = match self.heads {
            Heads::Two => {
                self.new += new;
                if self.new <= NEW_MAX {
                    return;
                }
                Heads::Two
            }
            Heads::None => {
                self.heads = Heads::One;
                return;
            }
            Heads::One => Heads::Two,
        };
        self.new = 0;
        if head.len() <= HEAD_MAX {
            let cached = CachedHead::new(head, method, target, fields, body);
            self.cached = cached.map(Box::new);
        }
    }
}

impl CachedHead {
    #[cold]
    fn new(
        head: &[u8],
        method: &Method,
        target: Span,
        fields: &[Field],
        body: usize,
    ) -> Option<Self> {
        // A copy: the head itself is a part of the input buffer, which will be used again.
        let head = Bytes::copy_from_slice(head);
        let lines = fields.iter().map(|&field| {
            let (name, value) = field.parse(&head)?;
            let (name, value) = permanent::field(name, value);
            let end = field.value.end as usize;
            Some(CachedField {
                field,
                end: end + line_len(&head[end..])?,
                may_differ: !value.is_empty()
                    && (name == CONTENT_LENGTH || !rules::is_about_the_message(&name)),
                name,
                value,
            })
        });
        Some(Self {
            section: line_len(&head)?,
            method: method.clone(),
            target,
            uri: match target.of_slice(&head) {
                // The default is this target, and its clones count no references.
                b"/" => Uri::default(),
                _ => Uri::from_maybe_shared(target.of_bytes(&head)).ok()?,
            },
            lines: lines.collect::<Option<_>>()?,
            body,
            head,
        })
    }

    /// The input's request line.
    #[inline]
    pub(crate) fn line(&self, input: &[u8]) -> Option<Line> {
        let line = &self.head[..self.section];
        let is_cached = input.starts_with(line);
        let len = match is_cached {
            true => line.len(),
            false => line_len(input)?,
        };
        Some(Line { len, is_cached })
    }

    /// Whether these are the fields of this head, all of them.
    #[inline]
    pub(crate) fn has_section(&self, input: &[u8]) -> bool {
        input.starts_with(&self.head[self.section..])
    }

    /// The lengths of the input's first head, whose fields begin at `at`, and of its body, if the
    /// head has the names of this one and each value is a plain one. Puts the values that differ
    /// into `values`.
    pub(crate) fn same_names(
        &self,
        input: &[u8],
        mut at: usize,
        values: &mut [Option<Span>],
    ) -> Option<(usize, usize)> {
        let mut body = self.body;
        for (cached, value) in self.lines.iter().zip(values) {
            let rest = &input[at..];
            let Field { name, value: known } = cached.field;
            let line = &self.head[name.start as usize..cached.end];
            if rest.starts_with(line) {
                at += line.len();
                continue;
            }
            if !cached.may_differ {
                return None;
            }
            let before = &self.head[name.start as usize..known.start as usize];
            let rest = rest.strip_prefix(before)?;
            let end = memchr::memchr(b'\n', rest)?;
            let text = rest[..end].strip_suffix(b"\r")?;
            let is_blank = |byte: Option<&u8>| byte.is_none_or(u8::is_ascii_whitespace);
            if is_blank(text.first()) || is_blank(text.last()) {
                return None;
            }
            if cached.name == CONTENT_LENGTH {
                body = length::number(text)?;
            }
            *value = Some(Span::of(text, input));
            at += before.len() + end + 1;
        }
        let is_whole = input[at..].starts_with(b"\r\n");
        is_whole.then_some((at + 2, body))
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.head.len()
    }

    /// The length of all fields, with the empty line.
    #[inline]
    pub(crate) fn section_len(&self) -> usize {
        self.head.len() - self.section
    }

    /// The length of the request's body.
    #[inline]
    pub(crate) fn body(&self) -> usize {
        self.body
    }

    #[inline]
    pub(crate) fn method(&self) -> &Method {
        &self.method
    }

    #[inline]
    pub(crate) fn target(&self) -> Span {
        self.target
    }

    #[inline]
    pub(crate) fn uri(&self) -> &Uri {
        &self.uri
    }

    /// The cached URI, if its target equals this one.
    #[inline]
    pub(crate) fn uri_of(&self, target: &[u8]) -> Option<&Uri> {
        (self.target.of_slice(&self.head) == target).then_some(&self.uri)
    }

    #[inline]
    pub(crate) fn fields(&self) -> impl ExactSizeIterator<Item = (&HeaderName, &HeaderValue)> {
        self.lines.iter().map(|line| (&line.name, &line.value))
    }

    /// Gives `headers` the fields of this head and no others. `other` has the value of the field at
    /// a position, if it differs. To compare a field that `headers` has takes 50 instructions, and
    /// to append it to an empty map 200.
    #[inline]
    pub(crate) fn put_fields<E>(
        &self,
        headers: &mut HeaderMap,
        other: impl Fn(usize) -> Option<Result<HeaderValue, E>>,
    ) -> Result<(), E> {
        if self.replace_values(headers, &other)? {
            return Ok(());
        }
        headers.clear();
        headers.reserve(self.lines.len());
        for (at, (name, value)) in self.fields().enumerate() {
            headers.append(name, other(at).unwrap_or_else(|| Ok(value.clone()))?);
        }
        Ok(())
    }

    /// Returns whether `headers` has the names of this head in their order, and no others.
    #[inline]
    fn replace_values<E>(
        &self,
        headers: &mut HeaderMap,
        other: impl Fn(usize) -> Option<Result<HeaderValue, E>>,
    ) -> Result<bool, E> {
        if headers.len() != self.lines.len() {
            return Ok(false);
        }
        for (at, ((name, has), line)) in headers.iter_mut().zip(&self.lines).enumerate() {
            if *name != line.name {
                return Ok(false);
            }
            match other(at) {
                Some(other) => *has = other?,
                None if is_same_memory(has, &line.value) => {}
                None => *has = line.value.clone(),
            }
        }
        Ok(true)
    }

    /// Keeps the fields of a request in its map, for the next one, without the values that are in
    /// the memory of the request's head. Returns whether it has: a handler may have changed the
    /// map.
    #[inline]
    pub(crate) fn keep_fields(&self, headers: &mut HeaderMap, new: NewValues) -> bool {
        let NewValues::At(mut bits) = new else {
            return false;
        };
        let count = self.lines.len();
        if (headers.len(), headers.keys_len()) != (count, count) {
            return false;
        }
        while bits != 0 {
            let line = &self.lines[bits.trailing_zeros() as usize];
            let Some(value) = headers.get_mut(&line.name) else {
                return false;
            };
            *value = HeaderValue::from_static("");
            bits &= bits - 1;
        }
        true
    }

    /// The cached field at this position, if its line equals `line`.
    #[inline]
    pub(crate) fn field(&self, at: usize, line: &[u8]) -> Option<(&HeaderName, &HeaderValue)> {
        let cached = self.lines.get(at)?;
        let is_same = cached.field.line(&self.head) == line;
        is_same.then_some((&cached.name, &cached.value))
    }
}

/// Whether a value of a map is a clone of a cached one, which the handler has not marked.
#[inline]
fn is_same_memory(has: &HeaderValue, cached: &HeaderValue) -> bool {
    has.as_bytes().as_ptr_range() == cached.as_bytes().as_ptr_range() && !has.is_sensitive()
}

/// The length of the first line, with the end of the line.
fn line_len(bytes: &[u8]) -> Option<usize> {
    Some(memchr::memchr(b'\n', bytes)? + 1)
}
