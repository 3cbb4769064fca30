//! Where the parts of a request's head are in its bytes.

use bytes::Bytes;
use http::{HeaderName, HeaderValue};

/// Where a field is in its head.
#[derive(Clone, Copy, Default)]
pub(crate) struct Field {
    pub(crate) name: Span,
    pub(crate) value: Span,
}

impl Field {
    /// The bytes from the start of the name to the end of the value.
    #[inline]
    pub(crate) fn line(self, head: &[u8]) -> &[u8] {
        &head[self.name.start as usize..self.value.end as usize]
    }

    /// Parses the field. The value shares the memory of the head.
    pub(crate) fn parse(self, head: &Bytes) -> Option<(HeaderName, HeaderValue)> {
        let name = HeaderName::from_bytes(self.name.of_slice(head)).ok()?;
        let value = HeaderValue::from_maybe_shared(self.value.of_bytes(head)).ok()?;
        Some((name, value))
    }
}

/// A part of a head.
#[derive(Clone, Copy, Default)]
pub(crate) struct Span {
    pub(crate) start: u32,
    pub(crate) end: u32,
}

impl Span {
    #[inline]
    pub(crate) fn of(part: &[u8], whole: &[u8]) -> Self {
        let start = part.as_ptr().addr() - whole.as_ptr().addr();
        Self {
            start: start as u32,
            end: (start + part.len()) as u32,
        }
    }

    #[inline]
    pub(crate) fn of_bytes(self, head: &Bytes) -> Bytes {
        head.slice(self.start as usize..self.end as usize)
    }

    #[inline]
    pub(crate) fn of_slice(self, head: &[u8]) -> &[u8] {
        &head[self.start as usize..self.end as usize]
    }
}
