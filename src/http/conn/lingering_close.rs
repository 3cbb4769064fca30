//! How a connection is closed: the server sends its remaining bytes, and discards bytes that the
//! client still sends.

use std::future::poll_fn;
use std::io;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Poll, ready};

use tokio::io::ReadBuf;

use crate::http::conn::socket::Socket;
use crate::http::conn::stream::Stream;
use crate::http::exchange::date::Date;
use crate::http::options::DateHeader;
use crate::http::registry::clock::TAKEN_MIN;
use crate::http::registry::member::Member;
use crate::http::registry::state::{ConnState, Stage};
use crate::http::registry::timeouts::Order;

const TOO_SLOW: &[u8] =
    b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n";

/// Response to a request whose head is not complete at its deadline.
pub(crate) fn too_slow(date: DateHeader) -> Vec<u8> {
    match date {
        DateHeader::Sent => [TOO_SLOW, &Date::new().line()].concat(),
        DateHeader::Omitted => [TOO_SLOW, b"\r\n"].concat(),
    }
}

/// Start of hyper's response to a head that is longer than it reads.
pub(crate) const HEAD_TOO_LARGE: &[u8] = b"HTTP/1.1 431 Request Header Fields Too Large\r\n";
/// Replaces [`HEAD_TOO_LARGE`] if the request target is what is too long.
pub(crate) const TARGET_TOO_LONG: &[u8] = b"HTTP/1.1 414 URI Too Long\r\n";

/// Limit of discarded bytes. Linux keeps at most 6 MiB in our receive buffer and 4 MiB in the
/// client's send buffer (`tcp_rmem`, `tcp_wmem` of tcp(7)): a client that sends more does not react
/// to its response.
const DISCARDED_MAX: usize = 16 * 1024 * 1024;

/// The work that is left when the protocol of a connection has ended.
pub(crate) enum LingeringClose<I> {
    /// The stream belongs to the handler that upgraded the connection.
    Upgraded,
    Close {
        stream: Stream<I>,
        mode: CloseMode,
    },
}

/// Steps of the close.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CloseMode {
    /// Sends the remaining bytes.
    SendOnly,
    /// Sends the remaining bytes and the end of file. Lingers if a reset could drop bytes that were
    /// sent before.
    SendAndShutdown,
    /// Sends the remaining bytes and the end of file. Then reads and discards what the client
    /// sends, until the client closes.
    ///
    /// close(2) on a socket with unread bytes resets the connection. A reset also drops the
    /// response if the client has not read it yet, so the client would never learn of its 413.
    Linger,
}

impl<I: Socket> LingeringClose<I> {
    pub(crate) fn new(stream: Stream<I>, mode: CloseMode) -> Self {
        Self::Close { stream, mode }
    }

    /// Sends the end of file and no last response.
    pub(crate) fn silent(stream: Stream<I>) -> Self {
        Self::new(stream, CloseMode::SendAndShutdown)
    }

    pub(crate) async fn run(self, member: Member) {
        match self {
            Self::Upgraded => wait_for_upgraded_stream(&member).await,
            Self::Close { mut stream, mode } => {
                let lingers = match mode {
                    CloseMode::SendOnly => false,
                    CloseMode::SendAndShutdown => stream.must_linger(),
                    CloseMode::Linger => true,
                };
                send(&mut stream, &member).await;
                if mode != CloseMode::SendOnly {
                    shutdown(&mut stream, &member).await;
                }
                if lingers {
                    discard_input(&mut stream, &member).await;
                }
            }
        }
    }
}

/// Sends the bytes that the stream holds back.
async fn send<I: Socket>(stream: &mut Stream<I>, member: &Member) {
    member.state.enter(Stage::Closing);
    let outcome: io::Result<()> = poll_fn(|cx| {
        let sent = match stream.poll_send_held(cx) {
            // A TLS stream accepts more bytes than the kernel takes.
            Poll::Ready(Ok(())) => Pin::new(stream.io()).poll_flush(cx),
            sent => sent,
        };
        // After the write, which may show that the client goes on taking bytes.
        match sent.is_pending() && member.take_order(cx).is_some() {
            true => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            false => sent,
        }
    })
    .await;
    if let Err(error) = outcome {
        tracing::debug!(peer = ?member.peer(), %error, "client closed before the last bytes");
    }
}

/// Sends the end of file. An error means that the client has gone, and is ignored.
async fn shutdown<I: Socket>(stream: &mut Stream<I>, member: &Member) {
    poll_fn(|cx| match member.take_order(cx) {
        Some(_) => Poll::Ready(()),
        None => Pin::new(stream.io()).poll_shutdown(cx).map(drop),
    })
    .await;
}

/// Its time begins again while the client takes what was sent. In HTTP/2 a client sends frames as
/// long as it reads a response.
async fn discard_input<I: Socket>(stream: &mut Stream<I>, member: &Member) {
    let mut discarded = 0;
    let mut left = stream.io().unacknowledged();
    poll_fn(|cx| {
        // On the stack, as a drain closes all connections at once.
        let mut buffer = [0; 4096];
        loop {
            if let Some(order) = member.take_order(cx) {
                let before = mem::replace(&mut left, stream.io().unacknowledged());
                if order == Order::Cut || left == 0 || before < left + TAKEN_MIN {
                    return Poll::Ready(());
                }
                member.state.enter(Stage::Closing);
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

/// Keeps an upgraded connection in the registry until its stream is dropped. So a drain waits for
/// the stream for as long as the upgrade grace, and a cut ends it.
async fn wait_for_upgraded_stream(member: &Member) {
    let state: &Arc<ConnState> = &member.state;
    state.enter(Stage::Upgraded);
    member.upgrade();
    poll_fn(|cx| {
        if state.is_stream_gone(cx.waker()) {
            return Poll::Ready(());
        }
        match member.take_order(cx) {
            // The owner of the stream finds out by an error, and drops it. The order comes again
            // with the next tick; then this task does not wait for the owner any longer.
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
