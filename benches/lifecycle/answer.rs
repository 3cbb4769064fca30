//! A request, and the one answer it may have, checked as it arrives.

/// What every answer begins with. The peers spell it the same.
const STATUS: &[u8] = b"HTTP/1.1 200 ";

/// Far more than any of the servers sends.
const HEAD_MAX: usize = 2048;

/// Asks for `token` back. It is in the body for servers that echo, and in a header for those that
/// cannot. `fields` are whole lines.
pub(super) fn request(token: &str, fields: &str) -> String {
    let length = token.len();
    format!(
        "POST /echo HTTP/1.1\r\nHost: localhost\r\nX-Token: {token}\r\n{fields}\
         Content-Length: {length}\r\n\r\n{token}"
    )
}

/// How much of the right answer is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    Partial,
    Complete(Afterwards),
}

/// What the server will do with the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Afterwards {
    Keep,
    Close,
}

/// Why no further bytes can make this the right answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Garbled(pub(super) &'static str);

/// Judges what has arrived for a request that must be answered with `body`.
pub(super) fn check(bytes: &[u8], body: &[u8]) -> Result<Progress, Garbled> {
    let known = bytes.len().min(STATUS.len());
    if bytes[..known] != STATUS[..known] {
        return Err(Garbled("another status"));
    }
    let Some(end) = bytes.windows(4).position(|it| it == b"\r\n\r\n") else {
        return match bytes.len() {
            ..HEAD_MAX => Ok(Progress::Partial),
            _ => Err(Garbled("a head without an end")),
        };
    };
    let (head, arrived) = (&bytes[..end], &bytes[end + 4..]);
    let length = header(head, b"content-length");
    if length != Some(body.len().to_string().as_bytes()) {
        return Err(Garbled("another length"));
    }
    if arrived == body {
        let close = header(head, b"connection").is_some_and(|it| it.eq_ignore_ascii_case(b"close"));
        let afterwards = [Afterwards::Keep, Afterwards::Close][usize::from(close)];
        Ok(Progress::Complete(afterwards))
    } else if body.starts_with(arrived) {
        Ok(Progress::Partial)
    } else {
        Err(Garbled("another body"))
    }
}

fn header<'a>(head: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    head.split(|&byte| byte == b'\n').skip(1).find_map(|line| {
        let colon = line.iter().position(|&byte| byte == b':')?;
        let (found, value) = (&line[..colon], &line[colon + 1..]);
        found.eq_ignore_ascii_case(name).then(|| value.trim_ascii())
    })
}
