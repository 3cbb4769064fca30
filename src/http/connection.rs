//! The life of one connection: hyper's, until it ends or the registry orders otherwise, and then
//! the last words.

use std::error::Error;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http_body::Body as HttpBody;
use hyper::server::conn::http1::{Builder, UpgradeableConnection};
use hyper::service::Service;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::Request;
use super::activity::{Activity, Stage};
use super::registry::Member;
use super::service::Guarded;
use super::socket::Socket;
use super::stream::Stream;
use super::timeouts::{Deadline, Order};

/// What a client is told whose request's head does not come to its end.
const TOO_SLOW: &[u8] =
    b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";

type Protocol<I, S> = UpgradeableConnection<Stream<I>, Guarded<S>>;

/// Serves a connection to its end.
pub(super) async fn live<I, S, B>(
    member: Member,
    http: Rc<Builder>,
    mut stream: Stream<I>,
    service: Guarded<S>,
) where
    I: Socket,
    S: Service<Request, Response = http::Response<B>>,
    S::Error: Into<Box<dyn Error + Send + Sync>>,
    B: HttpBody + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let opened = poll_fn(|cx| {
        if let Poll::Ready(opened) = stream.io().poll_open(cx) {
            return Poll::Ready(Ok(opened));
        }
        member
            .take_order(cx)
            .map_or(Poll::Pending, |order| Poll::Ready(Err(order)))
    });
    match opened.await {
        Ok(Ok(super::socket::Version::Http1)) => {}
        Ok(Err(error)) => {
            tracing::debug!(peer = ?member.peer(), %error, "not opened");
            return;
        }
        Err(order) => return note(order, &member),
    }
    let begin = |stream, service| http.serve_connection(stream, service).with_upgrades();
    let mut protocol: Protocol<I, S> = begin(stream, service);
    loop {
        match poll_fn(|cx| poll_serving(&mut protocol, &member, cx)).await {
            End::Protocol(outcome) => return end(outcome, protocol, &member).await,
            End::Ordered(order @ (Order::Cut | Order::Expire(Deadline::Write))) => {
                // Somebody who does not read will not read our last words either.
                return note(order, &member);
            }
            End::Ordered(order) => {
                let Some(mut parts) = protocol.into_parts() else {
                    return note(order, &member);
                };
                if !is_blank(&parts.read_buf) {
                    note(order, &member);
                    return part(&mut parts.io, TOO_SLOW, &member).await;
                }
                if !order.is_about_silence() || !parts.io.has_unread() {
                    note(order, &member);
                    return finish(&mut parts.io, b"", &member).await;
                }
                // A request was on its way, and has come while others were being closed.
                protocol = begin(parts.io, parts.service);
            }
        }
    }
}

/// The protocol, or the client, has ended the connection.
async fn end<I, S, B>(outcome: hyper::Result<()>, protocol: Protocol<I, S>, member: &Member)
where
    I: Socket,
    S: Service<Request, Response = http::Response<B>>,
    S::Error: Into<Box<dyn Error + Send + Sync>>,
    B: HttpBody + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    match outcome {
        Ok(()) => {
            tracing::debug!(peer = ?member.peer(), "connection ended");
            match protocol.into_parts() {
                None => outlive_upgrade(member).await,
                Some(mut parts) if member.activity.is_body_unread() => {
                    part(&mut parts.io, b"", member).await;
                }
                Some(_) => {}
            }
        }
        Err(error) => {
            tracing::debug!(peer = ?member.peer(), %error, "connection failed");
            let Some(mut parts) = protocol.into_parts() else {
                return;
            };
            if error.is_parse() {
                part(&mut parts.io, b"", member).await;
            } else {
                // No end of file: a response may have broken off. Those before it are whole.
                send(&mut parts.io, b"", member).await;
            }
        }
    }
}

fn note(order: Order, member: &Member) {
    tracing::debug!(peer = ?member.peer(), ?order, "connection closed by us");
    if let Order::Expire(deadline) = order {
        member.registry.counters.timeout(deadline);
    }
}

enum End {
    /// By the protocol, or by the client.
    Protocol(hyper::Result<()>),
    Ordered(Order),
}

fn poll_serving<I, S, B>(
    protocol: &mut Protocol<I, S>,
    member: &Member,
    cx: &mut Context<'_>,
) -> Poll<End>
where
    I: Socket,
    S: Service<Request, Response = http::Response<B>>,
    S::Error: Into<Box<dyn Error + Send + Sync>>,
    B: HttpBody + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let activity = &member.activity;
    if let Poll::Ready(outcome) = Pin::new(protocol).poll(cx) {
        return Poll::Ready(End::Protocol(outcome));
    }
    if activity.holds_back() && activity.write_blocked_since().is_none() {
        // hyper stopped without telling the stream, as it does if the handler of the second of
        // three pipelined requests is pending. A poll with nothing to write flushes; others may go
        // first.
        cx.waker().wake_by_ref();
    }
    // Looked at after hyper had its say: bytes may have come in the same instant as the order.
    match member.take_order(cx) {
        Some(order) => Poll::Ready(End::Ordered(order)),
        None => Poll::Pending,
    }
}

/// Between requests old clients may send a line break or two (RFC 9112 2.2).
fn is_blank(read_ahead: &[u8]) -> bool {
    read_ahead.iter().all(|byte| matches!(byte, b'\r' | b'\n'))
}

/// Parts from a client that may still be sending: says the last words and hears it out.
///
/// close(2) on a socket with unread bytes resets the connection, and a reset takes the answer with
/// it that the client has not read yet: it would never learn of its 413.
async fn part<I>(stream: &mut Stream<I>, words: &[u8], member: &Member)
where
    I: AsyncRead + AsyncWrite + Unpin,
{
    finish(stream, words, member).await;
    let mut bin = [0; 4096];
    poll_fn(|cx| {
        loop {
            if member.take_order(cx).is_some() {
                return Poll::Ready(());
            }
            let mut bin = ReadBuf::new(&mut bin);
            let read = ready!(Pin::new(stream.io()).poll_read(cx, &mut bin));
            if read.is_err() || bin.filled().is_empty() {
                return Poll::Ready(());
            }
        }
    })
    .await;
}

/// Sends the last words and the end of file.
async fn finish<I>(stream: &mut Stream<I>, words: &[u8], member: &Member)
where
    I: AsyncRead + AsyncWrite + Unpin,
{
    send(stream, words, member).await;
    poll_fn(|cx| match member.take_order(cx) {
        Some(_) => Poll::Ready(()),
        // Whoever does not hear it has left.
        None => Pin::new(stream.io()).poll_shutdown(cx).map(drop),
    })
    .await;
}

/// Sends what the stream holds, and then the last words.
async fn send<I>(stream: &mut Stream<I>, words: &[u8], member: &Member)
where
    I: AsyncRead + AsyncWrite + Unpin,
{
    member.activity.enter(Stage::Leaving);
    let mut left = words;
    let outcome: io::Result<()> = poll_fn(|cx| {
        if member.take_order(cx).is_some() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        ready!(stream.poll_send_held(cx))?;
        while !left.is_empty() {
            let sent = ready!(Pin::new(stream.io()).poll_write(cx, left))?;
            left = &left[sent..];
        }
        Poll::Ready(Ok(()))
    })
    .await;
    if let Err(error) = outcome {
        tracing::debug!(peer = ?member.peer(), %error, "client left before our last words");
    }
}

/// Keeps an upgraded connection's place in the registry for as long as its stream lives, so that a
/// drain waits for it and a cut ends it.
async fn outlive_upgrade(member: &Member) {
    let activity: &Arc<Activity> = &member.activity;
    activity.enter(Stage::Upgraded);
    poll_fn(|cx| {
        if activity.is_stream_gone(cx.waker()) {
            return Poll::Ready(());
        }
        match member.take_order(cx) {
            Some(_) => {
                activity.cut();
                Poll::Ready(())
            }
            None => Poll::Pending,
        }
    })
    .await;
}
