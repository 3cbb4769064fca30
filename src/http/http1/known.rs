//! What a client says again with each request: `Host`, `User-Agent`, cookies, or the target that it
//! polls. It is understood once.
//!
//! The lines of one head are kept for as long as the connection is busy. A later head that has the
//! same line in the same place gets the same field: a comparison, where a name would have to be
//! looked up and a value checked byte by byte, and a name of the client's own be allocated. HPACK
//! has a table for the same reason (RFC 7541 2.3.2).

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Uri};

use super::head::{Field, Span};

/// A head that is longer is not kept: it would be so for each connection that is busy.
const HEAD_MAX: usize = 4 * 1024;

/// After so many lines that were new another head is kept: the client says something else now, or
/// is a proxy for many.
const NEW_MAX: u32 = 256;

/// See the module's head.
#[derive(Default)]
pub(super) struct Known {
    heads: Heads,
    new: u32,
    head: Bytes,
    target: Option<(Span, Uri)>,
    lines: Vec<Line>,
}

struct Line {
    field: Field,
    name: HeaderName,
    value: HeaderValue,
}

/// How many have come. The first is not kept: it may be the only one.
#[derive(Clone, Copy, Default)]
enum Heads {
    #[default]
    None,
    One,
    Learnt,
}

impl Known {
    /// What this target was.
    #[inline]
    pub(super) fn target(&self, target: &[u8]) -> Option<&Uri> {
        let (span, uri) = self.target.as_ref()?;
        (span.of_slice(&self.head) == target).then_some(uri)
    }

    /// The field that this line was, when it stood in the same place before.
    #[inline]
    pub(super) fn field(&self, at: usize, line: &[u8]) -> Option<(&HeaderName, &HeaderValue)> {
        let known = self.lines.get(at)?;
        let is_same = known.field.line(&self.head) == line;
        is_same.then_some((&known.name, &known.value))
    }

    /// Keeps a head whose fields are plain, unless another is kept that has most of its lines. So
    /// many of them were new.
    #[inline]
    pub(super) fn learn(&mut self, head: &[u8], target: Span, fields: &[Field], new: u32) {
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
        if head.len() > HEAD_MAX {
            return;
        }
        // A copy: the head itself is a part of what was read, which is to be used again.
        self.head = Bytes::copy_from_slice(head);
        let uri = Uri::from_maybe_shared(target.of_bytes(&self.head));
        self.target = uri.ok().map(|uri| (target, uri));
        let lines = fields.iter().map_while(|&field| {
            let (name, value) = field.parse(&self.head)?;
            Some(Line { field, name, value })
        });
        self.lines = lines.collect();
    }
}
