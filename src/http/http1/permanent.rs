//! Names and values of fields in memory that is never freed.
//!
//! A clone of a name or a value counts a reference to its memory, and the drop of the clone does so
//! too: two atomic operations for each field of a request. Clones of what is never freed count
//! nothing. Such memory is bounded, and holds no secret of a user.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use http::header::{
    ACCEPT, ACCEPT_ENCODING, ACCEPT_LANGUAGE, CACHE_CONTROL, CONNECTION, CONTENT_TYPE, HOST,
    PRAGMA, UPGRADE_INSECURE_REQUESTS, USER_AGENT,
};
use http::{HeaderName, HeaderValue};

/// The most names.
const NAMES_MAX: usize = 64;

/// The most values of one name. So a field with many different values takes no room from others.
const VALUES_MAX: usize = 16;

/// A longer name or value stays where it is.
const LEN_MAX: usize = 256;

static PERMANENT: Permanent = Permanent::new();

/// What is never freed: names, and values of each.
struct Permanent(Mutex<BTreeMap<&'static str, BTreeSet<&'static [u8]>>>);

/// The same name and value, in memory that is never freed if there is room.
pub(crate) fn field(name: HeaderName, value: HeaderValue) -> (HeaderName, HeaderValue) {
    PERMANENT.field(name, value)
}

impl Permanent {
    const fn new() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }

    fn field(&self, name: HeaderName, value: HeaderValue) -> (HeaderName, HeaderValue) {
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let text = name.as_str();
        if names.len() < NAMES_MAX && text.len() <= LEN_MAX && !names.contains_key(text) {
            names.insert(Box::leak(text.into()), BTreeSet::new());
        }
        let Some((known, _)) = names.get_key_value(text) else {
            return (name, value);
        };
        let known = HeaderName::from_static(known);
        let values = names.get_mut(text).filter(|_| is_of_programs(&known));
        let same = values.and_then(|values| permanent_value(values, &value));
        (known, same.unwrap_or(value))
    }
}

/// The same value. `None`: there is no room.
fn permanent_value(
    values: &mut BTreeSet<&'static [u8]>,
    value: &HeaderValue,
) -> Option<HeaderValue> {
    let bytes = value.as_bytes();
    if values.len() < VALUES_MAX && bytes.len() <= LEN_MAX && !values.contains(bytes) {
        values.insert(Box::leak(bytes.into()));
    }
    let known = Bytes::from_static(values.get(bytes)?);
    HeaderValue::from_maybe_shared(known).ok()
}

/// Whether the values of this field tell programs and sites apart, and not users.
fn is_of_programs(name: &HeaderName) -> bool {
    matches!(
        *name,
        HOST | USER_AGENT
            | ACCEPT
            | ACCEPT_ENCODING
            | ACCEPT_LANGUAGE
            | CACHE_CONTROL
            | CONNECTION
            | CONTENT_TYPE
            | PRAGMA
            | UPGRADE_INSECURE_REQUESTS
    ) || ["sec-ch-", "sec-fetch-"]
        .iter()
        .any(|prefix| name.as_str().starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use http::header::{AUTHORIZATION, COOKIE};

    use super::*;

    fn value(text: &str) -> HeaderValue {
        HeaderValue::try_from(text).expect("a value")
    }

    fn place(value: &HeaderValue) -> *const u8 {
        value.as_bytes().as_ptr()
    }

    #[test]
    fn the_same_field_has_the_same_memory_again() {
        let permanent = Permanent::new();
        for (name, text) in [("host", "shop.test"), ("sec-ch-ua-mobile", "?0")] {
            let name = || HeaderName::try_from(name).expect("a name");
            let (first, one) = permanent.field(name(), value(text));
            let (second, other) = permanent.field(name(), value(text));
            assert_eq!((&first, &one), (&name(), &value(text)));
            assert_eq!((&second, &other), (&name(), &value(text)));
            assert_eq!(place(&one), place(&other));
        }
    }

    #[test]
    fn what_a_user_may_keep_secret_is_not_kept() {
        let permanent = Permanent::new();
        let own = HeaderName::from_static("x-api-key");
        for name in [AUTHORIZATION, COOKIE, own] {
            let (_, one) = permanent.field(name.clone(), value("secret"));
            let (_, other) = permanent.field(name, value("secret"));
            assert_ne!(place(&one), place(&other));
        }
        let names = permanent.0.lock().expect("nothing panics");
        assert!(names.values().all(BTreeSet::is_empty));
    }

    #[test]
    fn the_memory_is_bounded() {
        let permanent = Permanent::new();
        for at in 0..2 * NAMES_MAX {
            let name = HeaderName::try_from(format!("sec-ch-{at}")).expect("a name");
            for at in 0..2 * VALUES_MAX {
                let text = at.to_string();
                let (same, known) = permanent.field(name.clone(), value(&text));
                assert_eq!((same, known), (name.clone(), value(&text)));
            }
        }
        let long = "a".repeat(LEN_MAX + 1);
        let name = HeaderName::try_from("sec-ch-0").expect("a name");
        assert_eq!(permanent.field(name, value(&long)).1, long);
        let name = HeaderName::try_from(&long).expect("a name");
        assert_eq!(permanent.field(name, value("?0")).0, *long);
        let names = permanent.0.lock().expect("nothing panics");
        assert_eq!(names.len(), NAMES_MAX);
        assert!(names.values().all(|values| values.len() == VALUES_MAX));
    }
}
