//! The end of a body, and the form of fields: request smuggling needs a server that gets them
//! wrong.

use super::{Case, bad, closed, open};

pub(super) fn cases() -> Vec<Case> {
    let mut cases = lengths();
    cases.extend(bad_lengths());
    cases.extend(codings());
    cases.extend(bad_codings());
    cases.extend(codings_out_of_place());
    cases.extend(both());
    cases.extend(fields());
    cases.extend(bad_fields());
    cases
}

/// A POST with these fields and this body.
fn post(fields: &str, body: &str) -> String {
    format!("POST / HTTP/1.1\r\nHost: h\r\n{fields}\r\n\r\n{body}")
}

const HELLO: &str = "200 POST / h [hello]";
const CHUNKED_HELLO: &str = "5\r\nhello\r\n0\r\n\r\n";

fn lengths() -> Vec<Case> {
    let fine = |name, section, fields: &str, body: &str| {
        let seen = match body {
            "" => "200 POST / h",
            _ => HELLO,
        };
        open(name, section, post(fields, body), &[seen])
    };
    vec![
        fine("a length", "9112 6.2", "Content-Length: 5", "hello"),
        fine("a length of 0", "9112 6.2", "Content-Length: 0", ""),
        fine("no length, no coding", "9112 6.3", "X: y", ""),
        fine("leading zeros", "9110 8.6", "Content-Length: 0005", "hello"),
        fine(
            "white space around it",
            "9110 5.5",
            "Content-Length:\t 5 \t",
            "hello",
        ),
        fine("no white space", "9110 5.5", "content-length:5", "hello"),
        // RFC 9110 allows two choices. hyper takes the number that both fields have.
        fine(
            "twice the same",
            "9110 8.6",
            "Content-Length: 5\r\nContent-Length: 5",
            "hello",
        ),
        open(
            "GET with a body",
            "9110 9.3.1",
            "GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello",
            &["200 GET / h [hello]"],
        ),
        closed(
            "a body in HTTP/1.0",
            "9112 6.3",
            "POST / HTTP/1.0\r\nContent-Length: 5\r\n\r\nhello",
            &["200 POST / - [hello]"],
        ),
    ]
}

fn bad_lengths() -> Vec<Case> {
    let none = |name, value: &str| {
        let fields = format!("Content-Length: {value}");
        bad(name, "9112 6.3", post(&fields, "hello"))
    };
    vec![
        none("unequal twice", "5\r\nContent-Length: 6"),
        none("unequal twice, far apart", "5\r\nX: y\r\ncontent-length: 0"),
        none("a list of equals", "5, 5"),
        none("a list of unequals", "5, 6"),
        none("a plus", "+5"),
        none("a minus", "-5"),
        none("hexadecimal", "0x5"),
        none("a fraction", "5.0"),
        none("a space inside", "5 5"),
        none("nothing", ""),
        none("letters", "five"),
        none("something behind it", "5;"),
        none("a comma behind it", "5,"),
        none("quotes", "\"5\""),
        none("an underscore", "1_0"),
        none("2 to the power of 64", "18446744073709551616"),
        none("30 digits", "999999999999999999999999999999"),
        bad(
            "another number's digits",
            "9112 6.3",
            post("Content-Length: \u{0665}", "hello"),
        ),
        // hyper can read this number but not count to it, and chooses 431.
        closed(
            "2 to the power of 64, less 1",
            "9112 6.3",
            post("Content-Length: 18446744073709551615", ""),
            &["431"],
        ),
    ]
}

fn codings() -> Vec<Case> {
    let fine = |name, field: &str| {
        let request = post(&format!("Transfer-Encoding:{field}"), CHUNKED_HELLO);
        open(name, "9112 6.1", request, &[HELLO])
    };
    let unknown = |name, fields: &str| {
        let request = post(&format!("Transfer-Encoding: {fields}"), CHUNKED_HELLO);
        closed(name, "9112 6.1", request, &["501"])
    };
    vec![
        fine("chunked", " chunked"),
        fine("chunked in capitals", " CHUNKED"),
        fine("chunked in white space", " \t chunked \t"),
        unknown("a coding before chunked", "gzip, chunked"),
        unknown(
            "a coding before chunked, in a field",
            "gzip\r\nTransfer-Encoding: chunked",
        ),
        unknown("identity before chunked", "identity, chunked"),
        unknown("a coding with a parameter", "gzip;q=1, chunked"),
        unknown("a coding of a similar name", "xchunked, chunked"),
    ]
}

fn bad_codings() -> Vec<Case> {
    let unclear = |name, section, fields: &str| {
        let request = post(&format!("Transfer-Encoding: {fields}"), CHUNKED_HELLO);
        bad(name, section, request)
    };
    vec![
        unclear("chunked twice", "9112 7.1", "chunked, chunked"),
        unclear(
            "chunked in two fields",
            "9112 7.1",
            "chunked\r\nTransfer-Encoding: chunked",
        ),
        unclear(
            "chunked around another",
            "9112 7.1",
            "chunked, gzip, chunked",
        ),
        unclear("gzip alone", "9112 6.3", "gzip"),
        unclear("identity alone", "9112 6.3", "identity"),
        unclear("chunked before another", "9112 6.3", "chunked, gzip"),
        unclear(
            "chunked, then a field with another",
            "9112 6.3",
            "chunked\r\nTransfer-Encoding: x",
        ),
        unclear(
            "chunked, then identity",
            "9112 6.3",
            "chunked\r\nTransfer-Encoding: identity",
        ),
        unclear("chunked with a parameter", "9112 7.1", "chunked;a=b"),
        unclear("a longer word", "9112 6.3", "chunkedx"),
        unclear("a shorter word", "9112 6.3", "chunke"),
        unclear("chunked in quotes", "9112 6.3", "\"chunked\""),
        unclear(
            "chunked in quotes, then without",
            "9112 6.1",
            "\"chunked\", chunked",
        ),
        unclear("chunked and a comma", "9112 6.3", "chunked,"),
        unclear("a comma and chunked", "9112 6.1", ", chunked"),
        unclear("an empty coding", "9112 6.3", ""),
        unclear(
            "an empty field, then chunked",
            "9112 6.1",
            "\r\nTransfer-Encoding: chunked",
        ),
        unclear("two words", "9112 6.1", "x chunked"),
        unclear("a vertical tab", "9110 5.5", "\x0bchunked"),
        unclear("a NUL behind chunked", "9110 5.5", "chunked\0"),
    ]
}

fn codings_out_of_place() -> Vec<Case> {
    let old = |fields: &str| format!("POST / HTTP/1.0\r\nHost: h\r\n{fields}\r\n\r\n");
    vec![
        bad(
            "chunked in HTTP/1.0",
            "9112 6.1",
            old("Transfer-Encoding: chunked"),
        ),
        bad(
            "chunked and a length in HTTP/1.0",
            "9112 6.1",
            old("Content-Length: 5\r\nTransfer-Encoding: chunked"),
        ),
        bad(
            "CONNECT with a length",
            "9110 9.3.6",
            "CONNECT h:80 HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello",
        ),
        bad(
            "CONNECT with a coding",
            "9110 9.3.6",
            "CONNECT h:80 HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n",
        ),
        closed(
            "CONNECT with a length of 0",
            "9931 8",
            "CONNECT h:80 HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n",
            &["405 CONNECT h:80 h:80"],
        ),
    ]
}

/// hyper uses the coding and removes the length. RFC 9112 6.3 allows this if the connection ends:
/// then no next request follows that two servers could see differently.
fn both() -> Vec<Case> {
    let ends = |name, fields: &str| closed(name, "9112 6.3", post(fields, CHUNKED_HELLO), &[HELLO]);
    vec![
        ends(
            "a length, then chunked",
            "Content-Length: 4\r\nTransfer-Encoding: chunked",
        ),
        ends(
            "chunked, then a length",
            "Transfer-Encoding: chunked\r\nContent-Length: 4",
        ),
        ends(
            "chunked between lengths",
            "Content-Length: 4\r\nTransfer-Encoding: chunked\r\nContent-Length: 5",
        ),
        ends(
            "chunked, then no length",
            "Transfer-Encoding: chunked\r\nContent-Length: x",
        ),
        bad(
            "no length, then chunked",
            "9112 6.3",
            post(
                "Content-Length: x\r\nTransfer-Encoding: chunked",
                CHUNKED_HELLO,
            ),
        ),
        closed(
            "a length of 0, chunked, and a request",
            "9112 11.2",
            post(
                "Content-Length: 0\r\nTransfer-Encoding: chunked",
                "5\r\nhello\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: h\r\n\r\n",
            ),
            &[HELLO],
        ),
    ]
}

fn fields() -> Vec<Case> {
    let fine = |name, section, fields: &str, body: &str| {
        let seen = if body.is_empty() {
            "200 POST / h"
        } else {
            HELLO
        };
        open(name, section, post(fields, body), &[seen])
    };
    vec![
        fine(
            "a value of any characters",
            "9110 5.5",
            "X: \t!\"#[]{}\u{e4}~",
            "",
        ),
        fine("an empty value", "9110 5.5", "X:", ""),
        fine(
            "a name of any characters",
            "9110 5.1",
            "!#$%&'*+-.^_`|~: y",
            "",
        ),
        // To this server it is another field. A CGI program may see the same name for both.
        fine(
            "an underscore for a hyphen",
            "9112 6.1",
            "Transfer_Encoding: chunked",
            "",
        ),
        fine("a colon in the value", "9110 5.5", "X: a: b", ""),
        open(
            "line feeds alone end its lines",
            "9112 2.2",
            "POST / HTTP/1.1\nHost: h\nContent-Length: 5\n\nhello",
            &[HELLO],
        ),
        open(
            "a line feed alone ends its last line",
            "9112 2.2",
            "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\nhello",
            &[HELLO],
        ),
        // A server that reads this as one field's value must not forward it (RFC 9110 5.5).
        fine(
            "a line feed alone between fields",
            "9112 2.2",
            "X: y\nContent-Length: 5",
            "hello",
        ),
    ]
}

fn bad_fields() -> Vec<Case> {
    let none = |name, section, fields: &str| bad(name, section, post(fields, CHUNKED_HELLO));
    vec![
        none(
            "a space before the colon",
            "9112 5.1",
            "Transfer-Encoding : chunked",
        ),
        none("a tab before the colon", "9112 5.1", "Content-Length\t: 5"),
        none(
            "a space before the name",
            "9112 5.2",
            " Transfer-Encoding: chunked",
        ),
        none("a folded line", "9112 5.2", "X: y\r\n Content-Length: 5"),
        none("a line folded by a tab", "9112 5.2", "X: y\r\n\tz"),
        none(
            "a value on the next line",
            "9112 5.2",
            "Transfer-Encoding:\r\n chunked",
        ),
        none(
            "a bare CR in a value",
            "9112 2.2",
            "X: y\rTransfer-Encoding: chunked",
        ),
        none(
            "a bare CR before a value",
            "9112 2.2",
            "Transfer-Encoding: \rchunked",
        ),
        none(
            "a bare CR in a name",
            "9112 2.2",
            "Transfer\r-Encoding: chunked",
        ),
        none("two CRs", "9112 2.2", "X: y\r"),
        none("a NUL in a value", "9110 5.5", "X: a\0b"),
        none("a NUL in a name", "9110 5.1", "X\0: b"),
        none("a control character in a value", "9110 5.5", "X: a\x01b"),
        none("a DEL in a value", "9110 5.5", "X: a\x7fb"),
        none("no name", "9110 5.1", ": y"),
        none("no colon", "9112 5", "Transfer-Encoding chunked"),
        none(
            "a space in a name",
            "9110 5.1",
            "Transfer Encoding: chunked",
        ),
        none("a parenthesis in a name", "9110 5.1", "X(: y"),
        none("a name beyond ASCII", "9110 5.1", "X\u{e4}: y"),
        none("quotes around a name", "9110 5.1", "\"X\": y"),
    ]
}
