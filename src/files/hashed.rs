//! Which names have a hash of the file's bytes in them, as build tools write it.
//!
//! A file with such a name never changes, so browsers may keep it without a question. A name that
//! is taken for one by mistake would be shown stale for a year, so a name in doubt has no hash.

/// Directories whose files all have names of their own for each build.
const OF_BUILDS: [&[u8]; 2] = [b"_next/static/", b"_app/immutable/"];

/// The directory of a build whose files nearly all have a hash. In it a name in doubt is judged by
/// [`is_jumble`] too.
const ASSETS: &[u8] = b"assets";

/// What build tools write. A document or a page keeps its name, whatever that looks like.
const ENDINGS: [&[u8]; 22] = [
    b"js", b"mjs", b"css", b"wasm", b"woff", b"woff2", b"ttf", b"otf", b"eot", b"svg", b"png",
    b"jpg", b"jpeg", b"gif", b"webp", b"avif", b"ico", b"mp4", b"webm", b"mp3", b"ogg", b"map",
];

/// What stands between the hash and the ending.
const AFTER_HASH: [&[u8]; 4] = [b".chunk", b".bundle", b".min", b".module"];

/// The length of a hash in letters of both cases and digits, or in capitals and digits.
const SHORT: usize = 8;

/// The most hexadecimal digits of a hash: those of SHA-512.
const HEX: std::ops::RangeInclusive<usize> = SHORT..=128;

pub(super) fn has_hash(path: &[u8]) -> bool {
    if OF_BUILDS.iter().any(|start| path.starts_with(start)) {
        return true;
    }
    let mut steps = path.rsplit(|&byte| byte == b'/');
    let name = steps.next().unwrap_or_default();
    let is_asset = steps.any(|step| step == ASSETS);
    // Of `app.js.map` and of `app.js`.
    let name = name.strip_suffix(b".map").unwrap_or(name);
    let Some(dot) = name.iter().rposition(|&byte| byte == b'.') else {
        return false;
    };
    let (mut stem, ending) = (&name[..dot], &name[dot + 1..]);
    if !ENDINGS.contains(&ending) {
        return false;
    }
    for word in AFTER_HASH {
        stem = stem.strip_suffix(word).unwrap_or(stem);
    }
    let last = stem
        .rsplit(|byte| matches!(byte, b'.' | b'-' | b'_'))
        .next();
    last.is_some_and(is_hex_hash)
        || short_end(stem).is_some_and(|end| is_short_hash(end) || is_asset && is_jumble(end))
}

/// The last characters of the name, if something ends before them.
fn short_end(stem: &[u8]) -> Option<&[u8]> {
    let (before, end) = stem.split_at_checked(stem.len().checked_sub(SHORT)?)?;
    matches!(before.last(), None | Some(b'.' | b'-')).then_some(end)
}

/// Hexadecimal digits, and neither a word with a number behind it, as in `facade12`, nor a number
/// with a letter or two, as in `20240101a`.
fn is_hex_hash(token: &[u8]) -> bool {
    let is_hex = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let is_letter_after_digit = |pair: &[u8]| pair[0].is_ascii_digit() && pair[1] >= b'a';
    HEX.contains(&token.len())
        && token.len() - length(token, u8::is_ascii_digit) > 2
        && token.iter().all(is_hex)
        && token.windows(2).any(is_letter_after_digit)
}

/// Letters and digits that are no words: `BdH3kZ9x`, and not `MyWidget`, `iPhone15` or `LICENSE2`.
fn is_short_hash(token: &[u8]) -> bool {
    let is_letter = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let has = |wanted: fn(&u8) -> bool| token.iter().any(wanted);
    token.iter().all(is_letter)
        && has(u8::is_ascii_uppercase)
        && has(u8::is_ascii_digit)
        && !token
            .split(|byte| matches!(byte, b'-' | b'_'))
            .all(is_words)
}

/// Words and numbers one after the other. A word has capitals and then small letters, or small
/// letters alone, or two capitals or more.
fn is_words(mut text: &[u8]) -> bool {
    let whole = text.len();
    while !text.is_empty() {
        let digits = length(text, u8::is_ascii_digit);
        let capitals = length(text, u8::is_ascii_uppercase);
        let small = length(&text[capitals..], u8::is_ascii_lowercase);
        let is_word = match (digits, capitals, small) {
            // A number ends the text, or a word of some length follows it.
            (1.., _, _) => {
                let rest = length(&text[digits..], u8::is_ascii_alphabetic);
                rest == 0 || rest > 2
            }
            // As in `iPhone`.
            (_, 0, 1) => text.len() == whole,
            (_, 1, 0) => false,
            _ => true,
        };
        if !is_word {
            return false;
        }
        text = &text[digits.max(capitals + small)..];
    }
    true
}

/// How many bytes at the beginning are of this kind.
fn length(text: &[u8], of: fn(&u8) -> bool) -> usize {
    text.iter().take_while(|byte| of(byte)).count()
}

/// Whether this is no name that people write: `BYiJuNGc` or `MvlwIKZq`, and not `SemiBold`,
/// `HtmlPage` or `IMG_1234`. It has many pieces, or one that nobody can say.
fn is_jumble(token: &[u8]) -> bool {
    let has = |wanted: fn(&u8) -> bool| token.iter().any(wanted);
    let (mut pieces, mut is_mute) = (0, false);
    let mut rest = token;
    while let Some(first) = rest.first() {
        let (piece, after) = rest.split_at(piece_len(rest));
        pieces += usize::from(first.is_ascii_alphabetic());
        is_mute |= cannot_be_said(piece);
        rest = after;
    }
    let many = if has(u8::is_ascii_digit) { 3 } else { 4 };
    let is_mixed = has(u8::is_ascii_uppercase) && has(u8::is_ascii_lowercase);
    is_mixed && (pieces >= many || is_mute)
}

/// The length of the first piece: a word with its capital, capitals before a word, or one character
/// that is no letter.
fn piece_len(text: &[u8]) -> usize {
    let capitals = length(text, u8::is_ascii_uppercase);
    match (capitals, length(&text[capitals..], u8::is_ascii_lowercase)) {
        (0, 0) => 1,
        (0 | 1, small) => capitals + small,
        (_, 0) => capitals,
        (_, _) => capitals - 1,
    }
}

/// Four letters or more without a vowel. Two names of protocols and formats are known.
fn cannot_be_said(piece: &[u8]) -> bool {
    let is_mute = |byte: &u8| byte.is_ascii_alphabetic() && !b"aeiouAEIOU".contains(byte);
    piece.len() >= 4
        && piece.iter().all(is_mute)
        && ![&b"html"[..], b"http"]
            .iter()
            .any(|name| piece.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_build_tools_have_a_hash() {
        for name in [
            "assets/index-BdH3kZ9x.js",
            "assets/index-D4tX_9aQ.css",
            "assets/logo-CzrA-2Bq.svg",
            "assets/react-35ef61ed.svg",
            "assets/vendor.5f3c1a2b.js.map",
            "static/js/main.3f2a9c1b.js",
            "static/js/2.8d1f0c3a.chunk.js",
            "static/css/main.e6c13ad2.chunk.css",
            "main.3f2a9c1b0e4d5f6a7b8c.js",
            "polyfills-FFHMD2TL.js",
            "main-K2D5JXQ3.js",
            "chunk-3ZQ7WDYK.js",
            "index.3f2a9c1b.js",
            "assets/page-BYiJuNGc.js",
            "assets/page-MvlwIKZq.js",
            "assets/page-pbByknAZ.js",
            "app/assets/page-El9MlwEW.js",
            "assets/fonts/page-B_hhJbds.woff2",
            "_next/static/chunks/pages/index-abc.js",
            "_next/static/Tz8cQ/_buildManifest.js",
            "_app/immutable/entry/start.js",
            "_astro/index.Dz8aQkX1.css",
            "_nuxt/BdH3kZ9x.js",
            "_nuxt/entry.CqK7rV3b.css",
            "build/entry.client-Bq7xT2Lw.js",
            "fonts/inter-4a9c0f2e1b.woff2",
            "img/hero.9b1deb4d3b7d4bad9bdd2b0d7b3dcb6d.png",
            "app.9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08.min.js",
        ] {
            assert!(has_hash(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn ordinary_names_have_none() {
        for name in [
            "index.html",
            "index-BdH3kZ9x.html",
            "about",
            "app.js",
            "main.css",
            "background.js",
            "jquery-3.7.1.min.js",
            "bootstrap.bundle.min.js",
            "react.production.min.js",
            "chart-4.4.0.js",
            "lodash.core.js",
            "deadbeef.js",
            "facade12.png",
            "decade80.jpg",
            "photo-20240101.jpg",
            "photo-20240101a.jpg",
            "scan-00000001ab.png",
            "IMG_20240101.jpg",
            "IMG-20240101-WA0001.jpg",
            "DSC00012.jpg",
            "scan-00000001.png",
            "photo-iPhone15.png",
            "README-WINDOWS8.png",
            "my-MyWidget.js",
            "the-Overview.svg",
            "icon-HTMLPage.svg",
            "logo-OpenAPI3.svg",
            "favicon.ico",
            "favicon-32x32.png",
            "apple-touch-icon.png",
            "android-chrome-512x512.png",
            "icon-1024x768.png",
            "report-3f2a9c1b.pdf",
            "3f2a9c1b.txt",
            "data-3f2a9c1b.json",
            "sw.js",
            "service-worker.js",
            "ServiceWorker.js",
            "video-1080p60.mp4",
            "clip.2024-01-01.mp4",
            "inter-v13-latin-regular.woff2",
            "Roboto-Regular.ttf",
            "Roboto-BoldItalic.ttf",
            "font-awesome.min.css",
            "Logo-White2.png",
            "plan-VersionB.png",
            "en-US.js",
            "zh-Hans-CN.js",
            "v1.2.3.js",
            "a.12345678.js",
            "page-BYiJuNGc.js",
            "assets/OpenSans-SemiBold.ttf",
            "assets/icon-AppStore.svg",
            "assets/icon-MyWidget.svg",
            "assets/view-HtmlPage.js",
            "assets/photo-IMG_1234.jpg",
            "assets/photo-iPhone15.png",
            "assets/logo-Win10Pro.png",
            "assets/page-BHGBVIJV.js",
            "manifest.webmanifest",
            "robots.txt",
            "",
            ".js",
        ] {
            assert!(!has_hash(name.as_bytes()), "{name}");
        }
    }
}
