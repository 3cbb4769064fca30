//! Decides which request paths can name a file, without a look at the file system.

#[cfg(test)]
mod fuzz;

use std::io;
use std::path::PathBuf;

use http::{HeaderValue, Uri};
use percent_encoding::percent_decode_str;

/// The one hidden name that is served (RFC 8615).
const WELL_KNOWN: &str = ".well-known";

/// The file that is served for a directory.
const INDEX: &str = "index.html";

/// The path of a request, relative to the served directory.
#[derive(Debug)]
pub(super) struct Target {
    uri: Uri,
    /// The decoded path without its first slash.
    path: String,
}

impl Target {
    /// `None` if the response is 404 whatever files there are.
    pub(super) fn of(uri: &Uri) -> Option<Self> {
        let uri = servable(uri)?;
        let path = percent_decode_str(uri.path()).decode_utf8().ok()?;
        let path = path
            .strip_prefix('/')
            .filter(|path| !path.starts_with('/'))?;
        let path = path.to_owned();
        Some(Self { uri, path })
    }

    /// The file to serve; for the path of a directory its index.
    pub(super) fn file(&self) -> PathBuf {
        match self.names_directory() {
            true => format!("{}{INDEX}", self.path).into(),
            false => self.path.clone().into(),
        }
    }

    pub(super) fn names_directory(&self) -> bool {
        self.path.is_empty() || self.path.ends_with('/')
    }

    /// The same path with a slash at its end, which is the path of a directory.
    pub(super) fn with_slash(&self) -> io::Result<HeaderValue> {
        let path = self.uri.path();
        let location = match self.uri.query() {
            Some(query) => format!("{path}/?{query}"),
            None => format!("{path}/"),
        };
        HeaderValue::try_from(location).map_err(|_| io::ErrorKind::NotFound.into())
    }
}

/// The address without scheme and authority, and with one slash at its begin; `None` if the
/// response is 404 whatever files there are.
///
/// The redirect of a directory to its path with a slash is built from it, and `//evil.example/`
/// would lead to another host.
fn servable(uri: &Uri) -> Option<Uri> {
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

/// Refused are hidden files, `.` and `..`; the backslash, which browsers treat as a slash; and NUL,
/// at which the path ends for the kernel.
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
