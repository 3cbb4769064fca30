//! A record as a line of bounded length. What a client sends cannot end the line or add fields.

use std::{borrow::Cow, fmt, io::Write, time::SystemTime};

use http::{HeaderValue, Uri};
use jiff::Timestamp;

use super::record::Record;
use crate::cli::LogFormat;

/// What a client sends is escaped and cut to so many bytes. The longest line stays below the size
/// of one write.
const METHOD_BYTES: usize = 32;
const TARGET_BYTES: usize = 2048;
const HEADER_BYTES: usize = 512;

/// Appends the line with its newline.
pub(super) fn append(out: &mut Vec<u8>, format: LogFormat, record: &Record) {
    match format {
        LogFormat::Text => append_text(out, record),
        LogFormat::Json => append_json(out, record),
    }
}

/// The combined format of httpd and nginx, followed by the seconds from the head of the request to
/// the last byte of the response. A missing value is `-`.
fn append_text(out: &mut Vec<u8>, record: &Record) {
    let (request, response) = (&record.request, &record.response);
    match request.peer {
        Some(peer) => put(out, format_args!("{peer}")),
        None => out.push(b'-'),
    }
    put(out, format_args!(" - - [{}] \"", common(request.at)));
    let head = request.head.as_ref();
    match head {
        Some(head) => {
            escape_text(out, head.method.as_str().as_bytes(), METHOD_BYTES);
            out.push(b' ');
            escape_text(out, target(&head.uri).as_bytes(), TARGET_BYTES);
            put(out, format_args!(" {:?}\" ", head.version));
        }
        None => out.extend_from_slice(b"-\" "),
    }
    match response.status {
        Some(status) => put(out, format_args!("{}", status.as_u16())),
        None => out.push(b'-'),
    }
    put(out, format_args!(" {}", response.body));
    for header in [
        head.and_then(|head| head.referer.as_ref()),
        head.and_then(|head| head.user_agent.as_ref()),
    ] {
        out.extend_from_slice(b" \"");
        let value = header.map_or(&b"-"[..], HeaderValue::as_bytes);
        escape_text(out, value, HEADER_BYTES);
        out.push(b'"');
    }
    put(out, format_args!(" {:.6}\n", response.took.as_secs_f64()));
}

/// One object; a missing value is `null`.
fn append_json(out: &mut Vec<u8>, record: &Record) {
    let (request, response) = (&record.request, &record.response);
    put(
        out,
        format_args!("{{\"time\":\"{:.3}\",\"peer\":", utc(request.at)),
    );
    match request.peer {
        Some(peer) => put(out, format_args!("\"{peer}\"")),
        None => out.extend_from_slice(b"null"),
    }
    let head = request.head.as_ref();
    match head {
        Some(head) => {
            out.extend_from_slice(b",\"method\":\"");
            escape_json(out, head.method.as_str().as_bytes(), METHOD_BYTES);
            out.extend_from_slice(b"\",\"target\":\"");
            escape_json(out, target(&head.uri).as_bytes(), TARGET_BYTES);
            put(out, format_args!("\",\"version\":\"{:?}\"", head.version));
        }
        None => out.extend_from_slice(b",\"method\":null,\"target\":null,\"version\":null"),
    }
    out.extend_from_slice(b",\"status\":");
    match response.status {
        Some(status) => put(out, format_args!("{}", status.as_u16())),
        None => out.extend_from_slice(b"null"),
    }
    put(out, format_args!(",\"bytes\":{}", response.body));
    put(
        out,
        format_args!(",\"seconds\":{:.6}", response.took.as_secs_f64()),
    );
    for (name, header) in [
        ("referer", head.and_then(|head| head.referer.as_ref())),
        ("user_agent", head.and_then(|head| head.user_agent.as_ref())),
    ] {
        put(out, format_args!(",\"{name}\":"));
        match header {
            Some(value) => {
                out.push(b'"');
                escape_json(out, value.as_bytes(), HEADER_BYTES);
                out.push(b'"');
            }
            None => out.extend_from_slice(b"null"),
        }
    }
    out.extend_from_slice(b"}\n");
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

/// The target as it stood in the request line.
fn target(uri: &Uri) -> Cow<'_, str> {
    match (uri.authority(), uri.path_and_query()) {
        (None, Some(path)) => Cow::Borrowed(path.as_str()),
        _ => Cow::Owned(uri.to_string()),
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

/// Escapes what RFC 8259, section 7 asks for, and every control character, because people read logs
/// in a terminal.
fn escape_json(out: &mut Vec<u8>, value: &[u8], room: usize) {
    let end = out.len() + room;
    for character in String::from_utf8_lossy(value).chars() {
        let start = out.len();
        match character {
            '"' | '\\' => out.extend_from_slice(&[b'\\', character as u8]),
            character if character.is_control() => {
                put(out, format_args!("\\u{:04x}", u32::from(character)));
            }
            character => put(out, format_args!("{character}")),
        }
        if out.len() > end {
            return out.truncate(start);
        }
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
