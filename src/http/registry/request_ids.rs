//! The id of a request: the one that the client sent, or a new one.

use std::cell::Cell;
use std::fmt::Write;
use std::hash::{BuildHasher, RandomState};

use http::{HeaderMap, HeaderName, HeaderValue};

/// No standard has this field, but most proxies and frameworks use it.
pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The longest id of a client that is used, in bytes.
const LEN_MAX: usize = 64;

/// Makes ids. Those of one worker differ in the number at their end, and those of two workers also
/// in what precedes it.
#[derive(Debug)]
pub(crate) struct RequestIds {
    /// Random.
    worker: u64,
    made: Cell<u64>,
}

impl RequestIds {
    pub(crate) fn new() -> Self {
        Self {
            worker: RandomState::new().hash_one(()),
            made: Cell::new(0),
        }
    }

    /// The id of a request with these fields, which have it afterwards.
    pub(crate) fn of(&self, fields: &mut HeaderMap) -> HeaderValue {
        let mut sent = fields.get_all(REQUEST_ID).iter();
        if let (Some(id), None) = (sent.next(), sent.next())
            && is_usable(id.as_bytes())
        {
            return id.clone();
        }
        let id = self.make();
        fields.insert(REQUEST_ID, id.clone());
        id
    }

    pub(crate) fn make(&self) -> HeaderValue {
        let number = self.made.get();
        self.made.set(number + 1);
        let mut id = String::with_capacity(24);
        write!(id, "{:016x}-{number:x}", self.worker).expect("a String takes everything");
        HeaderValue::try_from(id).expect("letters and digits make a header value")
    }
}

/// Logs and other programs take such an id as it is.
fn is_usable(id: &[u8]) -> bool {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.:=+/".contains(byte);
    (1..=LEN_MAX).contains(&id.len()) && id.iter().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_of_a_client_is_used_if_it_is_one_short_plain_word() {
        let ids = RequestIds::new();
        let long = "a".repeat(LEN_MAX + 1);
        for (sent, is_used) in [
            (&["req-1"][..], true),
            (&["6ba7b810-9dad-11d1-80b4-00c04fd430c8"], true),
            (&[&long[1..]], true),
            (&[&long], false),
            (&[""], false),
            (&["a b"], false),
            (&["a\"b"], false),
            (&["one", "two"], false),
            (&[], false),
        ] {
            let mut fields = HeaderMap::new();
            for id in sent {
                fields.append(REQUEST_ID, HeaderValue::from_str(id).expect("a value"));
            }
            let id = ids.of(&mut fields);
            assert_eq!(
                sent.first().is_some_and(|sent| id == *sent),
                is_used,
                "{sent:?}"
            );
            let now: Vec<_> = fields.get_all(REQUEST_ID).iter().collect();
            assert_eq!(now, [&id]);
        }
    }

    #[test]
    fn no_two_new_ids_are_equal() {
        let (one, other) = (RequestIds::new(), RequestIds::new());
        let ids = [one.make(), one.make(), other.make(), other.make()];
        let distinct: std::collections::BTreeSet<_> =
            ids.iter().map(HeaderValue::as_bytes).collect();
        assert_eq!(distinct.len(), ids.len(), "{ids:?}");
        assert!(ids.iter().all(|id| is_usable(id.as_bytes())), "{ids:?}");
    }
}
