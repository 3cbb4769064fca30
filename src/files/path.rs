//! Decides which request paths can name a file, without a look at the file system.

use std::borrow::Cow;

use http::{HeaderValue, Uri};
use percent_encoding::percent_decode_str;

/// The one hidden name that is served (RFC 8615).
const WELL_KNOWN: &[u8] = b".well-known";

/// The path of a request.
#[derive(Debug)]
pub(super) struct Target<'a> {
    uri: &'a Uri,
    /// Decoded, without its first slash. It may be any bytes.
    path: Cow<'a, [u8]>,
}

impl<'a> Target<'a> {
    /// `None` if the response is 404 whatever files there are.
    pub(super) fn of(uri: &'a Uri) -> Option<Self> {
        let raw = single_slash(uri.path());
        // A browser takes a backslash for a slash in `Location`.
        let path = raw.strip_prefix('/').filter(|_| !raw.contains('\\'))?;
        let path = match without_dots(path) {
            Cow::Borrowed(path) => percent_decode_str(path).into(),
            Cow::Owned(path) => Cow::Owned(percent_decode_str(&path).collect()),
        };
        let is_servable = !path.starts_with(b"/") && !path.split(|&it| it == b'/').any(is_refused);
        is_servable.then_some(Self { uri, path })
    }

    /// The path relative to the served directory. Empty for the directory itself.
    pub(super) fn path(&self) -> &[u8] {
        &self.path
    }

    pub(super) fn names_directory(&self) -> bool {
        self.path.is_empty() || self.path.ends_with(b"/")
    }

    /// The path without this end, if the address ends so too: not by `%2f` or the like.
    pub(super) fn without(&self, end: &str) -> Option<&[u8]> {
        let path = self.path.strip_suffix(end.as_bytes())?;
        self.uri.path().ends_with(end).then_some(path)
    }

    /// The address with another end of the path: `cut` bytes less, and `end` instead. The query
    /// stays. It is relative to the address of the request, because a router, or a proxy before the
    /// server, may have cut the path at its begin.
    pub(super) fn with_end(&self, cut: usize, end: &str) -> Option<HeaderValue> {
        let path = self.uri.path();
        let (_, name) = path.get(..path.len().checked_sub(cut)?)?.rsplit_once('/')?;
        if name == "." {
            return None;
        }
        let directory = if path.ends_with('/') { ".." } else { "." };
        HeaderValue::try_from(match self.uri.query() {
            Some(query) => format!("{directory}/{name}{end}?{query}"),
            None => format!("{directory}/{name}{end}"),
        })
        .ok()
    }
}

/// The path with one slash at its begin, as some clients build it from a folder and a name.
fn single_slash(path: &str) -> &str {
    let slashes = path.len() - path.trim_start_matches('/').len();
    &path[slashes.saturating_sub(1)..]
}

/// The path without its segments `.` (RFC 3986 5.2.4). Most clients remove them; apt sends them,
/// for the source `deb http://host/apt ./`.
fn without_dots(path: &str) -> Cow<'_, str> {
    let names = || path.split('/').filter(|&name| name != ".");
    if names().count() == path.split('/').count() {
        return path.into();
    }
    let is_directory = path == "." || path.ends_with("/.");
    let end = is_directory.then_some("");
    names().chain(end).collect::<Vec<_>>().join("/").into()
}

/// Refused are hidden files, `.` and `..`; and NUL, at which the path ends for the kernel.
pub(super) fn is_refused(component: &[u8]) -> bool {
    (component.starts_with(b".") && component != WELL_KNOWN) || component.contains(&0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz;

    fn path(uri: &str) -> Option<Vec<u8>> {
        Some(Target::of(&uri.parse().unwrap())?.path().to_owned())
    }

    #[test]
    fn paths_are_decoded_once() {
        for (uri, decoded) in [
            ("/", &b""[..]),
            ("/a/b.css?v=1", b"a/b.css"),
            ("/a%20b", b"a b"),
            ("/%2541", b"%41"),
            ("/%ff", b"\xff"),
            ("/a%5cb", b"a\\b"),
            ("/a..b", b"a..b"),
            ("/a./b", b"a./b"),
            ("/.well-known/x", b".well-known/x"),
            ("/a//b", b"a//b"),
            ("/apt/./Packages", b"apt/Packages"),
            ("/./a/././b", b"a/b"),
            ("/a/.", b"a/"),
            ("/a/./", b"a/"),
            ("/.", b""),
            ("/./", b""),
            ("http://host.example", b""),
        ] {
            assert_eq!(path(uri).as_deref(), Some(decoded), "{uri}");
        }
    }

    #[test]
    fn the_redirect_can_not_be_led_to_another_host() {
        for (asked, location) in [
            ("//evil.example/a", "./a/"),
            ("//evil.example", "./evil.example/"),
            ("///a?q=//b", "./a/?q=//b"),
            ("http://evil.example/a?q", "./a/?q"),
            ("/https:evil.example", "./https:evil.example/"),
            ("/%5cevil.example", "./%5cevil.example/"),
        ] {
            let uri = asked.parse().unwrap();
            let found = Target::of(&uri).and_then(|target| target.with_end(0, "/"));
            assert_eq!(found.unwrap(), location, "{asked}");
        }
    }

    #[test]
    fn the_end_of_the_path_is_replaced() {
        for (asked, cut, location) in [
            ("/docs/about.html?a=b", 5, Some("./about?a=b")),
            ("/docs/index.html", 10, Some("./")),
            ("/docs/about/", 1, Some("../about")),
            ("/docs/./about/", 1, Some("../about")),
            ("/docs/./", 1, None),
            ("/docs/", 50, None),
        ] {
            let uri = asked.parse().unwrap();
            let found = Target::of(&uri).unwrap().with_end(cut, "");
            assert_eq!(found, location.map(HeaderValue::from_static), "{asked}");
        }
    }

    #[test]
    fn hidden_and_hostile_paths_are_refused() {
        let refused = [
            "*",
            "/..",
            "/../a",
            "/a/../b",
            "/./../a",
            "/.//a",
            "/./.env",
            "/a/./%2e%2e/b",
            "/%2e%2e%2fa",
            "/%2E%2E/a",
            "/..%2fa",
            "/%2fa",
            "/a/%2e",
            "/.env",
            "/%2eenv",
            "/a/.git/config",
            "/a%2f.git",
            "/.well-known/.hidden",
            "/.well-known-not",
            "/\\evil.example",
            "/a%00.txt",
        ];
        for uri in refused {
            assert_eq!(path(uri), None, "{uri}");
        }
    }

    #[test]
    fn paths() {
        fuzz::check("files-paths", |bytes| {
            let Ok(uri) = Uri::try_from(bytes) else {
                return;
            };
            let Some(target) = Target::of(&uri) else {
                return;
            };
            for name in target.path().split(|&byte| byte == b'/') {
                let is_hidden = name.starts_with(b".") && name != WELL_KNOWN;
                assert!(!is_hidden && !name.contains(&0), "{name:?}");
            }
            if !target.names_directory()
                && let Some(location) = target.with_end(0, "/")
            {
                let name = location.as_bytes().strip_prefix(b"./").expect("relative");
                assert!(!name.starts_with(b"/") && !name.starts_with(b"\\"));
            }
        });
    }
}
