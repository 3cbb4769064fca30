//! Any target as a path.

use super::*;
use crate::fuzz;

#[test]
fn paths() {
    fuzz::check("site-path-paths", |bytes| {
        let Ok(uri) = Uri::try_from(bytes) else {
            return;
        };
        let Some(found) = servable(&uri) else {
            return;
        };
        assert_eq!(servable(&found).as_ref(), Some(&found));
        assert_eq!(found.query(), uri.query());
        assert!(found.authority().is_none() && found.scheme().is_none());
        let path = found.path();
        assert!(path.starts_with('/') && !path.starts_with("//"), "{path}");
        let decoded = percent_decode_str(path).decode_utf8().expect("text");
        for name in decoded.split('/') {
            let is_hidden = name.starts_with('.') && name != WELL_KNOWN;
            assert!(!is_hidden && !name.contains(['\\', '\0']), "{name}");
        }
    });
}
