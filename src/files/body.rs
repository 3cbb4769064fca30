//! The body of a response that is a file or a part of one.
//!
//! A small file of the cache is one piece of memory. Other files are read, one piece at a time:
//! HTTP drops a piece when its last byte was written, and then the next piece is read into the same
//! memory. So a response holds one piece, however much HTTP would buffer for its client. A caller
//! that collects the pieces must copy them. If the user chooses so, files go in parts that the
//! server sends by sendfile(2), where it can.
//!
//! What the kernel has in memory is read and sent by the event loop. For the rest a thread that may
//! wait reads it first.

use std::fs::File;
use std::io;
use std::mem;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::beneath::Reach;
use super::budget::{Memory, Permit};
use super::open_files::{OpenFile, SAMPLE};
use super::service::on_a_thread;
use super::version::{changed, read_exact};
use crate::http::{FilePart, Piece};

/// The longest part that is sent at once, and all that a connection sends before others have their
/// turn. Before each part the server looks if the file is still the same one.
const PART_MAX: u64 = 1024 * 1024;

/// The body of a file, or of a part of one. It has the announced length, or fails: if the file was
/// overwritten from its start or became shorter meanwhile, the response breaks off. A write into
/// its middle is not seen.
///
/// The body reads the file in pieces of at most 60 KiB, or the server sends it by
/// [sendfile(2)](FileBody::sendfile). A thread of the runtime's blocking pool waits for the disk.
/// The next piece is read when the one before is dropped. So who keeps pieces has to copy them, or
/// waits without end: a test that collects the body, and tower-http's `CompressionLayer` around a
/// service whose bodies these are.
///
/// Default: an empty body.
///
/// ```
/// use std::fs::File;
///
/// use prefork_server::files::FileBody;
/// use prefork_server::{BoxError, Request, Response};
///
/// async fn report(_request: Request) -> Result<Response<FileBody>, BoxError> {
///     // To open a file may wait for a disk.
///     let file = tokio::task::spawn_blocking(|| File::open("report.pdf")).await??;
///     let mut response = Response::new(FileBody::new(file)?);
///     response
///         .headers_mut()
///         .insert("content-type", "application/pdf".parse()?);
///     Ok(response)
/// }
/// ```
#[derive(Debug, Default)]
pub struct FileBody(Content);

#[derive(Debug)]
enum Content {
    Memory(Bytes),
    File(Box<Reading>),
}

/// A file that is being sent.
#[derive(Debug)]
struct Reading {
    file: Arc<OpenFile>,
    /// The position of the next read.
    at: u64,
    /// How many bytes HTTP has not got yet.
    left: u64,
    permit: Permit,
    /// Whether sendfile(2) may send the file's own memory, which may change until the client has
    /// it.
    may_be_sent: bool,
    /// The last bytes of the part that the server sends by sendfile(2).
    sent: Vec<u8>,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Before a piece.
    Ready(Option<Memory>),
    /// HTTP has a piece, and its memory will come back.
    Given(oneshot::Receiver<Memory>),
    Reading(JoinHandle<io::Result<Memory>>),
    /// The next part, of this length, is being read from the disk.
    Fetching(JoinHandle<io::Result<Vec<u8>>>, u64),
    Over,
}

impl Default for Content {
    fn default() -> Self {
        Self::Memory(Bytes::new())
    }
}

impl FileBody {
    /// The whole file, with the length that it has now. The error is that of fstat(2).
    pub fn new(file: File) -> io::Result<Self> {
        let file = OpenFile::alone(file)?;
        let length = file.identity().length();
        let permit = Permit::of_handler();
        Ok(Self::part_of(Arc::new(file), 0..length, permit, false))
    }

    /// A part of the file, from a position to another one, which is not part of it. The error is
    /// that of fstat(2), or [`io::ErrorKind::InvalidInput`] if the file does not have all of it.
    pub fn part(file: File, range: Range<u64>) -> io::Result<Self> {
        let file = OpenFile::alone(file)?;
        if range.start > range.end || range.end > file.identity().length() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let permit = Permit::of_handler();
        Ok(Self::part_of(Arc::new(file), range, permit, false))
    }

    /// Sends the file by sendfile(2) where HTTP/1 without TLS is served by
    /// [`serve`](crate::Prefork::serve). Choose it if nobody cuts or overwrites the file in its
    /// place meanwhile, because the client would get a wrong body.
    #[must_use]
    pub fn sendfile(mut self) -> Self {
        if let Content::File(reading) = &mut self.0 {
            reading.may_be_sent = true;
        }
        self
    }

    /// Whether its pieces have to be dropped before it goes on.
    #[cfg(feature = "tower")]
    pub(super) fn is_lent(&self) -> bool {
        matches!(self.0, Content::File(_))
    }

    /// A part of a file that the worker has open.
    pub(super) fn part_of(
        file: Arc<OpenFile>,
        range: Range<u64>,
        permit: Permit,
        may_be_sent: bool,
    ) -> Self {
        if range.is_empty() {
            return Self::default();
        }
        Self(Content::File(Box::new(Reading {
            file,
            at: range.start,
            left: range.end - range.start,
            permit,
            may_be_sent,
            sent: Vec::new(),
            state: State::Ready(None),
        })))
    }
}

impl From<Bytes> for FileBody {
    fn from(bytes: Bytes) -> Self {
        Self(Content::Memory(bytes))
    }
}

impl Reading {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Piece>>> {
        loop {
            self.state = match &mut self.state {
                State::Ready(_) if self.left == 0 => State::Over,
                State::Ready(None) if self.may_be_sent && FilePart::are_sent() => {
                    let length = self.left.min(PART_MAX);
                    match self.check_part(length)? {
                        Some(end) => return Poll::Ready(Ok(Some(self.give_part(length, end)))),
                        None => self.fetch(length)?,
                    }
                }
                State::Ready(memory) => {
                    let memory = memory.take();
                    match self.read(memory)? {
                        Ok(memory) => return Poll::Ready(Ok(Some(self.give(memory)))),
                        Err(reading) => reading,
                    }
                }
                State::Given(memory) => {
                    let lost = |_| io::Error::from(io::ErrorKind::BrokenPipe);
                    State::Ready(Some(ready!(Pin::new(memory).poll(cx)).map_err(lost)?))
                }
                State::Reading(read) => {
                    let memory = ready!(Pin::new(read).poll(cx))??;
                    return Poll::Ready(Ok(Some(self.give(memory))));
                }
                State::Fetching(fetch, length) => {
                    let length = *length;
                    let end = ready!(Pin::new(fetch).poll(cx))??;
                    return Poll::Ready(Ok(Some(self.give_part(length, end))));
                }
                State::Over => return Poll::Ready(Ok(None)),
            }
        }
    }

    /// The last bytes of the next part, if the kernel has the part in memory.
    fn check_part(&self, length: u64) -> io::Result<Option<Vec<u8>>> {
        let part = self.at..self.at + length;
        if !self.file.is_resident(part.clone())? {
            return Ok(None);
        }
        match end_of_part(&self.file, &self.sent, part, Reach::Memory) {
            Ok(end) => Ok(Some(end)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn give_part(&mut self, length: u64, end: Vec<u8>) -> Piece {
        let part = FilePart::new(Arc::clone(self.file.shared()), self.at, length);
        self.at += length;
        self.left -= length;
        self.sent = end;
        self.state = State::Ready(None);
        part.into()
    }

    /// Makes the kernel read a part of the file.
    fn fetch(&mut self, length: u64) -> io::Result<State> {
        let (file, at) = (Arc::clone(&self.file), self.at);
        let sent = mem::take(&mut self.sent);
        let fetch = move || {
            let end = at + length;
            let mut scratch = vec![0; PIECE];
            for at in (at..end).step_by(PIECE) {
                let length = usize::try_from(end - at).map_or(PIECE, |left| left.min(PIECE));
                read_exact(file.shared(), &mut scratch[..length], at, Reach::Disk)?;
            }
            end_of_part(&file, &sent, at..end, Reach::Disk)
        };
        Ok(State::Fetching(on_a_thread(fetch)?, length))
    }

    /// Reads a piece, or has a thread read it.
    fn read(&mut self, memory: Option<Memory>) -> io::Result<Result<Memory, State>> {
        let sent = match &memory {
            Some(memory) => memory.bytes[memory.bytes.len().saturating_sub(SAMPLE)..].to_vec(),
            None => mem::take(&mut self.sent),
        };
        let mut memory = match memory {
            Some(memory) => memory.renew(self.left),
            None => self.permit.memory(self.left),
        };
        let (file, at) = (Arc::clone(&self.file), self.at);
        match read_piece(&file, &sent, &mut memory, at, Reach::Memory) {
            Ok(()) => Ok(Ok(memory)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                Ok(Err(State::Reading(on_a_thread(move || {
                    read_piece(&file, &sent, &mut memory, at, Reach::Disk)?;
                    Ok(memory)
                })?)))
            }
            Err(error) => Err(error),
        }
    }

    fn give(&mut self, memory: Memory) -> Piece {
        let length = memory.bytes.len() as u64;
        self.at += length;
        self.left -= length;
        let (back, given) = oneshot::channel();
        self.state = match self.left {
            0 => State::Over,
            _ => State::Given(given),
        };
        Bytes::from_owner(Lent {
            memory: Some(memory),
            back: Some(back),
        })
        .into()
    }
}

/// How much a thread reads at a time to bring a file into memory.
const PIECE: usize = 64 * 1024;

/// Reads the next piece. `sent` are the bytes before it.
fn read_piece(
    file: &OpenFile,
    sent: &[u8],
    memory: &mut Memory,
    at: u64,
    reach: Reach,
) -> io::Result<()> {
    read_exact(file.shared(), &mut memory.bytes, at, reach)?;
    check(file, sent, at, reach)
}

/// The last bytes of the next part, before the server sends it. `sent` are the bytes before it.
fn end_of_part(
    file: &OpenFile,
    sent: &[u8],
    part: Range<u64>,
    reach: Reach,
) -> io::Result<Vec<u8>> {
    let start = part.end.saturating_sub(SAMPLE as u64).max(part.start);
    let mut end = vec![0; usize::try_from(part.end - start).map_err(io::Error::other)?];
    read_exact(file.shared(), &mut end, start, reach)?;
    check(file, sent, part.start, reach)?;
    Ok(end)
}

/// Fails if the file was overwritten. What was read is not sent before.
fn check(file: &OpenFile, sent: &[u8], at: u64, reach: Reach) -> io::Result<()> {
    match file.has_same_bytes(sent, at, reach)? {
        true => Ok(()),
        false => Err(changed()),
    }
}

impl Body for FileBody {
    type Data = Piece;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Piece>>>> {
        let Self(content) = self.get_mut();
        let polled = match content {
            Content::Memory(bytes) if bytes.is_empty() => Ok(None),
            Content::Memory(bytes) => Ok(Some(mem::take(bytes).into())),
            Content::File(reading) => {
                let polled = ready!(reading.poll(cx));
                if polled.is_err() {
                    reading.state = State::Over;
                }
                polled
            }
        };
        Poll::Ready(polled.map(|piece| piece.map(Frame::data)).transpose())
    }

    fn is_end_stream(&self) -> bool {
        self.size_hint().exact() == Some(0)
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(match &self.0 {
            Content::Memory(bytes) => bytes.len() as u64,
            Content::File(reading) => reading.left,
        })
    }
}

/// A piece that HTTP has. When HTTP drops it, its memory goes back to the body.
struct Lent {
    memory: Option<Memory>,
    back: Option<oneshot::Sender<Memory>>,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        self.memory.as_ref().map_or(&[], |memory| &memory.bytes)
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let (Some(memory), Some(back)) = (self.memory.take(), self.back.take()) {
            // There is no body any more after its last piece, or if its response ended earlier.
            let _ = back.send(memory);
        }
    }
}
