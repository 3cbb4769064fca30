//! The body of a file, one piece at a time.
//!
//! HTTP drops a piece when its last byte was written. Then the next piece is read into the same
//! memory. So a response holds one piece, however much HTTP would buffer for its client. A caller
//! that collects the pieces must copy them.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, spawn_blocking};

use super::budget::{Memory, Permit};
use super::open_files::{OpenFile, OpenFiles};

/// The body of a file or of a part of one. It has the announced length, or fails.
#[derive(Debug)]
pub(crate) struct FileBody {
    /// `None` when everything is read.
    file: Option<Arc<OpenFile>>,
    /// The position of the next read.
    at: u64,
    /// How many bytes HTTP has not got yet.
    left: u64,
    state: State,
}

#[derive(Debug)]
enum State {
    Read(Option<Memory>),
    /// HTTP has a piece, and its memory will come back.
    Given(oneshot::Receiver<Memory>),
    Reading(JoinHandle<io::Result<Memory>>),
    Over,
}

impl FileBody {
    /// A part of the file, by its position and its length. Reads the first piece, and waits for the
    /// disk.
    pub(super) fn open(
        file: File,
        part: (u64, u64),
        permit: &Permit,
        open_files: &Arc<OpenFiles>,
    ) -> io::Result<Self> {
        let (at, length) = part;
        let mut first = permit.memory(length);
        file.read_exact_at(&mut first.bytes, at)?;
        let read = first.bytes.len() as u64;
        let is_whole = read == length;
        Ok(Self {
            file: (!is_whole).then(|| open_files.share(file)).transpose()?,
            at: at + read,
            left: length,
            state: State::Read(Some(first)),
        })
    }

    fn give(&mut self, memory: Memory) -> Bytes {
        self.left -= memory.bytes.len() as u64;
        let (back, given) = oneshot::channel();
        self.state = match self.left {
            0 => State::Over,
            _ => State::Given(given),
        };
        Bytes::from_owner(Piece {
            memory: Some(memory),
            back: Some(back),
        })
    }

    fn read_on(&self, memory: Memory) -> io::Result<State> {
        let file = self.file.clone().ok_or(io::ErrorKind::UnexpectedEof)?;
        let (at, left) = (self.at, self.left);
        let read = move || {
            let mut memory = memory.renew(left);
            file.read_exact_at(&mut memory.bytes, at)?;
            Ok(memory)
        };
        Ok(State::Reading(spawn_blocking(read)))
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        loop {
            self.state = match &mut self.state {
                State::Read(piece) => match piece.take() {
                    Some(piece) => return Poll::Ready(Ok(Some(self.give(piece)))),
                    None => State::Over,
                },
                State::Given(piece) => {
                    let lost = |_| io::Error::from(io::ErrorKind::BrokenPipe);
                    let memory = ready!(Pin::new(piece).poll(cx)).map_err(lost)?;
                    self.read_on(memory)?
                }
                State::Reading(read) => {
                    let piece = ready!(Pin::new(read).poll(cx))??;
                    let read = piece.bytes.len() as u64;
                    self.at += read;
                    if read == self.left {
                        self.file = None;
                    }
                    State::Read(Some(piece))
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

/// A piece that HTTP has. When HTTP drops it, its memory goes back to the body.
struct Piece {
    memory: Option<Memory>,
    back: Option<oneshot::Sender<Memory>>,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        self.memory.as_ref().map_or(&[], |memory| &memory.bytes)
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        if let (Some(memory), Some(back)) = (self.memory.take(), self.back.take()) {
            // There is no body any more after its last piece, or if its response ended earlier.
            let _ = back.send(memory);
        }
    }
}
