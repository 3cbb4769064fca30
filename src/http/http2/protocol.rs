//! Serves HTTP/2 on a stream: by hyper, or not at all while the connection rests.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::rt::Write;

use crate::codec;
use crate::http::conn::protocol::{Failure, Protocol};
use crate::http::conn::socket::Socket;
use crate::http::conn::stream::Stream;
use crate::http::http2::client_record::ClientRecord;
use crate::http::http2::frames::Frames;
use crate::http::http2::hyper_connection::{HyperConnection, Parts, evict, write_goaway};
use crate::http::http2::hyper_stream::AnyStream;
use crate::http::http2::response::StreamHandler;
use crate::http::http2::rest::{Over, Rest};
use crate::http::registry::list::Registry;
use crate::http::registry::state::{ConnState, Replay, Stage};
use crate::http::registry::timeouts::{Deadline, Order};

/// Serves connections with one service.
pub(crate) struct Http2 {
    registry: Rc<Registry>,
    service: Rc<dyn StreamHandler>,
}

impl Http2 {
    pub(crate) fn new(registry: &Rc<Registry>, service: Rc<dyn StreamHandler>) -> Self {
        Self {
            registry: Rc::clone(registry),
            service,
        }
    }

    pub(crate) fn begin<I>(&self, stream: Stream<I>, state: &Arc<ConnState>) -> Box<dyn Protocol<I>>
    where
        I: Socket,
    {
        // The connection waits for the preface, which may have been read already. It does not rest.
        state.enter(Stage::Head);
        let (stream, parts) = self.parts(stream, state, Frames::new(&self.registry));
        let hyper = Box::new(HyperConnection::new(&parts));
        Box::new(Http2Connection {
            stream,
            parts,
            phase: Phase::Served(hyper),
        })
    }

    /// As [`StartProtocol::resume`](crate::http::conn::protocol::StartProtocol::resume).
    pub(crate) fn resume<I>(
        &self,
        stream: Stream<I>,
        state: &Arc<ConnState>,
        record: &[u8],
    ) -> Option<Box<dyn Protocol<I>>>
    where
        I: Socket,
    {
        let record: ClientRecord = codec::from_bytes(record).ok()?;
        let frames = Frames::of_record(&self.registry, &record)?;
        if record.has_requested && !state.has_requested() {
            state.count_request();
        }
        state.enter(Stage::Quiet);
        state.set_replay(Replay::Possible);
        let (stream, parts) = self.parts(stream, state, frames);
        let mut rest = Rest::Quiet;
        if !self.registry.http.speaks_http2() || !parts.frames.can_be_replayed() {
            rest.go_away(&parts);
        }
        Some(Box::new(Http2Connection {
            stream,
            parts,
            phase: Phase::Resting(rest),
        }))
    }

    /// The parts of a connection, and its stream, which is in them too.
    fn parts<I: Socket>(
        &self,
        stream: Stream<I>,
        state: &Arc<ConnState>,
        frames: Frames,
    ) -> (Rc<RefCell<Stream<I>>>, Parts) {
        let stream = Rc::new(RefCell::new(stream));
        let io: Rc<RefCell<AnyStream>> = stream.clone();
        let parts = Parts {
            registry: Rc::clone(&self.registry),
            service: Rc::clone(&self.service),
            state: Arc::clone(state),
            io,
            frames: Rc::new(frames),
        };
        (stream, parts)
    }
}

/// One connection.
struct Http2Connection<I> {
    /// The same as in `parts`.
    stream: Rc<RefCell<Stream<I>>>,
    parts: Parts,
    phase: Phase,
}

enum Phase {
    Served(Box<HyperConnection>),
    Resting(Rest),
}

impl<I: Socket> Http2Connection<I> {
    /// Gives up hyper's connection, if a new one can take its place later.
    fn try_rest(&mut self) -> Option<Order> {
        if let Phase::Served(hyper) = &self.phase {
            if !hyper.can_rest() {
                return None;
            }
            self.phase = Phase::Resting(Rest::Quiet);
            self.parts.io.borrow_mut().release();
            self.parts.frames.shrink();
        }
        matches!(self.phase, Phase::Resting(Rest::Quiet)).then_some(Order::Rest)
    }

    /// Makes a new hyper connection, which reads what the client has sent.
    fn wake(&mut self, cx: &mut Context<'_>) -> io::Result<&mut HyperConnection> {
        let mut hyper = Box::new(HyperConnection::new(&self.parts));
        if matches!(self.phase, Phase::Resting(Rest::GoingAway)) {
            // What it sends first is discarded, as all that it sends until the replay is over.
            hyper.go_away();
        }
        let is_replayed = hyper.replay(cx);
        self.phase = Phase::Served(hyper);
        match &mut self.phase {
            Phase::Served(hyper) if is_replayed => Ok(hyper),
            _ => {
                let peer = self.parts.state.info().client();
                tracing::error!(%peer, "HTTP/2 connection failed after a rest");
                let Parts { io, frames, .. } = &self.parts;
                write_goaway(io, frames, h2::Reason::INTERNAL_ERROR);
                Err(io::Error::other("no new HTTP/2 connection"))
            }
        }
    }
}

impl<I: Socket> Protocol<I> for Http2Connection<I> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        let Parts {
            registry,
            state,
            io,
            frames,
            ..
        } = &self.parts;
        let rest = match &mut self.phase {
            Phase::Served(hyper) => return hyper.poll(cx),
            Phase::Resting(rest) => rest,
        };
        if *rest == Rest::Quiet && registry.must_go_away(state) {
            rest.go_away(&self.parts);
        }
        match ready!(rest.poll(&self.parts, cx)) {
            Err(error) => Poll::Ready(Err(Failure::Stream(error))),
            Ok(Over::Closed) => {
                // The end of a TLS stream is a `close_notify`, which is sent here.
                let ended = Pin::new(&mut *io.borrow_mut()).poll_shutdown(cx);
                ended.map(|_| Ok(()))
            }
            Ok(Over::LastGoAway) => {
                write_goaway(io, frames, h2::Reason::NO_ERROR);
                // The client must be able to read it.
                state.leave_body_unread();
                Poll::Ready(Ok(()))
            }
            Ok(Over::Sent) => match self.wake(cx) {
                Ok(hyper) => hyper.poll(cx),
                Err(error) => Poll::Ready(Err(Failure::Stream(error))),
            },
        }
    }

    fn poll_wake(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Parts {
            registry, state, ..
        } = &self.parts;
        match &self.phase {
            Phase::Resting(rest) if !registry.must_go_away(state) => {
                rest.poll(&self.parts, cx).map(drop)
            }
            _ => Poll::Ready(()),
        }
    }

    fn follow(&mut self, order: Order, cx: &mut Context<'_>) -> Option<Order> {
        if order == Order::Rest {
            return self.try_rest();
        }
        let Parts {
            registry, state, ..
        } = &self.parts;
        let rest = match &mut self.phase {
            Phase::Served(hyper) => return hyper.follow(order, cx),
            Phase::Resting(rest) => rest,
        };
        match order {
            Order::Evict => evict(&self.parts.io, &self.parts.frames),
            Order::Expire(Deadline::Idle) => {
                registry.count_idle_end(state);
                rest.go_away(&self.parts);
                None
            }
            Order::Expire(Deadline::Header) if *rest == Rest::GoingAway => {
                *rest = Rest::Unacknowledged;
                None
            }
            Order::Cut | Order::Expire(_) => Some(order),
            Order::Rest | Order::Streams | Order::CloseIdle | Order::EndUpgrade => None,
        }
    }

    fn can_move(&self) -> bool {
        match &self.phase {
            Phase::Served(hyper) => hyper.can_be_dropped(),
            Phase::Resting(rest) => *rest == Rest::Quiet,
        }
    }

    fn client_record(&self) -> Option<Bytes> {
        let Parts { frames, state, .. } = &self.parts;
        let record = frames.record(state.has_requested());
        Some(codec::to_bytes(&record).into())
    }

    fn into_stream(self: Box<Self>) -> Option<Stream<I>> {
        let Self {
            stream,
            parts,
            phase,
        } = *self;
        let Parts { io, frames, .. } = &parts;
        frames.release_new_streams(io.borrow_mut().input());
        drop((parts, phase));
        Rc::into_inner(stream).map(RefCell::into_inner)
    }
}
