//! The page for browsers: one file without requests to other addresses. It shows the live stream.

/// The page.
pub(super) const PAGE: &str = include_str!("page.html");

/// What the page may do (Content Security Policy): its own style and script, which are named by
/// their hashes, and requests to this address. The icon is empty and in the page.
pub(super) const POLICY: &str = "default-src 'none'; \
    style-src 'sha256-OeaJqloFqeLXz8L3lwCmPPCnhv/1uwcqyPazSfmviYE='; \
    script-src 'sha256-+ZxzrzENRKdxt9qfbpFOgDnBkp3ujggxzzQB0WlS4ss='; \
    connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

#[cfg(all(test, feature = "tls"))]
mod tests {
    use super::*;

    /// The longest page. It goes through slow tunnels.
    const LENGTH_MAX: usize = 30 << 10;

    #[test]
    fn the_policy_allows_the_style_and_the_script_of_the_page_and_no_other() {
        for element in ["style", "script"] {
            let (begin, end) = (format!("<{element}>"), format!("</{element}>"));
            let [_, rest] = PAGE.split(&begin).collect::<Vec<_>>()[..] else {
                panic!("one {element}");
            };
            let (content, _) = rest.split_once(&end).expect("it ends");
            let expected = format!("{element}-src 'sha256-{}';", hash(content));
            assert!(POLICY.contains(&expected), "write {expected}");
        }
        assert!(POLICY.starts_with("default-src 'none';") && !POLICY.contains("unsafe"));
        // The policy does not allow these.
        for inline in [" style=", " onclick=", "<script ", "<style ", "javascript:"] {
            assert!(!PAGE.contains(inline), "{inline}");
        }
    }

    #[test]
    fn the_page_is_short_names_no_other_address_and_makes_no_markup_of_data() {
        assert!(PAGE.len() < LENGTH_MAX, "{} bytes", PAGE.len());
        for word in [
            "http:",
            "https:",
            "\"//",
            "@import",
            "url(",
            "innerHTML",
            "outerHTML",
        ] {
            assert!(!PAGE.contains(word), "{word}");
        }
        for word in [
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "new Function",
        ] {
            assert!(!PAGE.contains(word), "{word}");
        }
    }

    /// SHA-256 in base64.
    fn hash(text: &str) -> String {
        const DIGITS: &[u8; 64] =
            b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let digest = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
        let encoded = digest.as_ref().chunks(3).flat_map(|bytes| {
            let word = bytes
                .iter()
                .fold(0, |word, &byte| word << 8 | u32::from(byte));
            let word = word << (8 * (3 - bytes.len()));
            let digits = (0..=bytes.len()).map(move |at| word >> (18 - 6 * at) & 63);
            let digits = digits.map(|digit| char::from(DIGITS[digit as usize]));
            digits.chain(std::iter::repeat_n('=', 3 - bytes.len()))
        });
        encoded.collect()
    }
}
