//! How a connection is closed: the server sends what is left to send, and discards what the client
//! may still be sending.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Poll, ready};

use tokio::io::ReadBuf;

use crate::http::conn::socket::Socket;
use crate::http::conn::stream::Stream;
use crate::http::registry::member::Member;
use crate::http::registry::state::{ConnState, Stage};
use crate::http::registry::timeouts::Order;

/// What a client is told whose request's head does not come to its end.
pub(crate) const TOO_SLOW: &[u8] =
    b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";

/// How hyper begins its answer to a head that is longer than it reads, and how that answer begins
/// if the reason is the head's target.
pub(crate) const HEAD_TOO_LARGE: &[u8] = b"HTTP/1.1 431 Request Header Fields Too Large\r\n";
pub(crate) const TARGET_TOO_LONG: &[u8] = b"HTTP/1.1 414 URI Too Long\r\n";

/// How many bytes of a client are thrown away. Linux has at most 6 MiB on their way to us and 4 MiB
/// in the client's socket (`tcp_rmem`, `tcp_wmem` of tcp(7)): a client that sends more does not
/// listen.
const DISCARDED_MAX: usize = 16 * 1024 * 1024;

/// What is still to be done for a connection that is over.
pub(crate) enum LingeringClose<I> {
    /// Its stream is in the hands of whoever asked for the upgrade.
    Upgraded,
    Close {
        stream: Stream<I>,
        last_bytes: &'static [u8],
        mode: CloseMode,
    },
}

/// What the close does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CloseMode {
    /// Sent, and no more.
    SendOnly,
    /// Sent, and the end of file with them.
    SendAndShutdown,
    /// As `SendAndShutdown`, and then read and discard what the client sends until it closes.
    ///
    /// close(2) on a socket with unread bytes resets the connection, and a reset takes the answer
    /// with it that the client has not read yet: it would never learn of its 413.
    Linger,
}

impl<I: Socket> LingeringClose<I> {
    pub(crate) fn new(stream: Stream<I>, last_bytes: &'static [u8], mode: CloseMode) -> Self {
        Self::Close {
            stream,
            last_bytes,
            mode,
        }
    }

    /// The end of file, without a word.
    pub(crate) fn silent(stream: Stream<I>) -> Self {
        Self::new(stream, b"", CloseMode::SendAndShutdown)
    }

    pub(crate) async fn run(self, member: Member) {
        match self {
            Self::Upgraded => outlive_upgrade(&member).await,
            Self::Close {
                mut stream,
                last_bytes,
                mode,
            } => {
                send(&mut stream, last_bytes, &member).await;
                if mode != CloseMode::SendOnly {
                    shutdown(&mut stream, &member).await;
                }
                if mode == CloseMode::Linger {
                    discard_input(&mut stream, &member).await;
                }
            }
        }
    }
}

/// Sends what the stream holds, and then the last bytes.
async fn send<I: Socket>(stream: &mut Stream<I>, last_bytes: &[u8], member: &Member) {
    member.state.enter(Stage::Closing);
    let mut left = last_bytes;
    let outcome: io::Result<()> = poll_fn(|cx| {
        if member.take_order(cx).is_some() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        ready!(stream.poll_send_held(cx))?;
        while !left.is_empty() {
            let sent = ready!(Pin::new(stream.io()).poll_write(cx, left))?;
            left = &left[sent..];
        }
        // TLS takes more than the kernel does.
        Pin::new(stream.io()).poll_flush(cx)
    })
    .await;
    if let Err(error) = outcome {
        tracing::debug!(peer = ?member.peer(), %error, "client left before our last last_bytes");
    }
}

/// Sends the end of file. Whoever does not hear it has left.
async fn shutdown<I: Socket>(stream: &mut Stream<I>, member: &Member) {
    poll_fn(|cx| match member.take_order(cx) {
        Some(_) => Poll::Ready(()),
        None => Pin::new(stream.io()).poll_shutdown(cx).map(drop),
    })
    .await;
}

async fn discard_input<I: Socket>(stream: &mut Stream<I>, member: &Member) {
    let mut buffer = [0; 4096];
    let mut discarded = 0;
    poll_fn(|cx| {
        loop {
            if member.take_order(cx).is_some() {
                return Poll::Ready(());
            }
            let mut buffer = ReadBuf::new(&mut buffer);
            let read = ready!(Pin::new(stream.io()).poll_read(cx, &mut buffer));
            discarded += buffer.filled().len();
            if read.is_err() || buffer.filled().is_empty() || discarded > DISCARDED_MAX {
                return Poll::Ready(());
            }
        }
    })
    .await;
}

/// Keeps an upgraded connection's place in the registry for as long as its stream lives, so that a
/// drain waits for it, for its grace, and a cut ends it.
async fn outlive_upgrade(member: &Member) {
    let state: &Arc<ConnState> = &member.state;
    state.enter(Stage::Upgraded);
    member.rest();
    poll_fn(|cx| {
        if state.is_stream_gone(cx.waker()) {
            return Poll::Ready(());
        }
        match member.take_order(cx) {
            // Whoever has the stream is to find that out and to drop it. The order comes again with
            // the next tick, and by then nobody is waited for.
            Some(order @ Order::EndUpgrade) if !state.is_cut() => {
                member.note(order);
                state.cut();
                Poll::Pending
            }
            Some(_) => {
                state.cut();
                Poll::Ready(())
            }
            None => Poll::Pending,
        }
    })
    .await;
}
