//! Which requests without a file get the one page of an app.

use http::HeaderMap;

use super::accept::quality;

/// Whether the path may be that of a page. Its last part has no dot: a missing script or picture
/// must not become a page.
pub(super) fn may_be_page(path: &[u8]) -> bool {
    let last = path.rsplit(|&byte| byte == b'/').next();
    last.is_none_or(|name| !name.contains(&b'.'))
}

/// Whether a browser goes to a page. `Accept` names HTML, as that of a navigation does and that of
/// `fetch` does not.
pub(super) fn asks_for_page(headers: &HeaderMap) -> bool {
    quality(headers, "text/html") > 0
}

#[cfg(test)]
mod tests {
    use http::header::ACCEPT;

    use super::*;

    #[test]
    fn a_navigation_asks_for_a_page_and_a_script_does_not() {
        let browser = "text/html,application/xhtml+xml,*/*;q=0.8";
        for (accept, path, asks) in [
            (browser, "", true),
            (browser, "users/7", true),
            (browser, "v1.2/users", true),
            (browser, "assets/app.js", false),
            (browser, "users/7.json", false),
            ("Text/HTML ; q=0.1", "users", true),
            ("text/html;q=0", "users", false),
            ("text/html;q=0.000", "users", false),
            ("*/*", "users", false),
            ("application/json", "users", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, accept.parse().expect("a value"));
            assert_eq!(
                may_be_page(path.as_bytes()) && asks_for_page(&headers),
                asks,
                "{accept} {path}"
            );
        }
        assert!(!asks_for_page(&HeaderMap::new()));
    }
}
