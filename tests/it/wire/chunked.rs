//! The chunked coding.

use super::server::MAX_HEAD;
use super::{Case, bad, closed, open};

pub(super) fn cases() -> Vec<Case> {
    let mut cases = bodies();
    cases.extend(trailers());
    cases.extend(bad_sizes());
    cases.extend(bad_line_ends());
    cases.extend(bad_trailers());
    cases
}

fn post(body: &str) -> String {
    format!("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n{body}")
}

fn bodies() -> Vec<Case> {
    let fine = |name, section, body: &str, seen: &str| {
        let said = format!("200 POST / h{seen}");
        open(name, section, post(body), &[&said])
    };
    let extended = |name, line: &str| {
        let body = format!("{line}\r\nhello\r\n0\r\n\r\n");
        fine(name, "9112 7.1.1", &body, " [hello]")
    };
    vec![
        fine(
            "one chunk",
            "9112 7.1",
            "5\r\nhello\r\n0\r\n\r\n",
            " [hello]",
        ),
        fine(
            "three chunks",
            "9112 7.1",
            "1\r\nh\r\n2\r\nel\r\n2\r\nlo\r\n0\r\n\r\n",
            " [hello]",
        ),
        fine("no chunk", "9112 7.1", "0\r\n\r\n", ""),
        fine(
            "hexadecimal",
            "9112 7.1",
            "a\r\n0123456789\r\n0\r\n\r\n",
            " [0123456789]",
        ),
        fine(
            "hexadecimal in capitals",
            "9112 7.1",
            "A\r\n0123456789\r\n0\r\n\r\n",
            " [0123456789]",
        ),
        fine(
            "leading zeros",
            "9112 7.1",
            "0005\r\nhello\r\n000\r\n\r\n",
            " [hello]",
        ),
        fine(
            "a line end as content",
            "9112 7.1",
            "2\r\n\r\n\r\n0\r\n\r\n",
            " [\r\n]",
        ),
        fine(
            "a last chunk as content",
            "9112 7.1",
            "5\r\n0\r\n\r\n\r\n0\r\n\r\n",
            " [0\r\n\r\n]",
        ),
        fine(
            "an extension at the end",
            "9112 7.1.1",
            "5\r\nhello\r\n0;a=b\r\n\r\n",
            " [hello]",
        ),
        extended("an extension", "5;a=b"),
        extended("an extension without a value", "5;a"),
        extended("an extension in quotes", "5;a=\"b;c\""),
        extended("extensions", "5;a=b;c=d"),
        extended("white space around an extension", "5 ;\ta = b"),
        // Not in the grammar, except before an extension. Each server agrees where the digits end.
        extended("white space behind a size", "5 "),
    ]
}

fn trailers() -> Vec<Case> {
    let fine = |name, section, trailers: &str, seen: &str| {
        let said = format!("200 POST / h [hello]{seen}");
        let body = format!("5\r\nhello\r\n0\r\n{trailers}\r\n");
        open(name, section, post(&body), &[&said])
    };
    vec![
        fine("a trailer", "9112 7.1.2", "a: b\r\n", " +a=b"),
        fine("trailers", "9112 7.1.2", "a: b\r\nc:d\r\n", " +a=b +c=d"),
        // The handler gets trailers apart from the fields, and no server frames or routes by them.
        fine(
            "a length as a trailer",
            "9110 6.5.1",
            "Content-Length: 9\r\n",
            " +content-length=9",
        ),
        fine(
            "a host as a trailer",
            "9110 6.5.1",
            "Host: x\r\n",
            " +host=x",
        ),
        fine(
            "a coding as a trailer",
            "9110 6.5.1",
            "Transfer-Encoding: chunked\r\n",
            " +transfer-encoding=chunked",
        ),
        // hyper ends the trailers at two CRLFs in a row, and not before. The handler does not get
        // the bytes before them, and they are not a request.
        fine(
            "an empty line by a bare LF",
            "9112 2.2",
            "\nGET /no HTTP/1.1\r\nHost: h\r\n",
            "",
        ),
    ]
}

fn bad_sizes() -> Vec<Case> {
    let size = |name, size: &str| {
        let body = format!("{size}\r\nhello\r\n0\r\n\r\n");
        bad(name, "9112 7.1", post(&body))
    };
    vec![
        size("a prefix", "0x5"),
        size("a minus", "-5"),
        size("a plus", "+5"),
        size("a space before a size", " 5"),
        size("a tab before a size", "\t5"),
        size("a digit that is none", "g"),
        size("a size that is empty", ""),
        size("an extension of nothing", ";a=b"),
        size("an underscore", "0_5"),
        size("a fraction", "5.0"),
        size("two sizes", "5 5"),
        size("a comma", "5,5"),
        size("a size of 68 bits", "10000000000000005"),
        size("a size of 72 bits", "fffffffffffffffff0"),
        size("a NUL behind a size", "5\0"),
        size("a CR in a size", "\r5"),
        size("a bare CR behind a size", "5\r;a"),
    ]
}

fn bad_line_ends() -> Vec<Case> {
    let none = |name, section, body: &str| bad(name, section, post(body));
    vec![
        none(
            "a bare LF behind a size",
            "9112 7.1",
            "5\nhello\r\n0\r\n\r\n",
        ),
        none(
            "a bare LF behind an extension",
            "9112 7.1.1",
            "5;a\nhello\r\n0\r\n\r\n",
        ),
        none(
            "a bare CR in an extension",
            "9112 7.1.1",
            "5;a\rb\r\nhello\r\n0\r\n\r\n",
        ),
        none(
            "a bare LF behind a chunk",
            "9112 7.1",
            "5\r\nhello\n0\r\n\r\n",
        ),
        none(
            "a bare CR behind a chunk",
            "9112 7.1",
            "5\r\nhello\rx0\r\n\r\n",
        ),
        none("nothing behind a chunk", "9112 7.1", "5\r\nhello0\r\n\r\n"),
        none(
            "a chunk longer than it says",
            "9112 7.1",
            "4\r\nhello\r\n0\r\n\r\n",
        ),
        none(
            "a chunk shorter than it says",
            "9112 7.1",
            "6\r\nhello\r\n0\r\n\r\n",
        ),
        none(
            "a bare LF behind the last size",
            "9112 7.1",
            "5\r\nhello\r\n0\n\r\n",
        ),
        none(
            "no chunk but a request",
            "9112 7.1",
            "GET / HTTP/1.1\r\nHost: h\r\n\r\n",
        ),
        none(
            "extensions without end",
            "9112 7.1.1",
            &format!("5;{}\r\nhello\r\n0\r\n\r\n", "a".repeat(16 * 1024)),
        ),
    ]
}

fn bad_trailers() -> Vec<Case> {
    let none = |name, section, trailers: &str| {
        let body = format!("5\r\nhello\r\n0\r\n{trailers}\r\n");
        closed(name, section, post(&body), &["400"])
    };
    vec![
        none("a trailer without a colon", "9112 5", "a b\r\n"),
        none(
            "a trailer with a space before the colon",
            "9112 5.1",
            "a : b\r\n",
        ),
        none("a folded trailer", "9112 5.2", "a: b\r\n c\r\n"),
        none("a bare CR in a trailer", "9112 2.2", "a: b\rc: d\r\n"),
        none("a bare LF between trailers", "9112 2.2", "a: b\nc: d\r\n"),
        none("a NUL in a trailer", "9110 5.5", "a: \0\r\n"),
        none(
            "more than 100 trailers",
            "9112 7.1.2",
            &"a: b\r\n".repeat(101),
        ),
        none(
            "a trailer too long",
            "9112 7.1.2",
            &format!("a: {}\r\n", "b".repeat(2 * MAX_HEAD)),
        ),
    ]
}
