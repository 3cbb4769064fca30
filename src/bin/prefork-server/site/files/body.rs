//! The bytes of a file on their way, a piece at a time.
//!
//! HTTP is given one piece, and the next is read when the client has taken all of it, into the same
//! memory. So a response holds one piece, however much HTTP would keep ahead of its client.

use std::io;
use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, spawn_blocking};

/// The most that is read at a time: enough that a trip to the blocking pool costs little beside it.
pub(crate) const PIECE: usize = 64 * 1024;

/// See the module's head. It has the length that it was announced with, or fails.
#[derive(Debug)]
pub(crate) struct FileBody {
    /// `None` when all is read.
    file: Option<Arc<std::fs::File>>,
    /// Where the file is read next.
    at: u64,
    /// What HTTP has not been given yet.
    left: u64,
    state: State,
}

#[derive(Debug)]
enum State {
    Read(Vec<u8>),
    /// HTTP has a piece; its memory comes back.
    Given(oneshot::Receiver<Vec<u8>>),
    Reading(JoinHandle<io::Result<Vec<u8>>>),
    Over,
}

impl FileBody {
    /// So many bytes of the file from there on. Reads the first of them; waits for the disk.
    pub(super) fn open(file: std::fs::File, at: u64, length: u64) -> io::Result<Self> {
        let first = read(&file, Vec::new(), at, length)?;
        let has_more = (first.len() as u64) < length;
        Ok(Self {
            at: at + first.len() as u64,
            file: has_more.then(|| Arc::new(file)),
            left: length,
            state: State::Read(first),
        })
    }

    fn give(&mut self, piece: Vec<u8>) -> Bytes {
        self.left -= piece.len() as u64;
        let (back, given) = oneshot::channel();
        self.state = match self.left {
            0 => State::Over,
            _ => State::Given(given),
        };
        Bytes::from_owner(Piece {
            bytes: piece,
            back: Some(back),
        })
    }

    fn read_on(&mut self, memory: Vec<u8>) -> io::Result<JoinHandle<io::Result<Vec<u8>>>> {
        let file = self.file.clone().ok_or(io::ErrorKind::UnexpectedEof)?;
        let (at, left) = (self.at, self.left);
        Ok(spawn_blocking(move || read(&file, memory, at, left)))
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        loop {
            self.state = match &mut self.state {
                State::Read(piece) => {
                    let piece = std::mem::take(piece);
                    return Poll::Ready(Ok(Some(self.give(piece))));
                }
                State::Given(piece) => {
                    let memory = ready!(Pin::new(piece).poll(cx)).unwrap_or_default();
                    State::Reading(self.read_on(memory)?)
                }
                State::Reading(read) => {
                    let piece = ready!(Pin::new(read).poll(cx))??;
                    self.at += piece.len() as u64;
                    if piece.len() as u64 == self.left {
                        self.file = None;
                    }
                    State::Read(piece)
                }
                State::Over => return Poll::Ready(Ok(None)),
            }
        }
    }
}

impl Body for FileBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let this = self.get_mut();
        let polled = ready!(this.poll(cx));
        if polled.is_err() {
            this.state = State::Over;
        }
        Poll::Ready(polled.map(|piece| piece.map(Frame::data)).transpose())
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

/// What HTTP is given. When HTTP drops it, its memory goes back to the body.
struct Piece {
    bytes: Vec<u8>,
    back: Option<oneshot::Sender<Vec<u8>>>,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        if let Some(back) = self.back.take() {
            // The body is gone if its response ended before.
            let _ = back.send(std::mem::take(&mut self.bytes));
        }
    }
}

/// Reads the next piece. A file that has become shorter is an error: its length is announced.
fn read(file: &std::fs::File, mut memory: Vec<u8>, at: u64, left: u64) -> io::Result<Vec<u8>> {
    let length = usize::try_from(left).map_or(PIECE, |left| left.min(PIECE));
    memory.resize(length, 0);
    file.read_exact_at(&mut memory, at)?;
    Ok(memory)
}
