//! The cache of one request head per connection, so that repeated fields are parsed once.
//!
//! A client repeats most of its head with each request: `Host`, `User-Agent`, cookies, perhaps the
//! target. A connection has the cache while it is busy. If a later head has the same line at the
//! same position, the request gets the cached field: the server compares the line instead of
//! looking up the name and checking the value byte by byte. A head whose lines are all the same is
//! not parsed at all. HPACK has a table for the same reason (RFC 7541 2.3.2).

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Uri};

use crate::http::http1::field::{Field, Span};

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
    target: Span,
    uri: Uri,
    lines: Vec<CachedField>,
}

struct CachedField {
    field: Field,
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
    pub(crate) fn learn(&mut self, head: &[u8], target: Span, fields: &[Field], new: u32) {
        self.heads = match self.heads {
            Heads::Two => {
                self.new += new;
                if self.new > NEW_MAX {
                    self.store(head, target, fields);
                }
                return;
            }
            Heads::None => Heads::One,
            Heads::One => {
                self.store(head, target, fields);
                Heads::Two
            }
        };
    }

    #[cold]
    fn store(&mut self, head: &[u8], target: Span, fields: &[Field]) {
        self.new = 0;
        if head.len() <= HEAD_MAX {
            self.cached = CachedHead::new(head, target, fields).map(Box::new);
        }
    }
}

impl CachedHead {
    fn new(head: &[u8], target: Span, fields: &[Field]) -> Option<Self> {
        // A copy: the head itself is a part of the input buffer, which will be used again.
        let head = Bytes::copy_from_slice(head);
        let lines = fields.iter().map(|&field| {
            let (name, value) = field.parse(&head)?;
            Some(CachedField { field, name, value })
        });
        Some(Self {
            section: line_len(&head)?,
            target,
            uri: Uri::from_maybe_shared(target.of_bytes(&head)).ok()?,
            lines: lines.collect::<Option<_>>()?,
            head,
        })
    }

    /// The length of the input's request line, with the end of the line, if all fields that follow
    /// it equal those of this head. Also the target, if the line equals that of this head.
    #[inline]
    pub(crate) fn line_before_same_fields(&self, input: &[u8]) -> Option<(usize, Option<&Uri>)> {
        let (line, section) = self.head.split_at(self.section);
        let (len, uri) = match input.starts_with(line) {
            true => (line.len(), Some(&self.uri)),
            false => (line_len(input)?, None),
        };
        input[len..].starts_with(section).then_some((len, uri))
    }

    /// The length of all fields, with the empty line.
    #[inline]
    pub(crate) fn section_len(&self) -> usize {
        self.head.len() - self.section
    }

    /// The cached URI, if its target equals this one.
    #[inline]
    pub(crate) fn uri(&self, target: &[u8]) -> Option<&Uri> {
        (self.target.of_slice(&self.head) == target).then_some(&self.uri)
    }

    #[inline]
    pub(crate) fn fields(&self) -> impl ExactSizeIterator<Item = (&HeaderName, &HeaderValue)> {
        self.lines.iter().map(|line| (&line.name, &line.value))
    }

    /// The cached field at this position, if its line equals `line`.
    #[inline]
    pub(crate) fn field(&self, at: usize, line: &[u8]) -> Option<(&HeaderName, &HeaderValue)> {
        let cached = self.lines.get(at)?;
        let is_same = cached.field.line(&self.head) == line;
        is_same.then_some((&cached.name, &cached.value))
    }
}

/// The length of the first line, with the end of the line.
fn line_len(bytes: &[u8]) -> Option<usize> {
    let end = bytes.iter().position(|&byte| byte == b'\n')?;
    Some(end + 1)
}
