//! The task of one connection. First the connection opens. Then it rests, or a protocol serves it.
//! At rest it needs only the socket and this task, and in HTTP/2 the state of the client. At the
//! end [`LingeringClose`] closes it.

use std::mem;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::BytesMut;
use http::StatusCode;

use crate::http::conn::handover::{HandoverFuture, Shared};
use crate::http::conn::lingering_close::{
    CloseMode, HEAD_TOO_LARGE, LingeringClose, TARGET_TOO_LONG, too_slow,
};
use crate::http::conn::protocol::{Failure, Protocol};
use crate::http::conn::socket::{Socket, Version};
use crate::http::conn::stream::Stream;
use crate::http::exchange::rules;
use crate::http::registry::drain::HandoverPermit;
use crate::http::registry::member::Member;
use crate::http::registry::request_ids::RequestIds;
use crate::http::registry::state::Stage;
use crate::http::registry::timeouts::{Deadline, Order};
use crate::moved::Moved;

/// The end of a response without a body.
const END: &[u8] = b"\r\n\r\n";

/// Serves one connection to its end.
pub(crate) enum ConnectionTask<I> {
    Open(OpenConnection<I>),
    Closing(Pin<Box<dyn Future<Output = ()>>>),
    Done,
}

/// A connection that is not closing yet.
pub(crate) struct OpenConnection<I> {
    member: Member,
    shared: Rc<Shared<I>>,
    phase: Phase<I>,
}

enum Phase<I> {
    /// What comes before HTTP is under way, such as a TLS handshake.
    Opening(I),
    /// No byte has come since the last response, or since the connection opened.
    Resting(I),
    Serving(Box<dyn Protocol<I>>),
    /// An HTTP/2 connection rests: the protocol keeps the socket and what it knows of the client.
    RestingHttp2(Box<dyn Protocol<I>>),
    /// On its way to another server.
    HandingOver {
        future: HandoverFuture<I>,
        _permit: HandoverPermit,
    },
    /// Placeholder while the phase changes.
    Moving,
}

/// How a connection ends: at once, or by a lingering close.
type Ending<I> = Option<LingeringClose<I>>;

impl<I: Socket> ConnectionTask<I> {
    pub(crate) fn new(member: Member, shared: Rc<Shared<I>>, io: I) -> Self {
        Self::Open(OpenConnection {
            member,
            shared,
            phase: Phase::Opening(io),
        })
    }
}

impl<I: Socket> Future for ConnectionTask<I> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        loop {
            let ending = match this {
                Self::Open(connection) => match connection.poll(cx) {
                    Poll::Ready(ending) => ending,
                    Poll::Pending => return Poll::Pending,
                },
                Self::Closing(lingering_close) => match lingering_close.as_mut().poll(cx) {
                    Poll::Ready(()) => None,
                    Poll::Pending => return Poll::Pending,
                },
                Self::Done => return Poll::Ready(()),
            };
            let Self::Open(connection) = mem::replace(this, Self::Done) else {
                return Poll::Ready(());
            };
            if let Some(ending) = ending {
                *this = Self::Closing(Box::pin(ending.run(connection.member)));
            }
        }
    }
}

impl<I: Socket> OpenConnection<I> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Ending<I>> {
        loop {
            let outcome = match &mut self.phase {
                Phase::Opening(_) => self.poll_open(cx),
                Phase::Resting(_) => self.poll_rest(cx),
                Phase::Serving(_) => self.poll_served(cx),
                Phase::RestingHttp2(_) => self.poll_rest_of_http2(cx),
                Phase::HandingOver { .. } => self.poll_hand_over(cx),
                Phase::Moving => Poll::Ready(Some(None)),
            };
            match outcome {
                Poll::Ready(None) => {}
                Poll::Ready(Some(ending)) => return Poll::Ready(ending),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    /// `None` means that the connection goes on in another phase; as in the next three functions.
    fn poll_open(&mut self, cx: &mut Context<'_>) -> Poll<Option<Ending<I>>> {
        let Phase::Opening(io) = &mut self.phase else {
            return Poll::Ready(None);
        };
        match io.poll_open(cx) {
            Poll::Ready(Ok(version)) => {
                if let Phase::Opening(io) = mem::replace(&mut self.phase, Phase::Moving) {
                    self.member.state.set_info(io.info());
                    if self.shared.target.is_some() {
                        self.member.state.allow_handover();
                    }
                    if io.was_idle() {
                        return self.go_on(io);
                    }
                    self.member.state.enter(Stage::Fresh);
                    self.phase = Phase::Resting(io);
                }
                if version == Version::Http2 {
                    // An HTTP/2 server does not wait for the client before it sends its settings.
                    self.serve(Version::Http2, None);
                }
                Poll::Ready(None)
            }
            Poll::Ready(Err(error)) => {
                tracing::debug!(%error, "connection did not open");
                Poll::Ready(Some(None))
            }
            Poll::Pending => {
                self.member.opens(io.open_stage());
                match self.member.take_order(cx) {
                    // The next poll reads what has come.
                    Some(order) if order.is_void_after_input() && io.has_unread() => Poll::Pending,
                    Some(order) => {
                        tracing::debug!(?order, "connection did not open in time");
                        self.member.count(order);
                        Poll::Ready(Some(None))
                    }
                    None => Poll::Pending,
                }
            }
        }
    }

    /// Goes on where another server was, or where this one was before a hand-over failed.
    fn go_on(&mut self, mut io: I) -> Poll<Option<Ending<I>>> {
        self.member.state.enter(Stage::Idle);
        self.phase = match io.take_http2() {
            None => Phase::Resting(io),
            Some(moved) => match self.resume(io, moved) {
                Some(protocol) => Phase::RestingHttp2(protocol),
                None => return Poll::Ready(Some(None)),
            },
        };
        // The protocol may have entered another stage.
        self.member.rest();
        Poll::Ready(None)
    }

    fn resume(&self, io: I, moved: Moved) -> Option<Box<dyn Protocol<I>>> {
        let Moved {
            http2, read_ahead, ..
        } = moved;
        let stream = Stream::of_http2(&self.member, io, read_ahead);
        let record = http2.unwrap_or_default();
        let protocol = self.shared.http.resume(stream, &self.member.state, &record);
        if protocol.is_none() {
            let peer = self.member.peer();
            tracing::error!(
                %peer,
                "HTTP/2 connection handed over without a valid record; closed"
            );
        }
        protocol
    }

    fn poll_rest(&mut self, cx: &mut Context<'_>) -> Poll<Option<Ending<I>>> {
        if let Some(permit) = self.member.try_hand_over(|| true) {
            self.hand_over(permit);
            return Poll::Ready(None);
        }
        let Phase::Resting(io) = &mut self.phase else {
            return Poll::Ready(None);
        };
        let mut first = None;
        io.read_first(|bytes| {
            let mut input = self.member.registry.inputs.take();
            input.extend_from_slice(bytes);
            first = Some(input);
        });
        if first.is_some() || io.poll_readable(cx).is_ready() {
            self.serve(Version::Http1, first);
            return Poll::Ready(None);
        }
        let Some(order) = self.member.take_order(cx) else {
            return Poll::Pending;
        };
        if order.is_void_after_input() && io.has_unread() {
            // A request arrived while other connections were being closed.
            self.serve(Version::Http1, None);
            return Poll::Ready(None);
        }
        let ending = match order {
            Order::Rest | Order::Streams | Order::EndUpgrade => return Poll::Ready(None),
            Order::Cut => None,
            Order::CloseIdle | Order::Evict | Order::Expire(_) => {
                self.take_stream().map(LingeringClose::silent)
            }
        };
        self.member.note(order);
        Poll::Ready(Some(ending))
    }

    fn poll_served(&mut self, cx: &mut Context<'_>) -> Poll<Option<Ending<I>>> {
        let Phase::Serving(protocol) = &mut self.phase else {
            return Poll::Ready(None);
        };
        self.member.state.clear_leftover();
        if let Poll::Ready(outcome) = self.member.measured(|| protocol.poll(cx)) {
            return Poll::Ready(self.end(outcome));
        }
        if let Some(permit) = self.member.try_hand_over(|| protocol.can_move()) {
            self.hand_over(permit);
            return Poll::Ready(None);
        }
        let state = &self.member.state;
        if state.holds_back() && state.write_blocked_since().is_none() {
            // hyper stopped without a flush. It does so if the handler of the second of three
            // pipelined requests is pending. The next poll has nothing to write, so it flushes.
            // Other tasks are polled before that.
            cx.waker().wake_by_ref();
        }
        if state.is_idle() && !state.has_no_leftover() {
            // Poll hyper again: it must read the rest of the body before anything else reads from
            // the stream.
            cx.waker().wake_by_ref();
        }
        // The task takes the order after it has polled hyper: bytes may have come at the same time
        // as the order.
        let Some(order) = self.member.take_order(cx) else {
            return Poll::Pending;
        };
        Poll::Ready(match protocol.follow(order, cx) {
            Some(order) => self.apply(order),
            None => None,
        })
    }

    /// Each order makes the connection served first.
    fn poll_rest_of_http2(&mut self, cx: &mut Context<'_>) -> Poll<Option<Ending<I>>> {
        let Phase::RestingHttp2(protocol) = &mut self.phase else {
            return Poll::Ready(None);
        };
        if let Some(permit) = self.member.try_hand_over(|| protocol.can_move()) {
            self.hand_over(permit);
            return Poll::Ready(None);
        }
        let order = match protocol.poll_wake(cx) {
            Poll::Ready(()) => None,
            Poll::Pending => match self.member.take_order(cx) {
                Some(order) => Some(order),
                None => return Poll::Pending,
            },
        };
        self.member.activate();
        let left = order.and_then(|order| protocol.follow(order, cx));
        if let Phase::RestingHttp2(protocol) = mem::replace(&mut self.phase, Phase::Moving) {
            self.phase = Phase::Serving(protocol);
        }
        Poll::Ready(left.and_then(|order| self.apply(order)))
    }

    /// Bytes that come during the hand-over wait in the kernel.
    fn poll_hand_over(&mut self, cx: &mut Context<'_>) -> Poll<Option<Ending<I>>> {
        let Phase::HandingOver { future, .. } = &mut self.phase else {
            return Poll::Ready(None);
        };
        match future.as_mut().poll(cx) {
            Poll::Ready(Ok(())) => {
                tracing::debug!(peer = ?self.member.peer(), "connection handed over");
                Poll::Ready(Some(None))
            }
            Poll::Ready(Err(io)) => {
                self.member.handover_failed();
                self.go_on(io)
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

    /// Gives the idle connection to the other server.
    fn hand_over(&mut self, permit: HandoverPermit) {
        let (io, moved) = match mem::replace(&mut self.phase, Phase::Moving) {
            Phase::Resting(io) => (io, Moved::default()),
            Phase::Serving(protocol) | Phase::RestingHttp2(protocol) => {
                let http2 = protocol.client_record();
                let Some(stream) = protocol.into_stream() else {
                    return;
                };
                let (io, read_ahead) = stream.into_parts();
                let moved = Moved {
                    tls: None,
                    http2,
                    read_ahead,
                };
                (io, moved)
            }
            other => {
                self.phase = other;
                return;
            }
        };
        if let Some(target) = &self.shared.target {
            self.member.rest();
            self.member.state.enter(Stage::HandedOver);
            self.phase = Phase::HandingOver {
                future: Rc::clone(target).hand_over(io, moved),
                _permit: permit,
            };
        }
    }

    /// Starts a protocol on the socket of a connection that rests, with the first bytes if they
    /// were read.
    fn serve(&mut self, version: Version, first: Option<BytesMut>) {
        if let Some(mut stream) = self.take_stream() {
            if let Some(input) = first {
                stream.begin_with(input);
            }
            self.serve_stream(version, stream);
        }
    }

    fn serve_stream(&mut self, version: Version, stream: Stream<I>) {
        self.member.activate();
        let state = &self.member.state;
        let protocol = self.shared.http.start(version, stream, state);
        self.phase = Phase::Serving(protocol);
    }

    fn take_stream(&mut self) -> Option<Stream<I>> {
        match mem::replace(&mut self.phase, Phase::Moving) {
            Phase::Resting(io) => Some(Stream::of_member(&self.member, io)),
            Phase::Serving(protocol) | Phase::RestingHttp2(protocol) => protocol.into_stream(),
            Phase::Opening(_) | Phase::HandingOver { .. } | Phase::Moving => None,
        }
    }

    /// Carries out an order on a connection that is served. `None` if the connection goes on.
    fn apply(&mut self, order: Order) -> Option<Ending<I>> {
        if matches!(order, Order::Cut | Order::Expire(Deadline::Write)) {
            // A client that does not read would not read a last response either.
            self.member.note(order);
            return Some(None);
        }
        if order == Order::Rest && self.member.state.stage() == Stage::Quiet {
            self.member.rest();
            self.phase = match mem::replace(&mut self.phase, Phase::Moving) {
                Phase::Serving(protocol) => Phase::RestingHttp2(protocol),
                other => other,
            };
            return None;
        }
        let Some(mut stream) = self.take_stream() else {
            self.member.note(order);
            return Some(None);
        };
        let is_between_requests = stream.is_between_requests();
        if order == Order::Rest && is_between_requests {
            self.member.rest();
            self.phase = Phase::Resting(stream.into_parts().0);
            return None;
        }
        let is_void = order.is_void_after_input()
            && !stream.begins_http2()
            && (!is_between_requests || stream.has_unread());
        if order == Order::Rest || is_void {
            if !is_between_requests {
                // They came in one read with the request before.
                self.member.state.has_read();
            }
            self.serve_stream(Version::Http1, stream);
            return None;
        }
        self.member.note(order);
        // An HTTP/2 client has been sent GOAWAY. One of HTTP/1 may have its last response.
        let is_told = stream.begins_http2() || self.member.state.stage() == Stage::Closing;
        if is_between_requests || is_told {
            return Some(Some(LingeringClose::silent(stream)));
        }
        stream.hold(&too_slow(self.member.registry.http.date_header));
        if let Some(id) = self.refuse(StatusCode::REQUEST_TIMEOUT) {
            stream.amend(END, &[&id, END].concat());
        }
        Some(Some(LingeringClose::new(stream, CloseMode::Linger)))
    }

    /// The protocol or the client has ended the connection. `None` if another protocol goes on.
    fn end(&mut self, outcome: Result<(), Failure>) -> Option<Ending<I>> {
        let peer = self.member.peer();
        let stream = self.take_stream();
        Some(match (outcome, stream) {
            (Ok(()), None) => {
                tracing::debug!(?peer, "connection upgraded");
                Some(LingeringClose::Upgraded)
            }
            (Ok(()), Some(stream)) => {
                tracing::debug!(?peer, "connection ended");
                let state = &self.member.state;
                let mode = match state.is_body_unread() || stream.must_linger() {
                    true => Some(CloseMode::Linger),
                    // If nothing is left to send, the stream ends when it is dropped.
                    false => state.holds_back().then_some(CloseMode::SendAndShutdown),
                };
                mode.map(|mode| LingeringClose::new(stream, mode))
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
                    && rules::is_target_long(stream.input(), &self.member.registry.http)
                {
                    stream.amend(HEAD_TOO_LARGE, TARGET_TOO_LONG);
                    status = StatusCode::URI_TOO_LONG;
                }
                if error.is_parse()
                    && !error.is_parse_version_h2()
                    && let Some(id) = self.refuse(status)
                {
                    stream.amend(END, &[&id, END].concat());
                }
                let mode = match error.is_parse() {
                    true => CloseMode::Linger,
                    // No end of file: the last response may be incomplete. The ones before it are
                    // complete.
                    false => CloseMode::SendOnly,
                };
                Some(LingeringClose::new(stream, mode))
            }
        })
    }

    /// Counts and reports a response to bytes that are no request and so reach no service. Returns
    /// the end of its last field and the field with its id, if requests have ids.
    fn refuse(&self, status: StatusCode) -> Option<Vec<u8>> {
        let Member {
            registry, state, ..
        } = &self.member;
        registry.counters.count_response(status);
        let id = registry.request_ids.as_ref().map(RequestIds::make);
        let on_refused = &registry.http.on_refused;
        on_refused.report(status, state.info(), None, id.as_ref());
        Some([b"\r\nx-request-id: ", id?.as_bytes()].concat())
    }
}
