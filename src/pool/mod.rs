//! Buffers that are used again, so that a response is written without an allocation.

pub(crate) mod field_maps;
mod free_list;
mod inputs;
#[cfg(feature = "tls")]
mod scratch;

use std::fmt;
use std::io;

use bytes::{Buf, Bytes};

pub(crate) use self::free_list::FreeList;
pub(crate) use self::inputs::Inputs;
#[cfg(feature = "tls")]
pub(crate) use self::scratch::Scratch;

/// How many buffers a thread keeps for later.
const KEPT_MAX: usize = 64;

/// The largest buffer that is kept. A larger one was for a rare response, and would hold its memory
/// for ever.
const CAPACITY_MAX: usize = 64 * 1024;

/// The capacity of a new buffer. Most responses that are worth a buffer fit.
const CAPACITY_MIN: usize = 1024;

thread_local! {
    static KEPT: FreeList<Vec<u8>> = const { FreeList::new(KEPT_MAX) };
}

/// A buffer from the pool of this thread. It goes back to a pool when it is dropped; if it is the
/// body of a response, that is when the response is sent.
///
/// Write into it, and make a body of it by `Full::new(buffer)`. In the steady state that allocates
/// nothing; a `String` or `Vec` costs two allocations, one for itself and one to be shared.
///
/// A thread keeps up to 64 buffers, none larger than 64 KiB, and frees the others. A buffer that is
/// dropped on another thread goes to the pool of that thread.
///
/// ```
/// use std::fmt::Write;
///
/// use http_body_util::Full;
/// use prefork_server::{Buffer, Request, Response, reply};
///
/// async fn hello(request: Request) -> Result<Response<Full<Buffer>>, http::Error> {
///     let (head, _body) = request.into_parts();
///     let mut text = Buffer::take();
///     write!(text, "You asked for {}.", head.uri).expect("memory does not fail");
///     reply(head)
///         .header("content-type", "text/plain; charset=utf-8")
///         .body(Full::new(text))
/// }
/// ```
pub struct Buffer(Content);

enum Content {
    /// A buffer of the pool, and how many of its bytes are consumed.
    Pooled(Vec<u8>, usize),
    /// Memory that the pool does not own.
    Shared(Bytes),
}

impl Buffer {
    /// An empty buffer, used before or new.
    #[must_use]
    pub fn take() -> Self {
        let kept = KEPT.try_with(FreeList::take).ok().flatten();
        let bytes = kept.unwrap_or_else(|| Vec::with_capacity(CAPACITY_MIN));
        Self(Content::Pooled(bytes, 0))
    }

    /// Adds bytes at the end.
    #[inline]
    pub fn extend_from_slice(&mut self, more: &[u8]) {
        match &mut self.0 {
            Content::Pooled(bytes, 0) => {
                if bytes.capacity() - bytes.len() < more.len() {
                    grow(bytes, more.len());
                }
                bytes.extend_from_slice(more);
            }
            _ => self.extend_anew(more),
        }
    }

    /// Adds what `write` appends to the vector that it gets, which may be empty: for many small
    /// pieces. `None`: nothing is added.
    #[inline]
    pub(crate) fn extend_with<T>(
        &mut self,
        write: impl FnOnce(&mut Vec<u8>) -> Option<T>,
    ) -> Option<T> {
        match &mut self.0 {
            Content::Pooled(bytes, 0) => {
                let before = bytes.len();
                let written = write(bytes);
                if written.is_none() {
                    bytes.truncate(before);
                }
                written
            }
            _ => {
                let mut pieces = Vec::new();
                let written = write(&mut pieces)?;
                self.extend_anew(&pieces);
                Some(written)
            }
        }
    }

    /// Adds bytes to any content but a pooled buffer of which nothing is consumed.
    #[cold]
    fn extend_anew(&mut self, more: &[u8]) {
        match &mut self.0 {
            Content::Pooled(bytes, read) => {
                // Removes the consumed bytes as soon as that moves no more bytes than it frees, or
                // than a larger buffer would.
                let lacks_room = bytes.capacity() - bytes.len() < more.len();
                if *read * 2 >= bytes.len() || lacks_room {
                    bytes.drain(..*read);
                    *read = 0;
                }
                bytes.extend_from_slice(more);
            }
            Content::Shared(bytes) => {
                let bytes = std::mem::take(bytes);
                *self = Self::take();
                self.extend_from_slice(&bytes);
                self.extend_from_slice(more);
            }
        }
    }

    /// Removes bytes at the end, so that at most `len` bytes are left.
    pub(crate) fn truncate(&mut self, len: usize) {
        match &mut self.0 {
            Content::Pooled(bytes, read) => bytes.truncate(*read + len),
            Content::Shared(bytes) => bytes.truncate(len),
        }
    }

    /// The bytes that are written and not consumed.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        match &self.0 {
            Content::Pooled(bytes, read) => &bytes[*read..],
            Content::Shared(bytes) => bytes,
        }
    }
}

/// Makes room for `more` bytes. A buffer that holds less than [`CAPACITY_MAX`] gets no larger than
/// that, as it would if its capacity were doubled.
#[cold]
fn grow(bytes: &mut Vec<u8>, more: usize) {
    let capacity = (bytes.len() + more).next_power_of_two();
    bytes.reserve_exact(capacity - bytes.len());
}

/// Without a copy, so that responses that are written and responses that exist already can have the
/// same type of body.
impl From<Bytes> for Buffer {
    fn from(bytes: Bytes) -> Self {
        Self(Content::Shared(bytes))
    }
}

/// Without a copy.
impl From<&'static str> for Buffer {
    fn from(text: &'static str) -> Self {
        Bytes::from_static(text.as_bytes()).into()
    }
}

impl Buf for Buffer {
    fn remaining(&self) -> usize {
        self.as_slice().len()
    }

    fn chunk(&self) -> &[u8] {
        self.as_slice()
    }

    /// # Panics
    /// If fewer bytes than `count` are left, as [`Buf::advance`] asks for.
    fn advance(&mut self, count: usize) {
        match &mut self.0 {
            Content::Pooled(bytes, read) => {
                assert!(count <= bytes.len() - *read, "advanced past the end");
                *read += count;
                if *read == bytes.len() {
                    bytes.clear();
                    *read = 0;
                }
            }
            Content::Shared(bytes) => bytes.advance(count),
        }
    }
}

impl io::Write for Buffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl fmt::Write for Buffer {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer")
            .field("len", &self.remaining())
            .finish_non_exhaustive()
    }
}

impl Drop for Content {
    fn drop(&mut self) {
        let Self::Pooled(bytes, _) = self else { return };
        if bytes.capacity() > CAPACITY_MAX {
            return;
        }
        let mut bytes = std::mem::take(bytes);
        bytes.clear();
        // A thread that is ending has no pool any more.
        let _ = KEPT.try_with(|kept| kept.keep(bytes));
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use super::*;

    fn kept() -> usize {
        KEPT.with(FreeList::len)
    }

    #[test]
    fn a_buffer_comes_back_empty() {
        let mut buffer = Buffer::take();
        write!(buffer, "{}", 42).expect("memory does not fail");
        buffer.advance(1);
        assert_eq!(buffer.chunk(), b"2");
        let memory = buffer.chunk().as_ptr().wrapping_sub(1);
        drop(buffer);
        let again = Buffer::take();
        assert_eq!(again.chunk().as_ptr(), memory, "the same one");
        assert_eq!(again.remaining(), 0);
    }

    #[test]
    fn the_pool_has_its_bounds() {
        let many: Vec<_> = (0..2 * KEPT_MAX).map(|_| Buffer::take()).collect();
        drop(many);
        assert_eq!(kept(), KEPT_MAX);
        let mut large = Buffer::take();
        large.extend_from_slice(&vec![0; CAPACITY_MAX + 1]);
        drop(large);
        assert_eq!(kept(), KEPT_MAX - 1, "it was not taken back");
    }

    fn capacity(buffer: &Buffer) -> usize {
        match &buffer.0 {
            Content::Pooled(bytes, _) => bytes.capacity(),
            Content::Shared(_) => 0,
        }
    }

    #[test]
    fn a_buffer_that_grows_is_kept_up_to_the_limit() {
        let mut buffer = Buffer::take();
        for _ in 0..3 {
            buffer.extend_from_slice(&[0; CAPACITY_MAX / 4 + 9]);
        }
        buffer.extend_from_slice(&[0; CAPACITY_MAX / 4 - 27]);
        assert_eq!(capacity(&buffer), CAPACITY_MAX);
    }

    #[test]
    fn a_buffer_of_which_a_part_is_consumed_does_not_grow_while_there_is_room() {
        let mut buffer = Buffer::take();
        buffer.extend_from_slice(&[1; CAPACITY_MAX - 9]);
        buffer.advance(CAPACITY_MAX / 4);
        buffer.extend_from_slice(&[2; CAPACITY_MAX / 4]);
        assert_eq!(buffer.remaining(), CAPACITY_MAX - 9);
        assert_eq!(capacity(&buffer), CAPACITY_MAX);
    }

    #[test]
    fn consumed_bytes_make_room_for_more() {
        for left in [0, 1, 256] {
            let mut buffer = Buffer::take();
            let before = capacity(&buffer);
            let mut expected = Vec::new();
            for piece in (0..=u8::MAX).cycle().take(1024) {
                buffer.extend_from_slice(&[piece; 256]);
                expected.extend_from_slice(&[piece; 256]);
                assert!(buffer.as_slice() == expected, "{left} left");
                let consumed = expected.len() - left;
                buffer.advance(consumed);
                expected.drain(..consumed);
            }
            assert_eq!(capacity(&buffer), before, "{left} left");
        }
    }

    #[test]
    fn what_is_not_wanted_is_not_added() {
        let mut consumed = Buffer::take();
        consumed.extend_from_slice(b"1held");
        consumed.advance(1);
        let mut pooled = Buffer::take();
        pooled.extend_from_slice(b"held");
        for mut buffer in [pooled, consumed, Buffer::from("held")] {
            let mut write = |wanted: Option<u8>| {
                buffer.extend_with(|out| {
                    out.extend_from_slice(b", more");
                    wanted
                })
            };
            assert_eq!(write(None), None);
            assert_eq!(write(Some(1)), Some(1));
            assert_eq!(buffer.as_slice(), b"held, more");
        }
    }

    #[test]
    fn a_shared_content_is_copied_when_it_grows() {
        let mut buffer = Buffer::from("shared");
        buffer.advance(2);
        assert_eq!(buffer.chunk(), b"ared");
        buffer.extend_from_slice(b", no more");
        assert_eq!(buffer.chunk(), b"ared, no more");
    }

    #[test]
    #[should_panic(expected = "past the end")]
    fn to_advance_past_the_end_panics() {
        Buffer::take().advance(1);
    }
}
