//! A stream within TLS.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::{FallibleAccept, TlsStream};

use crate::http::conn::socket::{Closed, Socket, Version};
use crate::http::info::ConnectionInfo;
use crate::http::info::tls::TlsInfo;
use crate::http::tls::alpn::version;
use crate::stats::{Count, WorkerStats};

/// What a client is told that speaks HTTP where TLS is spoken. Once, and in the open.
const NOT_HERE: &[u8] = b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\
    content-type: text/plain\r\ncontent-length: 44\r\n\r\n\
    This port speaks TLS. Ask by https:// here.\n";

/// A stream within TLS. On the heap: what TLS has to remember is large, and is moved about.
pub(crate) struct Secure<I: Socket> {
    state: Box<State<I>>,
    stats: WorkerStats,
}

/// How far it has come.
enum State<I: Socket> {
    /// Something may come before the handshake, too.
    Fresh(I, Arc<ServerConfig>),
    /// The handshake is under way.
    Opening(FallibleAccept<Wire<I>>),
    /// It is done.
    Open(TlsStream<Wire<I>>),
    /// It has failed, and the client is told why.
    Parting(Parting<I>),
    /// It has failed, and all is said.
    Failed,
}

impl<I: Socket> Secure<I> {
    pub(crate) fn new(io: I, config: Arc<ServerConfig>, stats: WorkerStats) -> Self {
        Self {
            state: Box::new(State::Fresh(io, config)),
            stats,
        }
    }

    /// Begins the handshake, if it has not begun.
    fn begin(&mut self) {
        *self.state = match std::mem::replace(&mut *self.state, State::Failed) {
            State::Fresh(io, config) => {
                let wire = Wire {
                    io,
                    heard: Heard::Nothing,
                    sent: 0,
                    part: 0,
                };
                State::Opening(TlsAcceptor::from(config).accept(wire).into_fallible())
            }
            begun => begun,
        };
    }

    fn stream(self: Pin<&mut Self>) -> io::Result<Pin<&mut TlsStream<Wire<I>>>> {
        match &mut *self.get_mut().state {
            State::Open(stream) => Ok(Pin::new(stream)),
            _ => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    fn opened(&self, stream: &TlsStream<Wire<I>>) {
        self.stats.add(Count::TlsHandshakes, 1);
        if stream.get_ref().1.handshake_kind() == Some(rustls::HandshakeKind::Resumed) {
            self.stats.add(Count::TlsResumed, 1);
        }
    }

    /// The handshake has failed. What TLS has to say about it is said.
    fn part(&self, wire: Wire<I>, why: io::Error) -> State<I> {
        // A load balancer that looks whether somebody listens has done nothing wrong.
        if wire.heard != Heard::Nothing {
            self.stats.add(Count::TlsHandshakeFailures, 1);
        }
        State::Parting(Parting {
            io: wire.io,
            left: match wire.heard {
                Heard::Plain => NOT_HERE,
                Heard::Nothing | Heard::Bytes => b"",
            },
            why,
        })
    }
}

impl<I: Socket> Socket for Secure<I> {
    fn has_unread(&self) -> bool {
        match &*self.state {
            State::Open(stream) => {
                let (wire, session) = stream.get_ref();
                !session.wants_read() || wire.io.has_unread()
            }
            _ => false,
        }
    }

    fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match &mut *self.state {
            State::Open(stream) => {
                let (wire, session) = stream.get_mut();
                // What is decrypted already, the last word included, is not announced again.
                if !session.wants_read() {
                    return Poll::Ready(());
                }
                wire.io.poll_readable(cx)
            }
            // An error is for the next read to find.
            _ => Poll::Ready(()),
        }
    }

    fn closed(&self) -> Closed {
        match &*self.state {
            State::Open(stream) => stream.get_ref().0.io.closed(),
            State::Fresh(..) | State::Opening(_) | State::Parting(_) => Closed::Nothing,
            State::Failed => Closed::Everything,
        }
    }

    fn take_sent(&mut self) -> usize {
        match &mut *self.state {
            State::Open(stream) => std::mem::take(&mut stream.get_mut().0.sent),
            _ => 0,
        }
    }

    fn has_part(&mut self) -> bool {
        match &mut *self.state {
            State::Open(stream) => std::mem::take(&mut stream.get_mut().0.part) > 0,
            _ => false,
        }
    }

    fn poll_open(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Version>> {
        if let State::Fresh(io, _) = &mut *self.state {
            ready!(io.poll_open(cx))?;
            self.begin();
        }
        loop {
            *self.state = match &mut *self.state {
                State::Opening(handshake) => match ready!(Pin::new(handshake).poll(cx)) {
                    Ok(mut stream) => {
                        // It was the handshake's.
                        stream.get_mut().0.part = 0;
                        self.opened(&stream);
                        State::Open(stream)
                    }
                    Err((error, wire)) => self.part(wire, error),
                },
                State::Open(stream) => return Poll::Ready(Ok(version(stream.get_ref().1))),
                State::Parting(parting) => {
                    let why = ready!(parting.poll(cx));
                    *self.state = State::Failed;
                    return Poll::Ready(Err(why));
                }
                State::Fresh(..) | State::Failed => {
                    return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
                }
            };
        }
    }

    fn info(&self) -> ConnectionInfo {
        let State::Open(stream) = &*self.state else {
            unreachable!("nobody asks before it is open");
        };
        let (wire, session) = stream.get_ref();
        let mut info = wire.io.info();
        info.set_tls(TlsInfo::of(session));
        info
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
        stream.get_mut().get_mut().0.part = 0;
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

    /// Says that nothing more comes (`close_notify`) before it closes, so that the client can tell
    /// the end from a cut.
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream()?.poll_shutdown(cx)
    }
}

/// The stream below TLS, which looks at the first byte: rustls would answer HTTP with an alert, and
/// then it is too late for words. And it notes what leaves, which is not what rustls takes, and
/// what comes, which may be a part of a record.
struct Wire<I> {
    io: I,
    heard: Heard,
    sent: usize,
    part: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Heard {
    Nothing,
    /// HTTP.
    Plain,
    /// Anything else.
    Bytes,
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
        if self.heard == Heard::Nothing
            && let Some(&first) = buf.filled().get(before)
        {
            // A method begins with a letter; a record of TLS does not.
            self.heard = match first.is_ascii_alphabetic() {
                true => Heard::Plain,
                false => Heard::Bytes,
            };
        }
        if self.heard == Heard::Plain {
            let why = io::Error::new(io::ErrorKind::InvalidData, "HTTP without TLS");
            return Poll::Ready(Err(why));
        }
        Poll::Ready(Ok(()))
    }
}

impl<I> Wire<I> {
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

/// The last words to a client with which the handshake has failed, after those of TLS itself. It is
/// heard out: to close on bytes that nobody has read resets the connection, and with it the client
/// loses what it was told.
struct Parting<I> {
    io: I,
    left: &'static [u8],
    why: io::Error,
}

impl<I: AsyncRead + AsyncWrite + Unpin> Parting<I> {
    /// Gives the reason when the client has heard it, or has left.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        // Whoever does not hear it has left, which is no other reason.
        let _ = ready!(self.poll_say(cx));
        let kind = self.why.kind();
        Poll::Ready(std::mem::replace(&mut self.why, kind.into()))
    }

    fn poll_say(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.left.is_empty() {
            match ready!(Pin::new(&mut self.io).poll_write(cx, self.left))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                sent => self.left = &self.left[sent..],
            }
        }
        ready!(Pin::new(&mut self.io).poll_shutdown(cx))?;
        let mut bin = [0; 1024];
        loop {
            let mut bin = ReadBuf::new(&mut bin);
            ready!(Pin::new(&mut self.io).poll_read(cx, &mut bin))?;
            if bin.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

#[cfg(test)]
mod tests;
