//! Buffers for input, and maps for the fields of requests and responses. A connection has them only
//! while it parses a request or makes a response. So a few buffers, which stay in the CPU's cache,
//! serve thousands of connections that are busy now and then.

use bytes::BytesMut;
use http::HeaderMap;

use crate::pool::FreeList;

/// The most free buffers, and the most free maps, that are stored.
const FREE_MAX: usize = 32;

/// Capacity of a new buffer for input, in bytes. Most heads are shorter. The buffer may grow to the
/// size of one read.
const INPUT_MIN: usize = 1024;

/// A map with a larger capacity is not stored, because so many fields are rare.
const FIELDS_MAX: usize = 64;

/// The free buffers and maps of a worker.
pub(crate) struct Buffers {
    inputs: FreeList<BytesMut>,
    fields: FreeList<HeaderMap>,
}

impl Buffers {
    pub(crate) fn new() -> Self {
        Self {
            inputs: FreeList::new(FREE_MAX),
            fields: FreeList::new(FREE_MAX),
        }
    }

    /// An empty buffer.
    pub(crate) fn input(&self) -> BytesMut {
        let free = self.inputs.take();
        free.unwrap_or_else(|| BytesMut::with_capacity(INPUT_MIN))
    }

    /// Takes back a buffer, which is empty.
    pub(crate) fn return_input(&self, input: BytesMut) {
        self.inputs.keep(input);
    }

    /// An empty map.
    pub(crate) fn fields(&self) -> HeaderMap {
        self.fields.take().unwrap_or_default()
    }

    /// Takes back a map, and empties it.
    pub(crate) fn return_fields(&self, mut fields: HeaderMap) {
        let capacity = fields.capacity().max(fields.len());
        if (1..=FIELDS_MAX).contains(&capacity) {
            fields.clear();
            self.fields.keep(fields);
        }
    }

    /// The number of free buffers and of free maps.
    #[cfg(test)]
    pub(crate) fn free(&self) -> (usize, usize) {
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
    fn a_returned_map_is_empty_and_has_its_capacity() {
        let buffers = Buffers::new();
        let fields = with_fields(8);
        let capacity = fields.capacity();
        buffers.return_fields(fields);
        let again = buffers.fields();
        assert!(again.is_empty());
        assert_eq!(again.capacity(), capacity);
        assert_eq!(buffers.fields().capacity(), 0, "only one map was returned");
    }

    #[test]
    fn a_map_without_capacity_or_with_too_much_is_not_stored() {
        let buffers = Buffers::new();
        let repeated = iter::repeat_with(|| with_fields(1)).take(FIELDS_MAX + 1);
        let mut of_one_name = HeaderMap::new();
        for (name, value) in repeated.flatten() {
            of_one_name.append(name.expect("one of each"), value);
        }
        for fields in [with_fields(0), with_fields(FIELDS_MAX + 1), of_one_name] {
            let count = fields.len();
            buffers.return_fields(fields);
            assert_eq!(buffers.fields().capacity(), 0, "{count} fields");
        }
    }

    #[test]
    fn the_number_of_stored_maps_is_limited() {
        let buffers = Buffers::new();
        (0..=FREE_MAX).for_each(|_| buffers.return_fields(with_fields(1)));
        assert_eq!(buffers.free(), (0, FREE_MAX));
    }
}
