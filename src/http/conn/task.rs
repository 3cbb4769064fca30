//! The life of one connection. It opens, and then it is either at rest, which is a socket and
//! nothing else, or in the hands of a protocol. At last somebody takes leave: see [`farewell`].
//!
//! [`farewell`]: crate::http::conn::lingering_close

use std::mem;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::StatusCode;

use crate::http::conn::handover::{Means, Taken};
use crate::http::conn::lingering_close::{
    Farewell, HEAD_TOO_LARGE, Manner, TARGET_TOO_LONG, TOO_SLOW,
};
use crate::http::conn::protocol::{Failure, Protocol};
use crate::http::conn::socket::{Socket, Version};
use crate::http::conn::stream::Stream;
use crate::http::exchange::rules;
use crate::http::registry::drain::Leave;
use crate::http::registry::member::Member;
use crate::http::registry::state::Stage;
use crate::http::registry::timeouts::{Deadline, Order};

/// Serves one connection to its end.
pub(crate) enum Life<I> {
    Lives(Connection<I>),
    Leaves(Pin<Box<dyn Future<Output = ()>>>),
    Over,
}

/// A connection before its farewell.
pub(crate) struct Connection<I> {
    member: Member,
    means: Rc<Means<I>>,
    phase: Phase<I>,
}

enum Phase<I> {
    /// Something comes before HTTP.
    Opening(I),
    /// Not one byte has come since the last answer, or at all.
    AtRest(I),
    Served(Box<dyn Protocol<I>>),
    /// On its way to the heir.
    HandedOver {
        taken: Taken<I>,
        _leave: Leave,
    },
    /// In between.
    Moving,
}

/// What comes after a connection's life: nothing, or a farewell.
type Last<I> = Option<Farewell<I>>;

impl<I: Socket> Life<I> {
    pub(crate) fn new(member: Member, means: Rc<Means<I>>, io: I) -> Self {
        if means.heir.is_some() {
            member.activity.let_leave();
        }
        Self::Lives(Connection {
            member,
            means,
            phase: Phase::Opening(io),
        })
    }
}

impl<I: Socket> Future for Life<I> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        loop {
            let last = match this {
                Self::Lives(connection) => match connection.poll(cx) {
                    Poll::Ready(last) => last,
                    Poll::Pending => return Poll::Pending,
                },
                Self::Leaves(farewell) => match farewell.as_mut().poll(cx) {
                    Poll::Ready(()) => None,
                    Poll::Pending => return Poll::Pending,
                },
                Self::Over => return Poll::Ready(()),
            };
            let Self::Lives(connection) = mem::replace(this, Self::Over) else {
                return Poll::Ready(());
            };
            if let Some(last) = last {
                *this = Self::Leaves(Box::pin(last.say(connection.member)));
            }
        }
    }
}

impl<I: Socket> Connection<I> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Last<I>> {
        loop {
            let outcome = match &mut self.phase {
                Phase::Opening(_) => self.poll_open(cx),
                Phase::AtRest(_) => self.poll_rest(cx),
                Phase::Served(_) => self.poll_served(cx),
                Phase::HandedOver { .. } => self.poll_handed_over(cx),
                Phase::Moving => Poll::Ready(Some(None)),
            };
            match outcome {
                Poll::Ready(None) => {}
                Poll::Ready(Some(last)) => return Poll::Ready(last),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    /// `None` is "go on, in another phase"; as with the next two.
    fn poll_open(&mut self, cx: &mut Context<'_>) -> Poll<Option<Last<I>>> {
        let Phase::Opening(io) = &mut self.phase else {
            return Poll::Ready(None);
        };
        match io.poll_open(cx) {
            Poll::Ready(Ok(version)) => {
                if let Phase::Opening(io) = mem::replace(&mut self.phase, Phase::Moving) {
                    self.member.activity.introduce(io.info());
                    self.member.activity.enter(match io.was_idle() {
                        true => Stage::Idle,
                        false => Stage::Fresh,
                    });
                    self.phase = Phase::AtRest(io);
                }
                if version == Version::Http2 {
                    // The server has something to say before the client has.
                    self.serve(Version::Http2);
                }
                Poll::Ready(None)
            }
            Poll::Ready(Err(error)) => {
                tracing::debug!(%error, "connection did not open");
                Poll::Ready(Some(None))
            }
            Poll::Pending => match self.member.take_order(cx) {
                Some(order) => {
                    tracing::debug!("connection did not open in time");
                    self.member.count(order);
                    Poll::Ready(Some(None))
                }
                None => Poll::Pending,
            },
        }
    }

    fn poll_rest(&mut self, cx: &mut Context<'_>) -> Poll<Option<Last<I>>> {
        if let Some(leave) = self.member.try_leave() {
            self.hand_over(leave);
            return Poll::Ready(None);
        }
        let Phase::AtRest(io) = &mut self.phase else {
            return Poll::Ready(None);
        };
        if io.poll_readable(cx).is_ready() {
            self.serve(Version::Http1);
            return Poll::Ready(None);
        }
        let Some(order) = self.member.take_order(cx) else {
            return Poll::Pending;
        };
        if order.is_about_silence() && io.has_unread() {
            // A request was on its way, and has come while others were being closed.
            self.serve(Version::Http1);
            return Poll::Ready(None);
        }
        let last = match order {
            Order::Rest | Order::Streams | Order::EndUpgrade => return Poll::Ready(None),
            Order::Cut => None,
            Order::CloseIdle | Order::MakeRoom | Order::Expire(_) => {
                self.take_stream().map(Farewell::silent)
            }
        };
        self.member.note(order);
        Poll::Ready(Some(last))
    }

    fn poll_served(&mut self, cx: &mut Context<'_>) -> Poll<Option<Last<I>>> {
        let Phase::Served(protocol) = &mut self.phase else {
            return Poll::Ready(None);
        };
        self.member.activity.settle();
        if let Poll::Ready(outcome) = protocol.poll(cx) {
            return Poll::Ready(self.end(outcome));
        }
        if let Some(leave) = self.member.try_leave() {
            self.hand_over(leave);
            return Poll::Ready(None);
        }
        let activity = &self.member.activity;
        if activity.holds_back() && activity.write_blocked_since().is_none() {
            // hyper stopped without telling the stream, as it does if the handler of the second of
            // three pipelined requests is pending. A poll with nothing to write flushes; others may
            // go first.
            cx.waker().wake_by_ref();
        }
        if activity.is_idle() && !activity.is_settled() {
            // Nobody else may take the rest of a body for a request.
            cx.waker().wake_by_ref();
        }
        // Looked at after hyper had its say: bytes may have come in the same instant as the order.
        let Some(order) = self.member.take_order(cx) else {
            return Poll::Pending;
        };
        Poll::Ready(match protocol.follow(order, cx) {
            Some(order) => self.obey(order),
            None => None,
        })
    }

    /// Whatever comes while it is on its way, waits.
    fn poll_handed_over(&mut self, cx: &mut Context<'_>) -> Poll<Option<Last<I>>> {
        let Phase::HandedOver { taken, .. } = &mut self.phase else {
            return Poll::Ready(None);
        };
        match taken.as_mut().poll(cx) {
            Poll::Ready(Ok(())) => {
                tracing::debug!(peer = ?self.member.peer(), "connection handed over");
                Poll::Ready(Some(None))
            }
            Poll::Ready(Err(io)) => {
                self.member.returns();
                self.phase = Phase::AtRest(io);
                Poll::Ready(None)
            }
            Poll::Pending => match self.member.take_order(cx) {
                Some(order) => {
                    self.member.note(order);
                    Poll::Ready(Some(None))
                }
                None => Poll::Pending,
            },
        }
    }

    /// Gives the idle connection to its heir.
    fn hand_over(&mut self, leave: Leave) {
        let (io, read_ahead) = match mem::replace(&mut self.phase, Phase::Moving) {
            Phase::AtRest(io) => (io, Bytes::new()),
            Phase::Served(protocol) => match protocol.into_stream() {
                Some(stream) => stream.into_parts(),
                None => return,
            },
            other => {
                self.phase = other;
                return;
            }
        };
        if let Some(heir) = &self.means.heir {
            self.member.rest();
            self.member.activity.enter(Stage::HandedOver);
            self.phase = Phase::HandedOver {
                taken: Rc::clone(heir).take(io, read_ahead),
                _leave: leave,
            };
        }
    }

    /// Builds the protocol around a socket on which something has come.
    fn serve(&mut self, version: Version) {
        if let Some(stream) = self.take_stream() {
            self.serve_stream(version, stream);
        }
    }

    fn serve_stream(&mut self, version: Version, stream: Stream<I>) {
        self.member.warm_up();
        let activity = &self.member.activity;
        if version == Version::Http2 {
            // Half of its state is the client's: nobody could take it over.
            activity.stay();
        }
        let protocol = self.means.http.begin(version, stream, activity);
        self.phase = Phase::Served(protocol);
    }

    fn take_stream(&mut self) -> Option<Stream<I>> {
        match mem::replace(&mut self.phase, Phase::Moving) {
            Phase::AtRest(io) => Some(Stream::of_member(&self.member, io)),
            Phase::Served(protocol) => protocol.into_stream(),
            Phase::Opening(_) | Phase::HandedOver { .. } | Phase::Moving => None,
        }
    }

    /// Does what the registry wants of a connection that is served; `None` if it lives on.
    fn obey(&mut self, order: Order) -> Option<Last<I>> {
        if matches!(order, Order::Cut | Order::Expire(Deadline::Write)) {
            // Somebody who does not read will not read our last words either.
            self.member.note(order);
            return Some(None);
        }
        let Some(stream) = self.take_stream() else {
            self.member.note(order);
            return Some(None);
        };
        let is_silent = is_blank(stream.read_ahead());
        if order == Order::Rest {
            if is_silent {
                self.member.rest();
                self.phase = Phase::AtRest(stream.into_parts().0);
            } else {
                self.serve_stream(Version::Http1, stream);
            }
            return None;
        }
        if order.is_about_silence() && is_silent && stream.has_unread() {
            self.serve_stream(Version::Http1, stream);
            return None;
        }
        self.member.note(order);
        if is_silent {
            return Some(Some(Farewell::silent(stream)));
        }
        self.refuse(StatusCode::REQUEST_TIMEOUT);
        Some(Some(Farewell::new(stream, TOO_SLOW, Manner::HearOut)))
    }

    /// The protocol, or the client, has ended the connection; `None` if another protocol goes on.
    fn end(&mut self, outcome: Result<(), Failure>) -> Option<Last<I>> {
        let peer = self.member.peer();
        let activity = &self.member.activity;
        // Where an upgrade was on offer nothing is held back; the stream may be somebody else's.
        let is_over = activity.may_hold() && !activity.is_body_unread() && !activity.holds_back();
        if outcome.is_ok() && is_over {
            // All is said: the stream ends together with what was built around it.
            tracing::debug!(?peer, "connection ended");
            return Some(None);
        }
        let stream = self.take_stream();
        Some(match (outcome, stream) {
            (Ok(()), None) => {
                tracing::debug!(?peer, "connection upgraded");
                Some(Farewell::Upgraded)
            }
            (Ok(()), Some(stream)) => {
                tracing::debug!(?peer, "connection ended");
                let manner = match self.member.activity.is_body_unread() {
                    true => Some(Manner::HearOut),
                    false => self.member.activity.holds_back().then_some(Manner::Finish),
                };
                manner.map(|manner| Farewell::new(stream, b"", manner))
            }
            (Err(error), Some(stream)) if error.is_parse_version_h2() && stream.begins_http2() => {
                self.serve_stream(Version::Http2, stream);
                return None;
            }
            (Err(error), stream) => {
                tracing::debug!(?peer, %error, "connection failed");
                let Some(mut stream) = stream else {
                    return Some(None);
                };
                let mut status = error.status();
                if status == StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE
                    && rules::is_target_long(stream.read_ahead(), &self.member.registry.http)
                {
                    stream.amend(HEAD_TOO_LARGE, TARGET_TOO_LONG);
                    status = StatusCode::URI_TOO_LONG;
                }
                if error.is_parse() && !error.is_parse_version_h2() {
                    self.refuse(status);
                }
                let manner = match error.is_parse() {
                    true => Manner::HearOut,
                    // No end of file: a response may have broken off. Those before it are whole.
                    false => Manner::Send,
                };
                Some(Farewell::new(stream, b"", manner))
            }
        })
    }

    /// Counts and tells an answer to what is no request, so that no service has seen it.
    fn refuse(&self, status: StatusCode) {
        let Member {
            registry, activity, ..
        } = &self.member;
        registry.counters.answer(status);
        registry.http.on_refused.tell(status, activity.info(), None);
    }
}

/// Between requests old clients may send a line break or two (RFC 9112 2.2).
fn is_blank(read_ahead: &[u8]) -> bool {
    read_ahead.iter().all(|byte| matches!(byte, b'\r' | b'\n'))
}
