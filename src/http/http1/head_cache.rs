//! The cache of one request head per connection, so that repeated fields are parsed once.
//!
//! A client repeats most of its head with each request: `Host`, `User-Agent`, cookies, perhaps the
//! target. The cache lives as long as the connection is busy. If a later head has the same line at
//! the same place, the request gets the cached field: the server compares the line instead of
//! looking up the name and checking the value byte by byte. A head whose lines are all the same is
//! not parsed at all. HPACK has a table for the same reason (RFC 7541 2.3.2).

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Uri};

use crate::http::http1::field::{Field, Span};

/// A longer head is not cached, because each busy connection has a cache.
const HEAD_MAX: usize = 4 * 1024;

/// After so many lines that were new another head is cached: the client says something else now, or
/// is a proxy for many.
const NEW_MAX: u32 = 256;

/// See the module's head.
#[derive(Default)]
pub(crate) struct HeadCache {
    heads: Heads,
    new: u32,
    cached: Option<Box<CachedHead>>,
}

/// How many heads have come. The first one is not cached: there may be no other.
#[derive(Clone, Copy, Default)]
enum Heads {
    #[default]
    None,
    One,
    Learnt,
}

/// A cached head, parsed.
pub(crate) struct CachedHead {
    head: Bytes,
    /// Where its fields begin.
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
    /// the number of lines that were new.
    #[inline]
    pub(crate) fn learn(&mut self, head: &[u8], target: Span, fields: &[Field], new: u32) {
        self.heads = match self.heads {
            Heads::Learnt => {
                self.new += new;
                if self.new > NEW_MAX {
                    self.keep(head, target, fields);
                }
                return;
            }
            Heads::None => Heads::One,
            Heads::One => {
                self.keep(head, target, fields);
                Heads::Learnt
            }
        };
    }

    #[cold]
    fn keep(&mut self, head: &[u8], target: Span, fields: &[Field]) {
        self.new = 0;
        if head.len() <= HEAD_MAX {
            self.cached = CachedHead::new(head, target, fields).map(Box::new);
        }
    }
}

impl CachedHead {
    fn new(head: &[u8], target: Span, fields: &[Field]) -> Option<Self> {
        // A copy: the head itself is a part of what was read, which is to be used again.
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

    /// How long the request line is, with its end, if the fields that follow it are all those of
    /// this head; and what its target is, if the line is this head's too.
    #[inline]
    pub(crate) fn line_before_same_fields(&self, input: &[u8]) -> Option<(usize, Option<&Uri>)> {
        let (line, section) = self.head.split_at(self.section);
        let (len, uri) = match input.starts_with(line) {
            true => (line.len(), Some(&self.uri)),
            false => (line_len(input)?, None),
        };
        input[len..].starts_with(section).then_some((len, uri))
    }

    /// How long that is, with the empty line.
    #[inline]
    pub(crate) fn section_len(&self) -> usize {
        self.head.len() - self.section
    }

    /// What this target was.
    #[inline]
    pub(crate) fn uri(&self, target: &[u8]) -> Option<&Uri> {
        (self.target.of_slice(&self.head) == target).then_some(&self.uri)
    }

    /// All fields.
    #[inline]
    pub(crate) fn fields(&self) -> impl ExactSizeIterator<Item = (&HeaderName, &HeaderValue)> {
        self.lines.iter().map(|line| (&line.name, &line.value))
    }

    /// The field that this line was, when it stood in the same place before.
    #[inline]
    pub(crate) fn field(&self, at: usize, line: &[u8]) -> Option<(&HeaderName, &HeaderValue)> {
        let cache = self.lines.get(at)?;
        let is_same = cache.field.line(&self.head) == line;
        is_same.then_some((&cache.name, &cache.value))
    }
}

/// Of the first line, with its end.
fn line_len(bytes: &[u8]) -> Option<usize> {
    let end = bytes.iter().position(|&byte| byte == b'\n')?;
    Some(end + 1)
}
