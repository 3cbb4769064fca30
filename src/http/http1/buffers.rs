//! Room for what is read, and for the fields of requests and answers. A connection has some while
//! it has something to understand or to answer, and no longer: what serves thousands that are busy
//! now and then is a few buffers, which stay in the CPU's cache.

use bytes::BytesMut;
use http::HeaderMap;

use crate::pool::FreeList;

/// As many of each are kept for later.
const KEPT_MAX: usize = 32;

/// New room for input takes more than most heads have. It may grow to what is read at once.
const INPUT_MIN: usize = 1024;

/// Room for more fields than this was for a rare request, and is not kept.
const FIELDS_MAX: usize = 64;

/// See the module's head.
pub(crate) struct Buffers {
    inputs: FreeList<BytesMut>,
    fields: FreeList<HeaderMap>,
}

impl Buffers {
    pub(crate) fn new() -> Self {
        Self {
            inputs: FreeList::new(KEPT_MAX),
            fields: FreeList::new(KEPT_MAX),
        }
    }

    /// Empty.
    pub(crate) fn input(&self) -> BytesMut {
        let kept = self.inputs.take();
        kept.unwrap_or_else(|| BytesMut::with_capacity(INPUT_MIN))
    }

    /// Takes it back. It is empty.
    pub(crate) fn keep_input(&self, input: BytesMut) {
        self.inputs.keep(input);
    }

    /// Empty.
    pub(crate) fn fields(&self) -> HeaderMap {
        self.fields.take().unwrap_or_default()
    }

    /// Takes it back, and empties it.
    pub(crate) fn keep_fields(&self, mut fields: HeaderMap) {
        let room = fields.capacity().max(fields.len());
        if (1..=FIELDS_MAX).contains(&room) {
            fields.clear();
            self.fields.keep(fields);
        }
    }

    /// How many of each.
    #[cfg(test)]
    pub(crate) fn kept(&self) -> (usize, usize) {
        (self.inputs.len(), self.fields.len())
    }
}

#[cfg(test)]
mod tests {
    use std::iter;

    use http::HeaderValue;

    use super::*;

    fn with_fields(count: usize) -> HeaderMap {
        let field = |at| {
            let name = http::HeaderName::try_from(format!("x-{at}")).expect("a name");
            (name, HeaderValue::from_static("?"))
        };
        (0..count).map(field).collect()
    }

    #[test]
    fn room_comes_back_empty() {
        let buffers = Buffers::new();
        let fields = with_fields(8);
        let capacity = fields.capacity();
        buffers.keep_fields(fields);
        let again = buffers.fields();
        assert!(again.is_empty());
        assert_eq!(again.capacity(), capacity);
        assert_eq!(buffers.fields().capacity(), 0, "there was one");
    }

    #[test]
    fn room_for_a_rare_request_is_not_kept() {
        let buffers = Buffers::new();
        let repeated = iter::repeat_with(|| with_fields(1)).take(FIELDS_MAX + 1);
        let mut of_one_name = HeaderMap::new();
        for (name, value) in repeated.flatten() {
            of_one_name.append(name.expect("one of each"), value);
        }
        for fields in [with_fields(0), with_fields(FIELDS_MAX + 1), of_one_name] {
            let count = fields.len();
            buffers.keep_fields(fields);
            assert_eq!(buffers.fields().capacity(), 0, "{count} fields");
        }
    }

    #[test]
    fn there_is_an_end_to_it() {
        let buffers = Buffers::new();
        (0..=KEPT_MAX).for_each(|_| buffers.keep_fields(with_fields(1)));
        assert_eq!(buffers.kept(), (0, KEPT_MAX));
    }
}
