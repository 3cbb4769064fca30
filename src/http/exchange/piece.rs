//! What a response's body is made of: bytes, or parts of files that the server sends by
//! sendfile(2).

use std::any::Any;
use std::cell::{Cell, OnceCell};
use std::fmt;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// How much of a part is read at a time, if someone looks into it.
const READ_AT_ONCE: u64 = 64 * 1024;

/// Why a part of a file cannot be sent: the file was cut or overwritten.
pub(crate) const FILE_CHANGED: &str = "the file was changed while it was sent";

thread_local! {
    static SENT: Cell<bool> = const { Cell::new(false) };
}

/// A piece of a response's body: bytes, or a part of a file that the server sends by sendfile(2).
///
/// It is the [`Data`](http_body::Body::Data) of `files::FileBody` (feature `files`), which returns
/// parts of files where the server can send them. A body that wraps such a body has pieces too, and
/// passes them on as they are. Who looks into a part of a file ([`Buf::chunk`]) reads it from the
/// file, 64 KiB at a time. That panics if the file has become shorter; the server then breaks the
/// response off.
///
/// ```
/// use bytes::{Buf, Bytes};
/// use prefork_server::Piece;
///
/// let mut piece = Piece::from(Bytes::from_static(b"tea"));
/// piece.advance(1);
/// assert_eq!(piece.chunk(), b"ea");
/// ```
#[derive(Debug)]
pub struct Piece(Content);

#[derive(Debug)]
enum Content {
    Bytes(Bytes),
    File(FilePart),
}

/// A part of an open file. A body may return one only while [`FilePart::are_sent`], and only if the
/// kernel has the part in memory: sendfile(2) would wait for the disk.
pub(crate) struct FilePart {
    file: Arc<File>,
    at: u64,
    left: u64,
    /// The bytes from `at` on, for who looks into the part.
    read: OnceCell<Bytes>,
}

#[cfg(any(feature = "files", test))]
impl FilePart {
    /// `length` bytes of the file from the position `at` on. Nothing is read.
    pub(crate) fn new(file: Arc<File>, at: u64, length: u64) -> Self {
        Self {
            file,
            at,
            left: length,
            read: OnceCell::new(),
        }
    }

    /// Whether the server sends the parts of files that the body returns now. It does in HTTP/1
    /// without TLS, while it polls a body whose data are [`Piece`]s.
    pub(crate) fn are_sent() -> bool {
        SENT.get()
    }
}

impl FilePart {
    /// The file and the position in it.
    pub(crate) fn place(&self) -> (&File, u64) {
        (&self.file, self.at)
    }

    fn bytes(&self) -> &Bytes {
        self.read.get_or_init(|| {
            let length = self.left.min(READ_AT_ONCE);
            let mut bytes = vec![0; usize::try_from(length).expect("at most 64 KiB")];
            let read = self.file.read_exact_at(&mut bytes, self.at);
            read.expect("a part of a file cannot be read");
            bytes.into()
        })
    }
}

/// The part of a file, if the data of a body are a [`Piece`] and this one is a part of a file.
#[inline]
pub(crate) fn file_part<D: 'static>(data: &D) -> Option<&FilePart> {
    match (data as &dyn Any).downcast_ref::<Piece>()?.0 {
        Content::Bytes(_) => None,
        Content::File(ref part) => Some(part),
    }
}

/// Polls a body whose parts of files the server will send.
pub(crate) fn while_parts_are_sent<T>(poll: impl FnOnce() -> T) -> T {
    struct Reset;
    impl Drop for Reset {
        fn drop(&mut self) {
            SENT.set(false);
        }
    }
    SENT.set(true);
    let _reset = Reset;
    poll()
}

impl From<Bytes> for Piece {
    fn from(bytes: Bytes) -> Self {
        Self(Content::Bytes(bytes))
    }
}

impl From<FilePart> for Piece {
    fn from(part: FilePart) -> Self {
        Self(Content::File(part))
    }
}

/// The bytes. For a part of a file, by reading it.
impl From<Piece> for Bytes {
    fn from(mut piece: Piece) -> Self {
        piece.copy_to_bytes(piece.remaining())
    }
}

impl Buf for Piece {
    fn remaining(&self) -> usize {
        match &self.0 {
            Content::Bytes(bytes) => bytes.len(),
            Content::File(part) => usize::try_from(part.left).unwrap_or(usize::MAX),
        }
    }

    fn chunk(&self) -> &[u8] {
        match &self.0 {
            Content::Bytes(bytes) => bytes,
            Content::File(part) => part.bytes(),
        }
    }

    fn advance(&mut self, count: usize) {
        match &mut self.0 {
            Content::Bytes(bytes) => bytes.advance(count),
            Content::File(part) => part.advance(count as u64),
        }
    }

    /// Bytes are not copied.
    fn copy_to_bytes(&mut self, count: usize) -> Bytes {
        if let Content::Bytes(bytes) = &mut self.0 {
            return bytes.copy_to_bytes(count);
        }
        assert!(count <= self.remaining(), "the piece has fewer bytes");
        let mut copy = BytesMut::with_capacity(count);
        copy.put(self.take(count));
        copy.freeze()
    }
}

impl FilePart {
    fn advance(&mut self, count: u64) {
        assert!(count <= self.left, "advanced past the end");
        self.at += count;
        self.left -= count;
        self.read = match self.read.take() {
            Some(mut read) if count < read.len() as u64 => {
                read.advance(usize::try_from(count).expect("less than its length"));
                OnceCell::from(read)
            }
            _ => OnceCell::new(),
        };
    }
}

impl fmt::Debug for FilePart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FilePart")
            .field("at", &self.at)
            .field("left", &self.left)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn part(length: usize) -> (Vec<u8>, FilePart) {
        let content: Vec<u8> = (0..length + 20).map(|at| (at % 251) as u8).collect();
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(&content).expect("space");
        let part = FilePart::new(Arc::new(file), 10, length as u64);
        (content[10..10 + length].to_vec(), part)
    }

    #[test]
    fn who_looks_into_a_part_reads_its_bytes() {
        let (content, part) = part(200_000);
        let mut piece = Piece::from(part);
        piece.advance(3);
        assert_eq!(piece.chunk()[..5], content[3..8]);
        piece.advance(70_000);
        assert_eq!(piece.remaining(), 129_997);
        assert!(Bytes::from(piece) == content[70_003..]);
    }

    #[test]
    fn bytes_are_taken_without_a_copy() {
        let bytes = Bytes::from(vec![7; 10]);
        let mut piece = Piece::from(bytes.clone());
        piece.advance(2);
        assert_eq!(piece.copy_to_bytes(8).as_ptr(), bytes[2..].as_ptr());
    }

    #[test]
    #[should_panic(expected = "fewer bytes")]
    fn no_more_than_the_part_is_copied() {
        let (_, part) = part(10);
        let _ = Piece::from(part).copy_to_bytes(11);
    }

    #[test]
    #[should_panic(expected = "cannot be read")]
    fn a_part_that_the_file_does_not_have_panics() {
        let (_, part) = part(10);
        let longer = FilePart::new(part.file, 0, 100);
        let _ = Piece::from(longer).chunk();
    }

    #[test]
    fn parts_are_sent_only_while_the_server_polls() {
        assert!(!FilePart::are_sent());
        assert!(while_parts_are_sent(FilePart::are_sent));
        assert!(!FilePart::are_sent());
    }
}
