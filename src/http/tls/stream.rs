//! A stream within TLS that has no buffer while it rests.
//!
//! rustls' own connection keeps a buffer of 4 KiB for what it receives, as long as it lives. Its
//! unbuffered interface leaves the buffers to us. All connections of a thread read into one buffer
//! and encrypt into another ([`Scratch`]). A connection has memory of its own only for bytes that
//! must wait:
//!
//! | bytes | wait for | at most |
//! |---|---|---|
//! | `Input::sealed` | the rest of a record, or of a handshake message | `input::SEALED_MAX` |
//! | `Input::plain` | a reader with a smaller buffer than the records | one read |
//! | [`Output`] | a client that does not read | one write, or one flight of the handshake |
//!
//! Between two calls no complete record is in `sealed`: each read from the socket decrypts all that
//! came. So the socket is readable if and only if the stream is, unless `plain` has bytes or the
//! stream has ended. And rustls may be asked to encrypt at any time: it would have to give away
//! decrypted bytes first.
//!
//! [`Scratch`]: crate::pool::Scratch

mod input;
mod output;
mod own_session;
mod session;
mod session_record;
mod taken_session;
mod traffic;

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use self::input::{Decrypted, Input};
pub(crate) use self::output::Output;
use self::session::Session;
use self::session_record::SessionRecord;
pub(crate) use self::session_record::Terms;
use crate::codec;
use crate::secret::Secret;

/// At least so many bytes are read at once: a record of full length, or a whole flight of the
/// client's handshake.
const READ_MIN: usize = 16 * 1024;

/// The server's side of TLS on `io`.
pub(crate) struct TlsStream<I> {
    io: I,
    session: Session,
    input: Input,
    output: Output,
    reading: Reading,
    writing: Writing,
}

/// A socket, and the session of TLS that was on it.
pub(crate) struct Detached<I> {
    pub(crate) io: I,
    /// A [`SessionRecord`].
    pub(crate) session: Secret,
    /// What was decrypted and not read.
    pub(crate) plain: Bytes,
}

/// What the next read returns when all plaintext is read.
enum Reading {
    /// What the client sends.
    Open,
    /// The end of file: the client has sent `close_notify`.
    Ended,
    /// An error: the end of file came without `close_notify`. The client may still read.
    Cut,
    /// This error, with which the session has failed. The alert is in the output. rustls must not
    /// be asked for anything more.
    Failed(io::Error),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Writing {
    Open,
    /// `close_notify` is in the output, or was sent.
    Closed,
}

impl<I> TlsStream<I> {
    pub(crate) fn new(io: I, config: Arc<ServerConfig>) -> io::Result<Self> {
        Session::new(config).map(|session| Self::of(io, session))
    }

    fn of(io: I, session: Session) -> Self {
        Self {
            io,
            session,
            input: Input::default(),
            output: Output::default(),
            reading: Reading::Open,
            writing: Writing::Open,
        }
    }

    /// Whether another server can go on with the session now.
    pub(crate) fn can_move(&self) -> bool {
        self.session.can_move()
            // rustls has decrypted it, and does not give it away.
            && !self.input.has_record()
            && matches!(self.reading, Reading::Open)
            && self.writing == Writing::Open
            && self.output.is_empty()
    }

    /// Takes the session from the socket. Call it if [`TlsStream::can_move`]. `None`, and the
    /// connection is lost, if rustls does not give away the session.
    pub(crate) fn detach(mut self, terms: &Terms) -> Option<Detached<I>> {
        let session = self.session.into_parts()?;
        let record = SessionRecord::new(session, self.input.sealed(), terms);
        Some(Detached {
            io: self.io,
            session: Secret::of_record(&record),
            plain: self.input.take_plain(),
        })
    }

    /// Goes on where another server was. `None` if the record is not valid, or if this server would
    /// not have agreed on such a session.
    pub(crate) fn attach(detached: Detached<I>, terms: &Terms) -> Option<Self> {
        let Detached { io, session, plain } = detached;
        let record: SessionRecord = codec::from_bytes(&session).ok()?;
        let (session, sealed) = record.session(terms)?;
        let mut stream = Self::of(io, Session::Taken(Box::new(session)));
        stream.input.keep(&sealed).ok()?;
        stream.input.begin_with(&plain);
        Some(stream)
    }

    pub(crate) fn io(&self) -> &I {
        &self.io
    }

    pub(crate) fn io_mut(&mut self) -> &mut I {
        &mut self.io
    }

    /// The socket, and the bytes that the client has to get before the connection ends, such as
    /// the alert after a failure.
    pub(crate) fn into_parts(self) -> (I, Output) {
        (self.io, self.output)
    }

    pub(crate) fn session(&self) -> &Session {
        &self.session
    }

    /// Removes the plaintext that waits.
    pub(crate) fn take_plain(&mut self) -> Bytes {
        self.input.take_plain()
    }

    /// The next reads return these bytes first, which were read before.
    pub(crate) fn put_back(&mut self, plain: &[u8]) {
        self.input.begin_with(plain);
    }

    /// Whether the next read returns at once, and reads nothing from the socket.
    pub(crate) fn has_unread(&self) -> bool {
        self.input.has_plain() || !matches!(self.reading, Reading::Open)
    }

    /// The memory for bytes that wait.
    #[cfg(test)]
    pub(crate) fn held(&self) -> usize {
        self.input.held() + self.output.held()
    }

    /// The session has failed. Puts the alert into the output, if there is one.
    fn fail(&mut self, error: io::Error) {
        self.input.discard_sealed();
        self.session.last_words(&mut self.output);
        self.reading = Reading::Failed(error);
    }

    /// Fails if nothing can be encrypted any more.
    fn check_writable(&self) -> io::Result<()> {
        match (&self.reading, self.writing) {
            (Reading::Failed(error), _) => Err(error.kind().into()),
            (_, Writing::Closed) => Err(io::ErrorKind::BrokenPipe.into()),
            (_, Writing::Open) => Ok(()),
        }
    }
}

impl<I: AsyncRead + AsyncWrite + Unpin> TlsStream<I> {
    /// Does the handshake, until the client has everything of the server's part.
    pub(crate) fn poll_handshake(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let is_done = !self.session.is_handshaking();
            if !is_done {
                self.check_readable()?;
            }
            // If the session failed after the handshake, the next reads get the client's bytes
            // before that, and then the error.
            ready!(Pin::new(&mut *self).poll_flush(cx))?;
            if is_done {
                return Poll::Ready(Ok(()));
            }
            ready!(self.poll_receive(cx, &mut ReadBuf::new(&mut [])))?;
        }
    }

    /// Fails if no more plaintext can come, but after `close_notify`.
    fn check_readable(&mut self) -> io::Result<()> {
        match &mut self.reading {
            Reading::Open | Reading::Ended => Ok(()),
            Reading::Cut => {
                let why = "the end of file came without TLS's close_notify";
                Err(io::Error::new(io::ErrorKind::UnexpectedEof, why))
            }
            // The first read gets the reason, the others its kind.
            Reading::Failed(error) => {
                let kind = error.kind();
                Err(std::mem::replace(error, kind.into()))
            }
        }
    }

    /// Reads once from the socket, and decrypts the records that are complete. The input has no
    /// plaintext before. An error is that of the socket.
    fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut scratch = input::scratch();
        let (before, space) = scratch.split_at_mut(input::SEALED_MAX);
        let most = buf.remaining().clamp(READ_MIN, space.len());
        let mut space = ReadBuf::new(&mut space[..most]);
        ready!(Pin::new(&mut self.io).poll_read(cx, &mut space))?;
        let came = space.filled().len();
        if came == 0 {
            self.reading = Reading::Cut;
            return Poll::Ready(Ok(()));
        }
        let Some(joined) = self.input.join(before, space.filled()) else {
            return Poll::Ready(Ok(()));
        };
        let bytes = &mut scratch[input::SEALED_MAX - joined..input::SEALED_MAX + came];
        let put = &mut |plain: &[u8]| self.input.put(plain, buf);
        let decrypted = self.session.decrypt(bytes, put, &mut self.output);
        let kept = decrypted.and_then(|decrypted| match decrypted {
            Decrypted::Used(used) => self.input.keep(&bytes[used..]),
            Decrypted::All => {
                self.reading = Reading::Ended;
                self.input.keep(&[])
            }
        });
        if let Err(error) = kept {
            self.fail(error);
        }
        Poll::Ready(Ok(()))
    }

    fn poll_write_slices(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        // Nothing is encrypted before the client has taken what was.
        ready!(self.output.poll_send(&mut self.io, cx))?;
        self.check_writable()?;
        let mut scratch = output::scratch();
        let encrypted = self.session.encrypt(slices, &mut self.input, &mut scratch);
        match encrypted {
            Ok((taken, sealed)) => {
                self.output.send(&scratch[..sealed], &mut self.io, cx)?;
                Poll::Ready(Ok(taken))
            }
            Err(error) => {
                let kind = error.kind();
                self.fail(error);
                // An alert. If it cannot be sent now, the next write or the end sends it.
                let _ = self.output.poll_send(&mut self.io, cx);
                Poll::Ready(Err(kind.into()))
            }
        }
    }
}

impl<I: AsyncRead + AsyncWrite + Unpin> AsyncRead for TlsStream<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let before = buf.filled().len();
        if buf.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        loop {
            this.input.give(buf);
            if buf.filled().len() > before || matches!(this.reading, Reading::Ended) {
                return Poll::Ready(Ok(()));
            }
            this.check_readable()?;
            // If bytes wait already, a writer may wait for the client to take them. The transport
            // has one waker for writes, and this task must not replace the writer's.
            let has_no_writer = this.output.is_empty();
            ready!(this.poll_receive(cx, buf))?;
            if has_no_writer {
                // An alert. If it cannot be sent now, or not at all, the next write knows.
                let _ = this.output.poll_send(&mut this.io, cx);
            }
        }
    }
}

impl<I: AsyncRead + AsyncWrite + Unpin> AsyncWrite for TlsStream<I> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_slices(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_slices(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        ready!(this.output.poll_send(&mut this.io, cx))?;
        Pin::new(&mut this.io).poll_flush(cx)
    }

    /// Sends `close_notify`, if the session has not failed, and closes the stream.
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.check_writable().is_ok() {
            this.writing = Writing::Closed;
            this.session.close(&mut this.input, &mut this.output)?;
        }
        ready!(this.output.poll_send(&mut this.io, cx))?;
        match ready!(Pin::new(&mut this.io).poll_shutdown(cx)) {
            // The client has gone already.
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Poll::Ready(Ok(())),
            shut => Poll::Ready(shut),
        }
    }
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod wire;
