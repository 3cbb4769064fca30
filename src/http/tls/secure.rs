//! A stream within TLS.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::http::conn::socket::{Closed, Socket, Version};
use crate::http::info::ConnectionInfo;
use crate::http::registry::state::Stage;
use crate::http::tls::alpn::version;
use crate::http::tls::stream::{Detached, Output, Terms, TlsStream};
use crate::moved::Moved;
use crate::stats::{Count, WorkerStats};

/// The response to a client that sends HTTP without TLS. Sent without TLS.
const NOT_TLS: &[u8] = b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\
    content-type: text/plain\r\ncontent-length: 44\r\n\r\n\
    This port speaks TLS. Ask by https:// here.\n";

/// A stream within TLS. Its state is on the heap, because it is large and the stream is moved.
pub(crate) struct Secure<I: Socket> {
    state: Box<State<I>>,
    stats: WorkerStats,
}

/// The state of a TLS stream.
enum State<I: Socket> {
    /// The handshake has not begun. A PROXY header may come before it.
    Fresh(I, Arc<ServerConfig>),
    /// The handshake is under way.
    Opening(TlsStream<Wire<I>>),
    /// The handshake is done.
    Open(TlsStream<Wire<I>>),
    /// The handshake has failed, and the server sends the reason.
    Rejecting(Rejecting<I>),
    /// The handshake has failed, and the stream is closed.
    Failed,
}

impl<I: Socket> Secure<I> {
    pub(crate) fn new(io: I, config: Arc<ServerConfig>, stats: WorkerStats) -> Self {
        Self {
            state: Box::new(State::Fresh(io, config)),
            stats,
        }
    }

    /// Goes on where another server was.
    pub(super) fn attach(io: I, moved: Moved, terms: &Terms, stats: WorkerStats) -> Self {
        let Moved {
            tls,
            http2,
            read_ahead,
        } = moved;
        let detached = tls.map(|session| Detached {
            io: Wire::new(io, FirstByte::Other, http2),
            session,
            plain: read_ahead,
        });
        let attached = detached.and_then(|detached| TlsStream::attach(detached, terms));
        if attached.is_none() {
            tracing::debug!("TLS session not taken over; the connection is closed");
        }
        Self {
            state: Box::new(attached.map_or(State::Failed, State::Open)),
            stats,
        }
    }

    /// Separates the socket from the session, which joins what moves with the socket. Without a
    /// socket the connection is lost.
    pub(super) fn detach(
        self,
        mut moved: Moved,
        terms: &Terms,
    ) -> Result<Option<(I, Moved)>, Self> {
        let Self { state, stats } = self;
        let State::Open(mut stream) = *state else {
            return Ok(None);
        };
        stream.put_back(&moved.read_ahead);
        if !stream.can_move() {
            stream.io_mut().http2 = moved.http2;
            let state = Box::new(State::Open(stream));
            return Err(Self { state, stats });
        }
        Ok(stream.detach(terms).map(|detached| {
            moved.tls = Some(detached.session);
            moved.read_ahead = detached.plain;
            (detached.io.io, moved)
        }))
    }

    /// Begins the handshake, if it has not begun.
    fn begin(&mut self) -> io::Result<()> {
        *self.state = match std::mem::replace(&mut *self.state, State::Failed) {
            State::Fresh(io, config) => {
                let wire = Wire::new(io, FirstByte::NotReceived, None);
                State::Opening(TlsStream::new(wire, config)?)
            }
            begun => begun,
        };
        Ok(())
    }

    fn stream(self: Pin<&mut Self>) -> io::Result<Pin<&mut TlsStream<Wire<I>>>> {
        match &mut *self.get_mut().state {
            State::Open(stream) => Ok(Pin::new(stream)),
            _ => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    fn opened(&self, stream: &TlsStream<Wire<I>>) {
        self.stats.add(Count::TlsHandshakes, 1);
        if stream.session().is_resumed() {
            self.stats.add(Count::TlsResumed, 1);
        }
    }

    /// The state after the handshake.
    fn end_handshake(&mut self, opened: io::Result<()>) -> State<I> {
        match (std::mem::replace(&mut *self.state, State::Failed), opened) {
            (State::Opening(stream), Ok(())) => {
                self.opened(&stream);
                State::Open(stream)
            }
            (State::Opening(stream), Err(why)) => {
                let (wire, alert) = stream.into_parts();
                self.reject(wire, alert, why)
            }
            (other, _) => other,
        }
    }

    /// The state after a failed handshake. The client gets `alert`.
    fn reject(&self, wire: Wire<I>, alert: Output, why: io::Error) -> State<I> {
        // Not counted without a byte: a load balancer connects to check that the server listens.
        if wire.first_byte != FirstByte::NotReceived {
            self.stats.add(Count::TlsHandshakeFailures, 1);
        }
        State::Rejecting(Rejecting {
            io: wire.io,
            left: match wire.first_byte {
                FirstByte::Http => Output::plain(NOT_TLS),
                FirstByte::NotReceived | FirstByte::Other => alert,
            },
            why,
        })
    }
}

impl<I: Socket> Socket for Secure<I> {
    fn has_unread(&self) -> bool {
        match &*self.state {
            State::Open(stream) | State::Opening(stream) => {
                stream.has_unread() || stream.io().io.has_unread()
            }
            State::Fresh(io, _) => io.has_unread(),
            State::Rejecting(_) | State::Failed => false,
        }
    }

    fn unacknowledged(&self) -> usize {
        match &*self.state {
            State::Open(stream) => stream.io().io.unacknowledged(),
            _ => 0,
        }
    }

    fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match &mut *self.state {
            State::Open(stream) => {
                // The socket does not become readable for bytes that are already decrypted, nor for
                // a `close_notify` that has been read.
                if stream.has_unread() {
                    return Poll::Ready(());
                }
                stream.io_mut().io.poll_readable(cx)
            }
            // The next read returns the error.
            _ => Poll::Ready(()),
        }
    }

    fn closed(&self) -> Closed {
        match &*self.state {
            State::Open(stream) => stream.io().io.closed(),
            State::Fresh(..) | State::Opening(_) | State::Rejecting(_) => Closed::Nothing,
            State::Failed => Closed::Everything,
        }
    }

    fn take_sent(&mut self) -> usize {
        match &mut *self.state {
            State::Open(stream) => std::mem::take(&mut stream.io_mut().sent),
            _ => 0,
        }
    }

    fn has_part(&mut self) -> bool {
        match &mut *self.state {
            State::Open(stream) => std::mem::take(&mut stream.io_mut().part) > 0,
            _ => false,
        }
    }

    fn poll_open(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Version>> {
        if let State::Fresh(io, _) = &mut *self.state {
            ready!(io.poll_open(cx))?;
            self.begin()?;
        }
        loop {
            *self.state = match &mut *self.state {
                State::Opening(stream) => {
                    let opened = ready!(stream.poll_handshake(cx));
                    // These bytes belonged to the handshake.
                    stream.io_mut().part = 0;
                    self.end_handshake(opened)
                }
                State::Open(stream) => return Poll::Ready(Ok(version(stream.session().alpn()))),
                State::Rejecting(rejecting) => {
                    let why = ready!(rejecting.poll(cx));
                    *self.state = State::Failed;
                    return Poll::Ready(Err(why));
                }
                State::Fresh(..) | State::Failed => {
                    return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
                }
            };
        }
    }

    fn open_stage(&self) -> Stage {
        match &*self.state {
            State::Fresh(io, _) => io.open_stage(),
            State::Opening(stream) if stream.io().first_byte == FirstByte::NotReceived => {
                Stage::Unopened
            }
            State::Opening(_) | State::Open(_) => Stage::Opening,
            State::Rejecting(_) | State::Failed => Stage::Ending,
        }
    }

    fn info(&self) -> ConnectionInfo {
        let State::Open(stream) = &*self.state else {
            unreachable!("called before the handshake is done");
        };
        let mut info = stream.io().io.info();
        info.set_tls(stream.session().info());
        info
    }

    fn was_idle(&self) -> bool {
        matches!(&*self.state, State::Open(stream) if stream.io().io.was_idle())
    }

    fn take_http2(&mut self) -> Option<Moved> {
        let State::Open(stream) = &mut *self.state else {
            return None;
        };
        let http2 = Some(stream.io_mut().http2.take()?);
        Some(Moved {
            tls: None,
            http2,
            read_ahead: stream.take_plain(),
        })
    }
}

impl<I: Socket> AsyncRead for Secure<I> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut stream = self.stream()?;
        ready!(stream.as_mut().poll_read(cx, buf))?;
        stream.io_mut().part = 0;
        Poll::Ready(Ok(()))
    }
}

impl<I: Socket> AsyncWrite for Secure<I> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.stream()?.poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.stream()?.poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream()?.poll_flush(cx)
    }

    /// Sends `close_notify` before it closes the stream, so that the client can distinguish a
    /// complete stream from a connection that broke.
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream()?.poll_shutdown(cx)
    }
}

/// The stream below TLS. It checks the first byte: rustls would respond to HTTP with an alert, and
/// no HTTP response could follow the alert. It also counts the bytes that are sent, because rustls
/// buffers what it is given, and the bytes received, which may be a part of a record.
struct Wire<I> {
    io: I,
    first_byte: FirstByte,
    sent: usize,
    /// The bytes received since the last decrypted data.
    part: usize,
    /// The record of an HTTP/2 client that moves, or could not move.
    http2: Option<Bytes>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FirstByte {
    NotReceived,
    /// A letter: the client sends HTTP.
    Http,
    Other,
}

impl<I: AsyncRead + Unpin> AsyncRead for Wire<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.io).poll_read(cx, buf))?;
        self.part += buf.filled().len() - before;
        if self.first_byte == FirstByte::NotReceived
            && let Some(&first) = buf.filled().get(before)
        {
            // An HTTP method begins with a letter; a TLS record does not.
            self.first_byte = match first.is_ascii_alphabetic() {
                true => FirstByte::Http,
                false => FirstByte::Other,
            };
        }
        if self.first_byte == FirstByte::Http {
            let why = io::Error::new(io::ErrorKind::InvalidData, "HTTP without TLS");
            return Poll::Ready(Err(why));
        }
        Poll::Ready(Ok(()))
    }
}

impl<I> Wire<I> {
    fn new(io: I, first_byte: FirstByte, http2: Option<Bytes>) -> Self {
        Self {
            io,
            first_byte,
            sent: 0,
            part: 0,
            http2,
        }
    }

    fn note(&mut self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(bytes)) = written {
            self.sent = self.sent.saturating_add(bytes);
        }
        written
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for Wire<I> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(cx, bytes);
        self.note(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(cx, slices);
        self.note(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

/// The end of a connection whose handshake has failed. The server sends `left`, which is the alert
/// of TLS or a response. Then it closes its sending half, and discards the bytes that the client
/// still sends: a close with unread bytes would reset the connection, and the client could lose the
/// server's bytes.
struct Rejecting<I> {
    io: I,
    left: Output,
    why: io::Error,
}

impl<I: AsyncRead + AsyncWrite + Unpin> Rejecting<I> {
    /// Returns the reason when the client has closed the connection.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        // An error here only means that the client has closed the connection.
        let _ = ready!(self.poll_finish(cx));
        let kind = self.why.kind();
        Poll::Ready(std::mem::replace(&mut self.why, kind.into()))
    }

    fn poll_finish(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.left.poll_send(&mut self.io, cx))?;
        ready!(Pin::new(&mut self.io).poll_shutdown(cx))?;
        let mut discarded = [0; 1024];
        loop {
            let mut discarded = ReadBuf::new(&mut discarded);
            ready!(Pin::new(&mut self.io).poll_read(cx, &mut discarded))?;
            if discarded.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

#[cfg(test)]
mod tests;
