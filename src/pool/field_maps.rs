//! Maps for the fields of requests and responses. A connection has one only while it parses a
//! request or makes a response. So a few maps, which stay in the CPU's cache, serve thousands of
//! connections that are busy now and then.
//!
//! The map of a request comes back with its fields: the next request often has the same, and to
//! compare a field costs less than to put it into an empty map.

use std::cell::RefCell;
use std::mem;

use http::HeaderMap;

/// The most free maps that are stored. Each may have values in the memory of a cached head (4 KiB).
const FREE_MAX: usize = 32;

/// A map with a larger capacity is not stored, because so many fields are rare.
const FIELDS_MAX: usize = 64;

thread_local! {
    static MAPS: RefCell<FieldMaps> = const { RefCell::new(FieldMaps::new()) };
}

/// The free maps of a thread.
struct FieldMaps {
    /// For requests. Most have the fields of an earlier one.
    free: Vec<HeaderMap>,
    /// The map that is exchanged for another one.
    other: Option<HeaderMap>,
    other_is: Other,
}

/// The state of `other`. The first exchange waits until a connection takes maps back: in HTTP/2
/// none does.
#[derive(Clone, Copy)]
enum Other {
    /// `None`. No response has asked for a map.
    Unwanted,
    /// `None`. A response has asked for a map.
    Wanted,
    /// An empty map for a response.
    Spare,
    /// The map of a request, with all its fields. Its response has got the spare map.
    Returned,
}

/// Gives a new request a map, which may have the fields of an earlier request.
#[inline]
pub(crate) fn give(headers: &mut HeaderMap) {
    with(|maps| {
        if let Some(free) = maps.free.pop() {
            place(headers, free);
        }
    });
}

/// Replaces the map of a new message. That map has no capacity, so nothing has to be dropped:
/// `forget` saves the sixty instructions by which the drop finds that out.
#[inline]
pub(crate) fn place(headers: &mut HeaderMap, fields: HeaderMap) {
    debug_assert_eq!(headers.capacity(), 0);
    mem::forget(mem::replace(headers, fields));
}

/// Replaces the map of a request by an empty one for its response.
#[inline]
pub(crate) fn exchange(fields: &mut HeaderMap) {
    if with(|maps| maps.exchange(fields)) != Some(true) {
        fields.clear();
    }
}

/// Takes back the map of a response, and the one of its request if it was [exchanged](exchange).
/// `keeps` may keep fields in that one, and says whether it has; else it is emptied.
#[inline]
pub(crate) fn put_back(mut fields: HeaderMap, keeps: impl FnOnce(&mut HeaderMap) -> bool) {
    if !is_stored(&fields) {
        fields = HeaderMap::new();
    }
    with(|maps| {
        if !(maps.take_returned(&mut fields) && keeps(&mut fields)) {
            fields.clear();
        }
        if is_stored(&fields) && maps.free.len() < FREE_MAX {
            maps.free.push(fields);
        }
    });
}

/// `None`: the thread is ending and has no maps any more, or the drop of a value wants one.
#[inline]
fn with<T>(call: impl FnOnce(&mut FieldMaps) -> T) -> Option<T> {
    let call = |maps: &RefCell<FieldMaps>| Some(call(&mut *maps.try_borrow_mut().ok()?));
    MAPS.try_with(call).ok().flatten()
}

#[inline]
fn is_stored(fields: &HeaderMap) -> bool {
    (1..=FIELDS_MAX).contains(&fields.capacity().max(fields.len()))
}

impl FieldMaps {
    const fn new() -> Self {
        Self {
            free: Vec::new(),
            other: None,
            other_is: Other::Unwanted,
        }
    }

    /// Returns whether the map was replaced.
    #[inline]
    fn exchange(&mut self, fields: &mut HeaderMap) -> bool {
        let Some(other) = &mut self.other else {
            self.other_is = Other::Wanted;
            return false;
        };
        let is_spare = matches!(self.other_is, Other::Spare);
        if is_spare {
            mem::swap(other, fields);
            self.other_is = Other::Returned;
        }
        is_spare
    }

    /// Replaces the map of a response by the one of a request that was exchanged. Returns whether
    /// there was one.
    #[inline]
    fn take_returned(&mut self, fields: &mut HeaderMap) -> bool {
        match (self.other_is, &mut self.other) {
            (Other::Returned, Some(other)) => {
                mem::swap(other, fields);
                other.clear();
                self.other_is = Other::Spare;
                true
            }
            (Other::Wanted, _) => {
                self.other = Some(HeaderMap::with_capacity(fields.capacity()));
                self.other_is = Other::Spare;
                false
            }
            _ => false,
        }
    }
}

/// Drops all maps, and returns how many there were for requests.
#[cfg(test)]
pub(crate) fn drop_all() -> usize {
    let all = with(|maps| mem::replace(maps, FieldMaps::new()));
    all.map_or(0, |maps| maps.free.len())
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

    fn given() -> HeaderMap {
        let mut fields = HeaderMap::new();
        give(&mut fields);
        fields
    }

    #[test]
    fn the_map_of_a_response_is_given_to_a_request_empty_and_with_its_capacity() {
        let fields = with_fields(8);
        let capacity = fields.capacity();
        put_back(fields, |_| panic!("no request has given its map"));
        let again = given();
        assert!(again.is_empty());
        assert_eq!(again.capacity(), capacity);
        assert_eq!(given().capacity(), 0, "only one map was returned");
    }

    #[test]
    fn a_map_without_capacity_or_with_too_much_is_not_stored() {
        let repeated = iter::repeat_with(|| with_fields(1)).take(FIELDS_MAX + 1);
        let mut of_one_name = HeaderMap::new();
        for (name, value) in repeated.flatten() {
            of_one_name.append(name.expect("one of each"), value);
        }
        for fields in [with_fields(0), with_fields(FIELDS_MAX + 1), of_one_name] {
            let count = fields.len();
            put_back(fields, |_| panic!("no request has given its map"));
            assert_eq!(given().capacity(), 0, "{count} fields");
        }
    }

    #[test]
    fn the_number_of_stored_maps_is_limited() {
        (0..=FREE_MAX).for_each(|_| put_back(with_fields(1), |_| true));
        assert_eq!(drop_all(), FREE_MAX);
    }

    /// What a connection does for a request whose response has so many fields. Returns what the
    /// next request gets.
    fn request(fields: HeaderMap, in_response: usize, is_kept: bool) -> HeaderMap {
        let before = fields.clone();
        let mut response = fields;
        exchange(&mut response);
        assert!(response.is_empty());
        response.extend(with_fields(in_response));
        put_back(response, |returned| {
            assert_eq!(*returned, before);
            is_kept
        });
        given()
    }

    #[test]
    fn the_map_of_a_request_comes_back_with_its_fields_from_the_second_response_on() {
        let first = request(with_fields(3), 1, true);
        assert!(first.is_empty(), "it was the map of the response");
        let second = request(with_fields(3), 1, true);
        assert_eq!(second, with_fields(3));
        let third = request(second, 1, false);
        assert!(third.is_empty() && third.capacity() >= 3);
        assert_eq!(drop_all(), 0);
    }

    #[test]
    fn the_map_of_a_response_with_too_many_fields_is_not_stored() {
        request(with_fields(3), 1, true);
        request(with_fields(3), FIELDS_MAX + 1, true);
        let mut response = with_fields(3);
        exchange(&mut response);
        assert_eq!(response.capacity(), 0);
    }

    /// A handler may make a response and wait before it returns it.
    #[test]
    fn a_second_request_before_the_first_one_has_its_response_keeps_its_map() {
        request(with_fields(3), 1, true);
        let (mut first, mut second) = (with_fields(1), with_fields(2));
        let capacity = second.capacity();
        exchange(&mut first);
        exchange(&mut second);
        assert_eq!((second.len(), second.capacity()), (0, capacity));
        put_back(second, |returned| *returned == with_fields(1));
        assert_eq!(given(), with_fields(1));
        put_back(first, |_| panic!("no other map has come"));
        assert!(given().is_empty());
    }

    #[test]
    fn a_value_whose_drop_needs_a_map_gets_none() {
        struct Owner;
        impl AsRef<[u8]> for Owner {
            fn as_ref(&self) -> &[u8] {
                b"?"
            }
        }
        impl Drop for Owner {
            fn drop(&mut self) {
                exchange(&mut with_fields(1));
            }
        }
        request(with_fields(3), 1, true);
        let value = HeaderValue::from_maybe_shared(bytes::Bytes::from_owner(Owner));
        let mut fields = with_fields(1);
        fields.insert("x-owned", value.expect("a value"));
        exchange(&mut fields);
        put_back(fields, |_| false);
        assert!(given().is_empty());
    }
}
