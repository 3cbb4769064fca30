//! Which request paths may name a file at all, decided before any file system is asked.

#[cfg(test)]
mod fuzz;

use http::Uri;
use percent_encoding::percent_decode_str;

/// The one hidden name that is meant to be seen (RFC 8615).
const WELL_KNOWN: &str = ".well-known";

/// The address to look up under the directory, or `None` where the answer is 404 whatever is there.
///
/// Scheme and authority go, and slashes in front become one: the redirect of a directory to its
/// trailing slash is built from this address, and `//evil.example/` would lead to another host.
pub(super) fn servable(uri: &Uri) -> Option<Uri> {
    let path = uri.path();
    let decoded = percent_decode_str(path).decode_utf8().ok()?;
    if !path.starts_with('/') || decoded.split('/').any(is_refused) {
        return None;
    }
    if uri.authority().is_none() && !path.starts_with("//") {
        return Some(uri.clone());
    }
    let path = path.trim_start_matches('/');
    match uri.query() {
        Some(query) => format!("/{path}?{query}").parse().ok(),
        None => format!("/{path}").parse().ok(),
    }
}

/// Hidden files, `.` and `..`; the backslash, which browsers take for a slash; and NUL, which ends
/// a path for the kernel earlier than for us.
fn is_refused(component: &str) -> bool {
    (component.starts_with('.') && component != WELL_KNOWN) || component.contains(['\\', '\0'])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn servable_path(path: &str) -> Option<String> {
        servable(&path.parse().unwrap()).map(|uri| uri.to_string())
    }

    #[test]
    fn ordinary_paths_stay_as_they_are() {
        for path in [
            "/",
            "/a/b.css?v=1",
            "/a%20b",
            "/a..b",
            "/a./b",
            "/.well-known/x",
            "/a//b",
        ] {
            assert_eq!(servable_path(path).as_deref(), Some(path));
        }
    }

    #[test]
    fn the_redirect_can_not_be_led_to_another_host() {
        assert_eq!(
            servable_path("//evil.example/a").as_deref(),
            Some("/evil.example/a")
        );
        assert_eq!(servable_path("///a?q=//b").as_deref(), Some("/a?q=//b"));
        assert_eq!(
            servable_path("http://evil.example/a?q").as_deref(),
            Some("/a?q")
        );
        assert_eq!(
            servable_path("http://evil.example//a").as_deref(),
            Some("/a")
        );
        assert_eq!(servable_path("http://evil.example").as_deref(), Some("/"));
    }

    #[test]
    fn hidden_and_hostile_paths_are_refused() {
        let refused = [
            "*",
            "/..",
            "/../a",
            "/a/../b",
            "/%2e%2e%2fa",
            "/%2E%2E/a",
            "/..%2fa",
            "/a/%2e",
            "/.env",
            "/%2eenv",
            "/a/.git/config",
            "/a%2f.git",
            "/.well-known/.hidden",
            "/.well-known-not",
            "/a%5cb",
            "/%5cevil.example",
            "/..%5c..%5ca",
            "/a%00.txt",
            "/%ff",
        ];
        for path in refused {
            assert_eq!(servable_path(path), None, "{path}");
        }
    }
}
