//! The page that shows what is in a directory: HTML for people, JSON for programs.

use std::borrow::Cow;
use std::cmp::Ordering;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, VARY};
use http::{HeaderMap, HeaderValue};
use jiff::Timestamp;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use serde_json::{Value, json};

use super::accept::quality;
use crate::one_line::is_harmful;

/// A directory with more entries is shown in part.
pub(super) const ENTRIES_MAX: usize = 10_000;

const HTML: HeaderValue = HeaderValue::from_static("text/html; charset=utf-8");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const BY_ACCEPT: HeaderValue = HeaderValue::from_static("accept");
const NO_CACHE: HeaderValue = HeaderValue::from_static("no-cache");

/// A name that slipped through the escapes could still run no script.
const POLICY: HeaderValue =
    HeaderValue::from_static("default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'");

/// What stays as it is in a link.
const IN_LINK: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// One name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Listed {
    pub(super) name: Vec<u8>,
    pub(super) kind: Kind,
    /// In bytes.
    pub(super) length: u64,
    /// In seconds since 1970.
    pub(super) modified: i64,
}

// Directories come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Directory,
    File,
}

/// What is in a directory.
#[derive(Debug, Default)]
pub(super) struct Listing {
    pub(super) entries: Vec<Listed>,
    /// There are more.
    pub(super) is_cut: bool,
}

/// By what the entries are sorted, after their kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Key {
    Name,
    Size,
    Modified,
}

/// From the query of the request: `sort=size&order=desc`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Order {
    key: Key,
    is_reversed: bool,
}

impl Listing {
    /// The page, and the fields that it needs. `path` is decoded and ends with a slash, or is
    /// empty.
    pub(super) fn page(
        mut self,
        path: &[u8],
        query: Option<&str>,
        asked: &HeaderMap,
    ) -> (Bytes, HeaderMap) {
        let mut headers = HeaderMap::new();
        let order = Order::of(query.unwrap_or_default());
        self.entries.sort_by(|one, other| order.compare(one, other));
        headers.insert(VARY, BY_ACCEPT);
        headers.insert(CACHE_CONTROL, NO_CACHE);
        if quality(asked, "application/json") > quality(asked, "text/html") {
            headers.insert(CONTENT_TYPE, JSON);
            return (self.json().into(), headers);
        }
        headers.insert(CONTENT_TYPE, HTML);
        headers.insert(CONTENT_SECURITY_POLICY, POLICY);
        (self.html(path, order).into(), headers)
    }

    fn json(&self) -> String {
        let entries = self.entries.iter().map(|entry| {
            let modified = Timestamp::from_second(entry.modified);
            json!({
                "name": String::from_utf8_lossy(&entry.name),
                "href": link(entry),
                "type": match entry.kind {
                    Kind::Directory => "directory",
                    Kind::File => "file",
                },
                "size": match entry.kind {
                    Kind::Directory => Value::Null,
                    Kind::File => entry.length.into(),
                },
                "modified": modified.ok().map(|time| time.to_string()),
            })
        });
        let entries = Value::from_iter(entries);
        json!({ "entries": entries, "is_cut": self.is_cut }).to_string()
    }

    fn html(&self, path: &[u8], order: Order) -> String {
        let title = shown(&[b"/", path].concat());
        let mut page = String::with_capacity(2048 + 256 * self.entries.len());
        page.push_str(include_str!("listing.html"));
        let mut put = |text: &str| page.push_str(text);
        put(&format!(
            "<title>{title}</title>\n<h1>{}</h1>\n",
            crumbs(path)
        ));
        put(&format!(
            "<table><caption>What is in {title}</caption>\n<thead><tr>"
        ));
        for (key, name) in [
            (Key::Name, "Name"),
            (Key::Size, "Size"),
            (Key::Modified, "Modified (UTC)"),
        ] {
            put(&order.column(key, name));
        }
        put("</tr></thead>\n<tbody>\n");
        if !path.is_empty() {
            put("<tr><td colspan=3><a href=\"../\">../</a></td></tr>\n");
        }
        self.entries.iter().for_each(|entry| put(&row(entry)));
        put("</tbody></table>\n");
        if self.is_cut {
            put(&format!(
                "<p>Only {ENTRIES_MAX} of the names are shown.</p>\n"
            ));
        }
        if self.entries.is_empty() {
            put("<p>The directory is empty.</p>\n");
        }
        put("</main>\n</html>\n");
        page
    }
}

impl Order {
    fn of(query: &str) -> Self {
        let has = |wanted: &str| query.split('&').any(|part| part == wanted);
        Self {
            key: match () {
                () if has("sort=size") => Key::Size,
                () if has("sort=modified") => Key::Modified,
                () => Key::Name,
            },
            is_reversed: has("order=desc"),
        }
    }

    fn compare(self, one: &Listed, other: &Listed) -> Ordering {
        let by_key = match self.key {
            Key::Name => Ordering::Equal,
            Key::Size => one.length.cmp(&other.length),
            Key::Modified => one.modified.cmp(&other.modified),
        };
        let order = by_key.then_with(|| one.name.cmp(&other.name));
        one.kind.cmp(&other.kind).then(match self.is_reversed {
            true => order.reverse(),
            false => order,
        })
    }

    /// The head of a column, which sorts by it; the second time, the other way round. It is no
    /// link: `wget --mirror` would save the page of each order.
    fn column(self, key: Key, name: &str) -> String {
        let by = match key {
            Key::Name => "name",
            Key::Size => "size",
            Key::Modified => "modified",
        };
        let sort = match (self.key == key, self.is_reversed) {
            (false, _) => "",
            (true, false) => " aria-sort=ascending",
            (true, true) => " aria-sort=descending",
        };
        let order = match self.key == key && !self.is_reversed {
            true => "<input type=hidden name=order value=desc>",
            false => "",
        };
        let button = format!("<button name=sort value={by}>{name}</button>");
        format!("<th scope=col{sort}><form>{order}{button}</form></th>")
    }
}

fn row(entry: &Listed) -> String {
    let (slash, size) = match entry.kind {
        Kind::Directory => ("/", String::new()),
        Kind::File => ("", readable(entry.length)),
    };
    let (link, name) = (link(entry), shown(&entry.name));
    let time = match Timestamp::from_second(entry.modified) {
        Ok(time) => {
            let day = time.strftime("%Y-%m-%d %H:%M");
            format!("<time datetime=\"{time}\">{day}</time>")
        }
        Err(_) => String::new(),
    };
    format!(
        "<tr><td><a href=\"{link}\">{name}{slash}</a></td><td>{size}</td><td>{time}</td></tr>\n"
    )
}

/// Each directory of the path, with a link.
fn crumbs(path: &[u8]) -> String {
    let names: Vec<_> = path.split(|&byte| byte == b'/').collect();
    let names = &names[..names.len() - 1];
    let mut crumbs = format!("<a href=\"{}\">/</a>", up(names.len()));
    for (at, name) in names.iter().enumerate() {
        let (name, up) = (shown(name), up(names.len() - 1 - at));
        crumbs.push_str(&format!("<a href=\"{up}\">{name}/</a>"));
    }
    crumbs
}

fn up(levels: usize) -> String {
    match levels {
        0 => "./".to_owned(),
        _ => "../".repeat(levels),
    }
}

/// Relative, so that it works behind a proxy that adds a path. It begins with `./`: a colon in the
/// name is not a scheme then.
fn link(entry: &Listed) -> String {
    let slash = match entry.kind {
        Kind::Directory => "/",
        Kind::File => "",
    };
    format!("./{}{slash}", percent_encode(&entry.name, IN_LINK))
}

/// A name as text of HTML. What would not be seen, or would change the direction of the text, is
/// replaced.
fn shown(name: &[u8]) -> String {
    let text: Cow<'_, str> = String::from_utf8_lossy(name);
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => shown.push_str("&amp;"),
            '<' => shown.push_str("&lt;"),
            '>' => shown.push_str("&gt;"),
            '"' => shown.push_str("&quot;"),
            letter if is_harmful(letter) => shown.push(char::REPLACEMENT_CHARACTER),
            letter => shown.push(letter),
        }
    }
    shown
}

fn readable(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let (mut whole, mut tenths, mut unit) = (bytes, 0, 0);
    while whole >= 1024 && unit + 1 < units.len() {
        tenths = whole % 1024 * 10 / 1024;
        whole /= 1024;
        unit += 1;
    }
    match unit {
        0 => format!("{whole} B"),
        _ => format!("{whole}.{tenths} {}", units[unit]),
    }
}

#[cfg(test)]
mod tests {
    use http::header::ACCEPT;

    use super::*;
    use crate::fuzz;

    fn file(name: &[u8], length: u64, modified: i64) -> Listed {
        Listed {
            name: name.to_vec(),
            kind: Kind::File,
            length,
            modified,
        }
    }

    fn page(entries: Vec<Listed>, query: &str, accept: &'static str) -> (HeaderMap, String) {
        let is_cut = false;
        written(Listing { entries, is_cut }, query, accept)
    }

    fn written(listing: Listing, query: &str, accept: &'static str) -> (HeaderMap, String) {
        let asked = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static(accept))]);
        let (page, headers) = listing.page(b"a/b/", Some(query), &asked);
        let page = String::from_utf8(page.into()).expect("text");
        (headers, page)
    }

    /// The names in the page, in their order.
    fn names(page: &str) -> Vec<&str> {
        let rows = page.split("<td><a href=\"./").skip(1);
        rows.map(|row| row.split('"').next().expect("an end"))
            .collect()
    }

    #[test]
    fn the_query_sorts_and_directories_come_first() {
        let directory = Listed {
            kind: Kind::Directory,
            ..file(b"z", 0, 9)
        };
        let all = || {
            vec![
                file(b"b", 1, 3),
                file(b"c", 3, 1),
                directory.clone(),
                file(b"a", 2, 2),
            ]
        };
        for (query, expected) in [
            ("", ["z/", "a", "b", "c"]),
            ("order=desc", ["z/", "c", "b", "a"]),
            ("sort=size", ["z/", "b", "a", "c"]),
            ("sort=modified&order=desc", ["z/", "b", "a", "c"]),
            ("sort=other", ["z/", "a", "b", "c"]),
        ] {
            let (_, page) = page(all(), query, "text/html");
            assert_eq!(names(&page), expected, "{query}");
        }
    }

    /// A program that saves a site follows the links, and no forms.
    #[test]
    fn no_link_leads_to_another_order() {
        let (_, page) = page(vec![file(b"a", 1, 1)], "sort=size", "text/html");
        assert!(!page.contains("href=\"?"), "{page}");
        let field = "<input type=hidden name=order value=desc>";
        let button = "<button name=sort value=size>";
        assert_eq!(page.matches(button).count(), 1);
        assert!(page.contains(&format!("{field}{button}")));
        assert_eq!(page.matches(field).count(), 1);
    }

    #[test]
    fn a_program_gets_json_if_it_prefers_it() {
        for (accept, is_json) in [
            ("application/json", true),
            ("text/html,application/json", false),
            ("text/html;q=0.5, application/json", true),
            ("*/*", false),
        ] {
            let (headers, page) = page(vec![file(b"a\xff", 7, 0)], "", accept);
            assert_eq!(headers[CONTENT_TYPE] == JSON, is_json, "{accept}");
            if is_json {
                let page: Value = serde_json::from_str(&page).expect("JSON");
                assert_eq!(
                    page,
                    json!({
                        "entries": [{
                            "name": "a\u{fffd}", "href": "./a%FF", "type": "file", "size": 7,
                            "modified": "1970-01-01T00:00:00Z",
                        }],
                        "is_cut": false,
                    })
                );
            }
        }
    }

    #[test]
    fn a_page_that_has_not_all_names_says_so() {
        for (accept, sign) in [
            ("text/html", "Only 10000 of the names are shown."),
            ("application/json", "\"is_cut\":true"),
        ] {
            for is_cut in [false, true] {
                let entries = vec![file(b"a", 1, 1)];
                let (_, page) = written(Listing { entries, is_cut }, "", accept);
                assert_eq!(page.contains(sign), is_cut, "{accept}");
            }
        }
    }

    #[test]
    fn sizes_are_readable() {
        for (bytes, shown) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1_600_000, "1.5 MiB"),
            (u64::MAX, "16777215.9 TiB"),
        ] {
            assert_eq!(readable(bytes), shown);
        }
    }

    #[test]
    fn a_name_stays_a_text_and_a_link() {
        fuzz::check("files-listing", |bytes| {
            let (_, page) = page(vec![file(bytes, 1, 1)], "", "text/html");
            let empty = self::page(vec![file(b"", 1, 1)], "", "text/html").1;
            for mark in ["<", ">", "\""] {
                let count = |page: &str| page.matches(mark).count();
                assert_eq!(count(&page), count(&empty), "{page}");
            }
            assert!(!page.chars().any(|it| is_harmful(it) && it != '\n'));
            let link = names(&page)[0];
            let decoded: Vec<u8> = percent_encoding::percent_decode_str(link).collect();
            assert_eq!(decoded, bytes);
        });
    }
}
