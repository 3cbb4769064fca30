//! Which requests without a file get the one page of an app.

use http::HeaderMap;
use http::header::ACCEPT;

/// Whether a browser goes to a page. The last part of the path has no dot: a missing script or
/// picture must not become a page. `Accept` names HTML, as that of a navigation does and that of
/// `fetch` does not.
pub(super) fn asks_for_page(headers: &HeaderMap, path: &[u8]) -> bool {
    let last = path.rsplit(|&byte| byte == b'/').next();
    if last.is_some_and(|name| name.contains(&b'.')) {
        return false;
    }
    let lines = headers.get_all(ACCEPT).into_iter();
    let mut types = lines.flat_map(|line| line.as_bytes().split(|&byte| byte == b','));
    types.any(|element| {
        let mut parts = element.split(|&byte| byte == b';');
        let name = parts.next().unwrap_or_default().trim_ascii();
        name.eq_ignore_ascii_case(b"text/html") && !parts.any(is_zero_weight)
    })
}

/// Whether the parameter is a weight of zero (RFC 9110 12.4.2).
fn is_zero_weight(parameter: &[u8]) -> bool {
    let Some((b"q" | b"Q", weight)) = parameter.trim_ascii().split_at_checked(1) else {
        return false;
    };
    let digits = weight.strip_prefix(b"=").unwrap_or(b"1");
    digits.iter().all(|byte| matches!(byte, b'0' | b'.'))
}

#[cfg(test)]
mod tests {
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
                asks_for_page(&headers, path.as_bytes()),
                asks,
                "{accept} {path}"
            );
        }
        assert!(!asks_for_page(&HeaderMap::new(), b"users"));
    }
}
