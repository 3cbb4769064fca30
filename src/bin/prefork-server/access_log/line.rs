//! A record as a line of bounded length. What a client sends cannot end the line or add fields.

use std::{borrow::Cow, fmt, io::Write, time::SystemTime};

use http::{HeaderValue, Version};
use jiff::Timestamp;
use prefork_server::WorkerInfo;

use super::record::{Head, Record};
use crate::cli::LogFormat;
use crate::one_line::is_harmful;

/// What a client sends is escaped and cut to so many bytes. The longest line stays below the size
/// of one write.
const METHOD_BYTES: usize = 32;
const TARGET_BYTES: usize = 2048;
const HEADER_BYTES: usize = 400;

/// Appends the line with its newline.
pub(super) fn append(out: &mut Vec<u8>, format: LogFormat, worker: WorkerInfo, record: &Record) {
    match format {
        LogFormat::Text => append_text(out, worker, record),
        LogFormat::Json => append_json(out, worker, record),
    }
}

/// The combined format of httpd and nginx, followed by what the guide's page on logs says. A
/// missing value is `-`.
fn append_text(out: &mut Vec<u8>, worker: WorkerInfo, record: &Record) {
    let (request, response) = (&record.request, &record.response);
    put_or_dash(out, request.peer);
    put(out, format_args!(" - - [{}] \"", common(request.at)));
    let head = request.head.as_ref();
    match head {
        Some(head) => {
            escape_text(out, head.method.as_str().as_bytes(), METHOD_BYTES);
            out.push(b' ');
            escape_text(out, target(head).as_bytes(), TARGET_BYTES);
            put(out, format_args!(" {:?}\" ", head.version));
        }
        None => out.extend_from_slice(b"-\" "),
    }
    put_or_dash(out, response.status.map(|status| status.as_u16()));
    put(out, format_args!(" {}", response.body));
    let field = |of: fn(&Head) -> &Option<HeaderValue>| Some(of(head?).as_ref()?.as_bytes());
    quote_text(out, field(|head| &head.referer));
    quote_text(out, field(|head| &head.user_agent));
    put(out, format_args!(" {:.6} ", response.took.as_secs_f64()));
    match response.began {
        Some(began) => put(out, format_args!("{:.6}", began.as_secs_f64())),
        None => out.push(b'-'),
    }
    put(out, format_args!(" {}", request.scheme));
    quote_text(out, head.and_then(host));
    let WorkerInfo {
        slot, generation, ..
    } = worker;
    put(out, format_args!(" {slot} {generation} "));
    put_or_dash(out, request.id.as_ref().and_then(|id| id.to_str().ok()));
    out.push(b' ');
    put_or_dash(out, head.and_then(traceparent));
    out.push(b'\n');
}

/// One object; a missing value is `null`.
fn append_json(out: &mut Vec<u8>, worker: WorkerInfo, record: &Record) {
    let (request, response) = (&record.request, &record.response);
    put(
        out,
        format_args!("{{\"time\":\"{:.3}\",\"peer\":", utc(request.at)),
    );
    quote_json(out, request.peer.map(|peer| peer.to_string()), HEADER_BYTES);
    let head = request.head.as_ref();
    for (name, value, room) in [
        (
            "method",
            head.map(|head| Cow::Borrowed(head.method.as_str())),
            METHOD_BYTES,
        ),
        ("target", head.map(target), TARGET_BYTES),
        (
            "version",
            head.map(|head| format!("{:?}", head.version).into()),
            HEADER_BYTES,
        ),
    ] {
        put(out, format_args!(",\"{name}\":"));
        quote_json(out, value.as_deref(), room);
    }
    out.extend_from_slice(b",\"status\":");
    put_or_null(out, response.status.map(|status| status.as_u16()));
    put(out, format_args!(",\"bytes\":{}", response.body));
    let took = response.took.as_secs_f64();
    put(
        out,
        format_args!(",\"seconds\":{took:.6},\"first_byte_seconds\":"),
    );
    put_or_null(
        out,
        response.began.map(|it| format!("{:.6}", it.as_secs_f64())),
    );
    let WorkerInfo {
        slot, generation, ..
    } = worker;
    let scheme = request.scheme;
    put(
        out,
        format_args!(",\"scheme\":\"{scheme}\",\"slot\":{slot},\"generation\":{generation}"),
    );
    let field = |of: fn(&Head) -> &Option<HeaderValue>| Some(of(head?).as_ref()?.as_bytes());
    for (name, value) in [
        ("referer", field(|head| &head.referer)),
        ("user_agent", field(|head| &head.user_agent)),
        ("host", head.and_then(host)),
        ("request_id", request.id.as_ref().map(HeaderValue::as_bytes)),
    ] {
        put(out, format_args!(",\"{name}\":"));
        quote_json(out, value, HEADER_BYTES);
    }
    out.extend_from_slice(b",\"traceparent\":");
    quote_json(out, head.and_then(traceparent), HEADER_BYTES);
    out.extend_from_slice(b"}\n");
}

/// The field, if it has the form that W3C Trace Context gives: two, 32, 16 and two lowercase
/// hexadecimal digits.
fn traceparent(head: &Head) -> Option<&str> {
    let value = head.traceparent.as_ref()?.to_str().ok()?;
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let parts = value
        .split('-')
        .map(|part| part.bytes().all(is_digit).then_some(part.len()));
    let is_valid = parts.eq([2, 32, 16, 2].map(Some));
    is_valid.then_some(value)
}

/// `29/Feb/2000:23:59:59 +0000`, as the common log format of httpd has it.
fn common(time: SystemTime) -> impl fmt::Display {
    utc(time).strftime("%d/%b/%Y:%H:%M:%S +0000")
}

/// It displays itself as `2000-02-29T23:59:59.123Z` (RFC 3339). A clock that was never set may give
/// a time that is out of range; the line then says 1970.
fn utc(time: SystemTime) -> Timestamp {
    Timestamp::try_from(time).unwrap_or_default()
}

/// The target as it stood in the request line. HTTP/2 has no request line: there the target is the
/// path, or what a CONNECT leads to.
fn target(head: &Head) -> Cow<'_, str> {
    let uri = &head.uri;
    match (uri.authority(), uri.path_and_query()) {
        (Some(_), Some(_)) if head.version != Version::HTTP_2 => Cow::Owned(uri.to_string()),
        (_, Some(path)) => Cow::Borrowed(path.as_str()),
        _ => Cow::Owned(uri.to_string()),
    }
}

/// The field `Host`. A request of HTTP/2 has the host in its target instead.
fn host(head: &Head) -> Option<&[u8]> {
    match (&head.host, head.uri.authority()) {
        (Some(field), _) => Some(field.as_bytes()),
        (None, authority) => authority.map(|it| it.as_str().as_bytes()),
    }
}

/// Escapes as nginx does: `\"`, `\\`, and `\xHH` for every byte that is not printable ASCII.
fn escape_text(out: &mut Vec<u8>, value: &[u8], room: usize) {
    let end = out.len() + room;
    for &byte in value {
        let start = out.len();
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            b' '..=b'~' => out.push(byte),
            _ => put(out, format_args!("\\x{byte:02X}")),
        }
        if out.len() > end {
            return out.truncate(start);
        }
    }
}

/// Escapes what RFC 8259, section 7 asks for. People read logs in a terminal, so it also escapes
/// what would change that.
fn escape_json(out: &mut Vec<u8>, value: &[u8], room: usize) {
    let end = out.len() + room;
    for character in String::from_utf8_lossy(value).chars() {
        let start = out.len();
        match character {
            '"' | '\\' => out.extend_from_slice(&[b'\\', character as u8]),
            character if is_harmful(character) => {
                put(out, format_args!("\\u{:04x}", u32::from(character)));
            }
            character => put(out, format_args!("{character}")),
        }
        if out.len() > end {
            return out.truncate(start);
        }
    }
}

fn quote_text(out: &mut Vec<u8>, value: Option<&[u8]>) {
    out.extend_from_slice(b" \"");
    escape_text(out, value.unwrap_or(b"-"), HEADER_BYTES);
    out.push(b'"');
}

fn quote_json(out: &mut Vec<u8>, value: Option<impl AsRef<[u8]>>, room: usize) {
    let Some(value) = value else {
        return out.extend_from_slice(b"null");
    };
    out.push(b'"');
    escape_json(out, value.as_ref(), room);
    out.push(b'"');
}

fn put_or_dash(out: &mut Vec<u8>, value: Option<impl fmt::Display>) {
    match value {
        Some(value) => put(out, format_args!("{value}")),
        None => out.push(b'-'),
    }
}

fn put_or_null(out: &mut Vec<u8>, value: Option<impl fmt::Display>) {
    match value {
        Some(value) => put(out, format_args!("{value}")),
        None => out.extend_from_slice(b"null"),
    }
}

fn put(out: &mut Vec<u8>, text: fmt::Arguments<'_>) {
    out.write_fmt(text).expect("a vector takes every write");
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_time_is_written_in_both_forms() {
        for (nanos, in_json, in_text) in [
            (0, "1970-01-01T00:00:00.000Z", "01/Jan/1970:00:00:00 +0000"),
            (
                951_868_799_123_999_999,
                "2000-02-29T23:59:59.123Z",
                "29/Feb/2000:23:59:59 +0000",
            ),
            (
                4_107_542_400_007_000_000,
                "2100-03-01T00:00:00.007Z",
                "01/Mar/2100:00:00:00 +0000",
            ),
        ] {
            let time = SystemTime::UNIX_EPOCH + Duration::from_nanos(nanos);
            assert_eq!(format!("{:.3}", utc(time)), in_json);
            assert_eq!(common(time).to_string(), in_text);
        }
    }
}
