//! The one answer that counts, checked as it arrives.

/// What every server answers with.
pub(crate) const BODY: &str = "Hello, World!";

const STATUS_LINE: &[u8] = b"HTTP/1.1 200 OK\r\n";
const HEAD_END: &[u8] = b"\r\n\r\n";

/// Far more than the answer should have; one that fills it is a wrong one.
const SIZE_MAX: usize = 1024;

/// An answer on its way in.
pub(crate) struct Answer {
    bytes: [u8; SIZE_MAX],
    filled: usize,
}

/// How much of the right answer is there.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    Partial,
    Complete,
}

impl Answer {
    pub(crate) const EMPTY: Self = Self {
        bytes: [0; SIZE_MAX],
        filled: 0,
    };

    /// Where the next bytes go. Never empty: `received` refuses an answer that long.
    pub(crate) fn room(&mut self) -> &mut [u8] {
        &mut self.bytes[self.filled..]
    }

    /// Takes over the first `count` bytes of [`room`](Self::room).
    ///
    /// # Panics
    ///
    /// If this is not the beginning of the right answer. A server that answers wrongly has no
    /// figures worth reporting.
    pub(crate) fn received(&mut self, count: usize) -> Progress {
        self.filled += count;
        match progress(self.bytes()) {
            Some(Progress::Partial) if self.filled == SIZE_MAX => self.refuse("too long"),
            Some(progress) => progress,
            None => self.refuse("not the expected one"),
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.filled]
    }

    pub(crate) fn is_complete(&self) -> bool {
        progress(self.bytes()) == Some(Progress::Complete)
    }

    pub(crate) fn clear(&mut self) {
        self.filled = 0;
    }

    /// Ends the bench with what has arrived.
    pub(crate) fn refuse(&self, why: &str) -> ! {
        panic!("an answer is {why}: \"{}\"", self.bytes().escape_ascii());
    }
}

/// `None` if no further bytes can turn `bytes` into the right answer.
fn progress(bytes: &[u8]) -> Option<Progress> {
    let known = bytes.len().min(STATUS_LINE.len());
    if bytes[..known] != STATUS_LINE[..known] {
        return None;
    }
    let head_end = bytes.windows(HEAD_END.len()).position(|it| it == HEAD_END);
    let Some(head_end) = head_end else {
        return Some(Progress::Partial);
    };
    let body = &bytes[head_end + HEAD_END.len()..];
    if body == BODY.as_bytes() {
        Some(Progress::Complete)
    } else {
        BODY.as_bytes()
            .starts_with(body)
            .then_some(Progress::Partial)
    }
}
