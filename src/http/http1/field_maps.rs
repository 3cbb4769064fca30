//! Maps for the fields of requests and responses. A connection has one only while it parses a
//! request or makes a response. So a few maps, which stay in the CPU's cache, serve thousands of
//! connections that are busy now and then.

use http::HeaderMap;

use crate::pool::FreeList;

/// The most free maps that are stored.
const FREE_MAX: usize = 32;

/// A map with a larger capacity is not stored, because so many fields are rare.
const FIELDS_MAX: usize = 64;

/// The free maps of a server.
pub(crate) struct FieldMaps(FreeList<HeaderMap>);

impl FieldMaps {
    pub(crate) fn new() -> Self {
        Self(FreeList::new(FREE_MAX))
    }

    /// An empty map.
    pub(crate) fn take(&self) -> HeaderMap {
        self.0.take().unwrap_or_default()
    }

    /// Takes back a map, and empties it.
    pub(crate) fn put_back(&self, mut fields: HeaderMap) {
        let capacity = fields.capacity().max(fields.len());
        if (1..=FIELDS_MAX).contains(&capacity) {
            fields.clear();
            self.0.keep(fields);
        }
    }

    /// The number of free maps.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.0.len()
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
        let maps = FieldMaps::new();
        let fields = with_fields(8);
        let capacity = fields.capacity();
        maps.put_back(fields);
        let again = maps.take();
        assert!(again.is_empty());
        assert_eq!(again.capacity(), capacity);
        assert_eq!(maps.take().capacity(), 0, "only one map was returned");
    }

    #[test]
    fn a_map_without_capacity_or_with_too_much_is_not_stored() {
        let maps = FieldMaps::new();
        let repeated = iter::repeat_with(|| with_fields(1)).take(FIELDS_MAX + 1);
        let mut of_one_name = HeaderMap::new();
        for (name, value) in repeated.flatten() {
            of_one_name.append(name.expect("one of each"), value);
        }
        for fields in [with_fields(0), with_fields(FIELDS_MAX + 1), of_one_name] {
            let count = fields.len();
            maps.put_back(fields);
            assert_eq!(maps.take().capacity(), 0, "{count} fields");
        }
    }

    #[test]
    fn the_number_of_stored_maps_is_limited() {
        let maps = FieldMaps::new();
        (0..=FREE_MAX).for_each(|_| maps.put_back(with_fields(1)));
        assert_eq!(maps.len(), FREE_MAX);
    }
}
