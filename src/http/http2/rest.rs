//! A connection at rest has no hyper connection. It waits for its client, or it goes away.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::BytesMut;
use hyper::rt::Write;

use crate::http::http2::frames::Frames;
use crate::http::http2::goaway::{first_goaway, ping};
use crate::http::http2::hyper_connection::Parts;
use crate::http::http2::hyper_stream::AnyStream;
use crate::http::http2::scan::{ACK, FRAME_HEADER, PING, control_frame};
use crate::http::registry::state::Stage;

/// A connection without an open stream. A drain makes all connections go away at once, and hyper
/// would need ten times the memory of each.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rest {
    /// No byte of the client has come since the rest began.
    Quiet,
    /// The server has sent GOAWAY with the highest stream number, and a PING.
    GoingAway,
    /// The client does not acknowledge the PING.
    Unacknowledged,
}

/// How a rest is over.
pub(crate) enum Over {
    /// hyper must read what the client has sent.
    Sent,
    /// The client has read GOAWAY, and has sent no request with the acknowledgement. After it, the
    /// client opens no stream. Or it does not acknowledge.
    LastGoAway,
    /// The client has closed.
    Closed,
}

impl Rest {
    /// Sends what h2 sends first when a connection goes away.
    pub(crate) fn go_away(&mut self, parts: &Parts) {
        *self = Self::GoingAway;
        parts.state.enter(Stage::Ending);
        parts.io.borrow_mut().hold(first_goaway().as_flattened());
    }

    /// Ready when the rest is over.
    pub(crate) fn poll(self, parts: &Parts, cx: &mut Context<'_>) -> Poll<io::Result<Over>> {
        let mut stream = parts.io.borrow_mut();
        match self {
            Self::Quiet => {}
            Self::GoingAway => ready!(Pin::new(&mut *stream).poll_flush(cx))?,
            Self::Unacknowledged => return Poll::Ready(Ok(Over::LastGoAway)),
        }
        loop {
            if self == Self::Quiet {
                acknowledge_ping(&mut stream, &parts.frames, cx)?;
                // hyper's connection sends the acknowledgement when the client takes bytes.
                if stream.is_write_blocked() {
                    return Poll::Ready(Ok(Over::Sent));
                }
            }
            if let Some(over) = self.over(stream.input()) {
                return Poll::Ready(Ok(over));
            }
            ready!(stream.poll_readable(cx));
            if ready!(stream.poll_fill(cx))? == 0 {
                return Poll::Ready(Ok(Over::Closed));
            }
        }
    }

    /// What these bytes of the client say.
    fn over(self, bytes: &[u8]) -> Option<Over> {
        let acknowledgement = ping(ACK);
        let goes_away = self == Self::GoingAway;
        if goes_away && bytes == acknowledgement {
            return Some(Over::LastGoAway);
        }
        let may_acknowledge = goes_away && acknowledgement.starts_with(bytes);
        (!bytes.is_empty() && !may_acknowledge).then_some(Over::Sent)
    }
}

/// Acknowledges a PING that has come alone, as h2 would. Many clients keep idle connections open by
/// PINGs, and a new hyper connection for each would cost five times as much. If the acknowledgement
/// cannot be sent at once, the stream holds it.
fn acknowledge_ping(
    stream: &mut AnyStream,
    frames: &Frames,
    cx: &mut Context<'_>,
) -> io::Result<()> {
    let Some(acknowledgement) = acknowledgement_of(stream.input()) else {
        return Ok(());
    };
    frames.read(stream.input());
    if frames.credits.are_exceeded() {
        // hyper's connection sends GOAWAY.
        return Ok(());
    }
    *stream.input() = BytesMut::new();
    stream.hold(&acknowledgement);
    if let Poll::Ready(sent) = Pin::new(&mut *stream).poll_flush(cx) {
        sent?;
        stream.release();
    }
    Ok(())
}

/// The acknowledgement, if these bytes are a PING and nothing else.
fn acknowledgement_of(bytes: &[u8]) -> Option<[u8; FRAME_HEADER + 8]> {
    let payload = bytes.get(FRAME_HEADER..)?.try_into().ok()?;
    (bytes == control_frame(PING, 0, payload)).then(|| control_frame(PING, ACK, payload))
}
