//! A response on its way in: framed by its Content-Length and checked where it lies.

use super::outcome::Failure;
use super::plan::Expected;

/// More than the head of any server we ask. A longer one counts as a failure.
const HEAD_MAX: usize = 1024;

const STATUS_LINE: &[u8] = b"HTTP/1.1 200 ";
const HEAD_END: &[u8] = b"\r\n\r\n";

/// How much of a body that may be anything is kept.
const TOLD_MAX: usize = 64;

/// What has come of one response.
pub(crate) struct Response {
    /// The head so far, if it comes in parts.
    head: [u8; HEAD_MAX],
    filled: usize,
    stage: Stage,
    told: [u8; TOLD_MAX],
    /// The whole response's length so far.
    bytes: usize,
}

#[derive(Clone, Copy)]
enum Stage {
    Head,
    Body { at: usize, frame: Frame },
    Complete { length: usize },
}

/// What a head says.
#[derive(Clone, Copy)]
struct Frame {
    length: usize,
    fate: Fate,
}

/// What the server means to do with the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Kept,
    Closed,
}

impl Response {
    pub(crate) fn new() -> Self {
        Self {
            head: [0; HEAD_MAX],
            filled: 0,
            stage: Stage::Head,
            told: [0; TOLD_MAX],
            bytes: 0,
        }
    }

    /// Ready for the next one.
    pub(super) fn clear(&mut self) {
        self.filled = 0;
        self.stage = Stage::Head;
        self.bytes = 0;
    }

    /// The length of the last whole response, head and body.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn is_complete(&self) -> bool {
        matches!(self.stage, Stage::Complete { .. })
    }

    /// The beginning of the whole response's body, if that might be anything.
    pub(super) fn told(&self) -> Option<&[u8]> {
        match self.stage {
            Stage::Head | Stage::Body { .. } => None,
            Stage::Complete { length } => Some(&self.told[..length.min(TOLD_MAX)]),
        }
    }

    /// Looks at the bytes that came next. When the response is whole: how many of them belong to
    /// it. Nothing of them is copied but heads in parts and what may be anything.
    pub(crate) fn feed(
        &mut self,
        bytes: &[u8],
        expected: &Expected,
    ) -> Result<Option<(usize, Fate)>, Failure> {
        let mut used = 0;
        if let Stage::Head = self.stage {
            let Some((count, frame)) = self.head(bytes)? else {
                return Ok(None);
            };
            if let Expected::Bytes(body) = expected
                && body.len() != frame.length
            {
                return Err(Failure::Length);
            }
            used = count;
            self.bytes = count;
            self.stage = Stage::Body { at: 0, frame };
        }
        let Stage::Body { at, frame } = &mut self.stage else {
            unreachable!("a whole response is cleared before the next");
        };
        let rest = &bytes[used..];
        let part = &rest[..rest.len().min(frame.length - *at)];
        match expected {
            Expected::Bytes(body) if body[*at..*at + part.len()] != *part => {
                return Err(Failure::Body);
            }
            Expected::Bytes(_) => {}
            Expected::Told => {
                let kept = part.len().min(TOLD_MAX.saturating_sub(*at));
                self.told[(*at).min(TOLD_MAX)..][..kept].copy_from_slice(&part[..kept]);
            }
        }
        *at += part.len();
        self.bytes += part.len();
        if *at < frame.length {
            return Ok(None);
        }
        let Frame { length, fate } = *frame;
        used += part.len();
        self.stage = Stage::Complete { length };
        Ok(Some((used, fate)))
    }

    /// How many of `bytes` belong to the head and what it says, when it is complete.
    fn head(&mut self, bytes: &[u8]) -> Result<Option<(usize, Frame)>, Failure> {
        if self.filled == 0
            && let Some(end) = end_of_head(bytes)
        {
            return Ok(Some((end, frame(&bytes[..end])?)));
        }
        let before = self.filled;
        let count = bytes.len().min(HEAD_MAX - before);
        self.head[before..before + count].copy_from_slice(&bytes[..count]);
        self.filled += count;
        let Some(end) = end_of_head(&self.head[..self.filled]) else {
            let full = self.filled == HEAD_MAX;
            return if full { Err(Failure::Head) } else { Ok(None) };
        };
        Ok(Some((end - before, frame(&self.head[..end])?)))
    }
}

fn end_of_head(bytes: &[u8]) -> Option<usize> {
    let at = bytes.windows(HEAD_END.len()).position(|it| it == HEAD_END);
    at.map(|at| at + HEAD_END.len())
}

fn frame(head: &[u8]) -> Result<Frame, Failure> {
    if !head.starts_with(STATUS_LINE) {
        return Err(Failure::Status);
    }
    let mut length = None;
    let mut fate = Fate::Kept;
    for line in head.split(|&byte| byte == b'\n') {
        // Most lines are others, and this runs for each response.
        if !matches!(line.first(), Some(b'c' | b'C')) {
            continue;
        }
        if let Some(value) = value_of(line, b"content-length:") {
            let value = str::from_utf8(value).ok();
            length = value.and_then(|value| value.parse().ok());
        } else if let Some(value) = value_of(line, b"connection:")
            && value.eq_ignore_ascii_case(b"close")
        {
            fate = Fate::Closed;
        }
    }
    let length = length.ok_or(Failure::Head)?;
    Ok(Frame { length, fate })
}

fn value_of<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let (start, value) = line.split_at_checked(name.len())?;
    let named = start.eq_ignore_ascii_case(name);
    named.then(|| value.trim_ascii())
}
