//! What a TLS stream has received and not used.

use std::cell::Cell;
use std::io;
use std::mem;

use bytes::Bytes;
use tokio::io::ReadBuf;

use crate::pool::Scratch;

/// At most so many encrypted bytes wait: rustls takes handshake messages up to this length, and
/// records are shorter.
pub(super) const SEALED_MAX: usize = 64 * 1024;

/// At most so many bytes are read at once: four records of full length.
const READ_MAX: usize = 66 * 1024;

/// The memory for waiting bytes grows by so much.
const STEP: usize = 4 * 1024;

/// The type, the version and the length of a record (RFC 8446 5.1).
pub(super) const HEADER: usize = 5;

/// The longest record that rustls takes: TLS 1.2 allows 2,048 bytes more than the plaintext (RFC
/// 5246 6.2.3).
pub(super) const RECORD_MAX: usize = HEADER + 16 * 1024 + 2048;

thread_local! {
    static RECEIVED: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// The buffer to read into and to decrypt in. The first [`SEALED_MAX`] bytes are for what waits.
pub(super) fn scratch() -> Scratch {
    Scratch::take(&RECEIVED, SEALED_MAX + READ_MAX)
}

/// Takes decrypted bytes.
pub(super) type Put<'a> = &'a mut dyn FnMut(&[u8]);

/// How many of the client's bytes were used.
pub(super) enum Decrypted {
    Used(usize),
    /// All: the client has sent `close_notify`, and what follows is ignored (RFC 8446 6.1).
    All,
}

#[derive(Default)]
pub(super) struct Input {
    /// The beginning of a record, or records with the beginning of a handshake message. rustls has
    /// seen all of it, except for a record whose length is known and not reached. After an empty
    /// fragment of a handshake message rustls keeps bytes that it has processed: then it begins
    /// with anything that the client has chosen.
    sealed: Vec<u8>,
    /// Decrypted bytes, and how many of them are read.
    plain: Vec<u8>,
    read: usize,
}

impl Input {
    pub(super) fn has_plain(&self) -> bool {
        !self.plain.is_empty()
    }

    /// Takes decrypted bytes: `buf` gets as many as it has space for.
    pub(super) fn put(&mut self, bytes: &[u8], buf: &mut ReadBuf<'_>) {
        let (now, later) = bytes.split_at(bytes.len().min(buf.remaining()));
        buf.put_slice(now);
        self.plain.extend_from_slice(later);
    }

    /// Gives away the decrypted bytes that wait.
    pub(super) fn give(&mut self, buf: &mut ReadBuf<'_>) {
        let waiting = &self.plain[self.read..];
        let count = waiting.len().min(buf.remaining());
        buf.put_slice(&waiting[..count]);
        self.read += count;
        if self.read == self.plain.len() {
            (self.plain, self.read) = (Vec::new(), 0);
        }
    }

    /// Removes the decrypted bytes that wait.
    pub(super) fn take_plain(&mut self) -> Bytes {
        let read = mem::take(&mut self.read);
        Bytes::from(mem::take(&mut self.plain)).slice(read..)
    }

    /// These decrypted bytes come before those that wait.
    pub(super) fn begin_with(&mut self, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.plain = [bytes, &self.take_plain()].concat();
        }
    }

    /// Whether a record waits that is complete: it has a part of a handshake message.
    pub(super) fn has_record(&self) -> bool {
        record_len(&self.sealed).is_some_and(|len| len <= self.sealed.len())
    }

    /// The encrypted bytes that wait.
    pub(super) fn sealed(&mut self) -> &mut [u8] {
        &mut self.sealed
    }

    /// Puts what waits right before the bytes that came, at the end of `space`. Returns how long it
    /// is. `None`: their record is still not complete, and all of it waits.
    pub(super) fn join(&mut self, space: &mut [u8], came: &[u8]) -> Option<usize> {
        let joined = self.sealed.len();
        if joined == 0 {
            return Some(0);
        }
        let lacks = |len| len <= RECORD_MAX && joined + came.len() < len;
        if record_len(&self.sealed).is_some_and(lacks) {
            self.wait(came);
            return None;
        }
        let start = space.len() - joined;
        space[start..].copy_from_slice(&self.sealed);
        self.sealed.clear();
        Some(joined)
    }

    /// The bytes that rustls cannot use yet wait.
    pub(super) fn keep(&mut self, bytes: &[u8]) -> io::Result<()> {
        match bytes.len() {
            0 => self.sealed = Vec::new(),
            1..=SEALED_MAX => self.wait(bytes),
            _ => {
                let why = "a handshake message is too long";
                return Err(io::Error::new(io::ErrorKind::InvalidData, why));
            }
        }
        Ok(())
    }

    fn wait(&mut self, bytes: &[u8]) {
        if self.sealed.capacity() - self.sealed.len() < bytes.len() {
            self.sealed
                .reserve_exact(bytes.len().next_multiple_of(STEP));
        }
        self.sealed.extend_from_slice(bytes);
    }

    /// Removes encrypted bytes at the beginning.
    pub(super) fn discard(&mut self, count: usize) {
        self.sealed.drain(..count);
    }

    pub(super) fn discard_sealed(&mut self) {
        self.sealed = Vec::new();
    }

    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.sealed.capacity() + self.plain.capacity()
    }
}

/// The length of the record that begins so, if its header is complete.
pub(super) fn record_len(sealed: &[u8]) -> Option<usize> {
    let [_, _, _, high, low] = *sealed.first_chunk::<HEADER>()?;
    Some(HEADER + usize::from(u16::from_be_bytes([high, low])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_wait_for_the_end_of_their_record_and_for_no_record_that_is_too_long() {
        for (len, waits) in [
            (RECORD_MAX, true),
            (RECORD_MAX + 1, false),
            (HEADER + 0xffff, false),
        ] {
            let payload = u16::try_from(len - HEADER).expect("two bytes");
            let [high, low] = payload.to_be_bytes();
            let mut input = Input::default();
            input.keep(&[23, 3, 3, high, low]).expect("it is short");
            let mut space = vec![0; SEALED_MAX];
            let joined = input.join(&mut space, &[0; RECORD_MAX - HEADER - 1]);
            assert_eq!(joined, (!waits).then_some(HEADER), "{len}");
            assert!(input.sealed().len() < SEALED_MAX);
        }
    }
}
