//! Serves HTTP/2 on a stream: by hyper, or not at all while the connection rests.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use hyper::rt::Write;

use crate::http::conn::protocol::{Failure, Protocol};
use crate::http::conn::socket::Socket;
use crate::http::conn::stream::Stream;
use crate::http::exchange::service::Handler;
use crate::http::http2::frames::Frames;
use crate::http::http2::hyper_connection::{HyperConnection, Parts, evict, write_goaway};
use crate::http::registry::list::Registry;
use crate::http::registry::state::{ConnState, Stage};
use crate::http::registry::timeouts::Order;

/// Serves connections with one service.
pub(crate) struct Http2<S> {
    registry: Rc<Registry>,
    service: Rc<S>,
}

impl<S> Http2<S> {
    pub(crate) fn new(registry: &Rc<Registry>, service: &Rc<S>) -> Self {
        Self {
            registry: Rc::clone(registry),
            service: Rc::clone(service),
        }
    }

    pub(crate) fn begin<I>(&self, stream: Stream<I>, state: &Arc<ConnState>) -> Box<dyn Protocol<I>>
    where
        I: Socket,
        S: Handler,
    {
        // The connection waits for the preface, which may have been read already. It does not rest.
        state.enter(Stage::Head);
        let parts = Parts {
            registry: Rc::clone(&self.registry),
            service: Rc::clone(&self.service),
            state: Arc::clone(state),
            io: Rc::new(RefCell::new(stream)),
            frames: Rc::new(Frames::new(&self.registry)),
        };
        let hyper = Box::new(HyperConnection::new(&parts));
        Box::new(Http2Connection {
            parts,
            phase: Phase::Served(hyper),
        })
    }
}

/// One connection.
struct Http2Connection<I, S: Handler> {
    parts: Parts<I, S>,
    phase: Phase<I, S>,
}

enum Phase<I, S: Handler> {
    Served(Box<HyperConnection<I, S>>),
    /// The connection has no open stream. No byte of the client has come since the rest began.
    Resting,
}

impl<I, S> Http2Connection<I, S>
where
    I: Socket,
    S: Handler,
{
    /// Gives up hyper's connection, if a new one can take its place later.
    fn try_rest(&mut self) -> Option<Order> {
        if let Phase::Served(hyper) = &self.phase {
            if !hyper.can_be_dropped() {
                return None;
            }
            self.phase = Phase::Resting;
            self.parts.io.borrow_mut().release();
            self.parts.frames.shrink();
        }
        Some(Order::Rest)
    }

    /// Ready when bytes of the client have come, the end of file, or an error.
    fn poll_input(&self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut stream = self.parts.io.borrow_mut();
        match stream.input().len() {
            0 => {
                ready!(stream.poll_readable(cx));
                stream.poll_fill(cx)
            }
            read => Poll::Ready(Ok(read)),
        }
    }

    /// Makes a new hyper connection. `None` if it did not take the place of the old one.
    fn wake(&mut self, cx: &mut Context<'_>) -> Option<&mut HyperConnection<I, S>> {
        let mut hyper = Box::new(HyperConnection::new(&self.parts));
        let is_replayed = hyper.replay(cx);
        self.phase = Phase::Served(hyper);
        match &mut self.phase {
            Phase::Served(hyper) if is_replayed => Some(hyper),
            _ => {
                let peer = self.parts.state.info().client();
                tracing::error!(?peer, "HTTP/2 connection failed after a rest");
                let Parts { io, frames, .. } = &self.parts;
                write_goaway(io, frames, h2::Reason::INTERNAL_ERROR);
                None
            }
        }
    }
}

impl<I, S> Protocol<I> for Http2Connection<I, S>
where
    I: Socket,
    S: Handler,
{
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        let Parts {
            registry,
            state,
            io,
            ..
        } = &self.parts;
        let hyper = match &mut self.phase {
            Phase::Served(hyper) => hyper,
            Phase::Resting => {
                if !registry.must_go_away(state) {
                    match ready!(self.poll_input(cx)) {
                        Ok(0) => {
                            let ended = Pin::new(&mut *io.borrow_mut()).poll_shutdown(cx);
                            return ended.map(|_| Ok(()));
                        }
                        Ok(_) => {}
                        Err(error) => return Poll::Ready(Err(Failure::Stream(error))),
                    }
                }
                match self.wake(cx) {
                    Some(hyper) => hyper,
                    None => {
                        let error = io::Error::other("no new HTTP/2 connection");
                        return Poll::Ready(Err(Failure::Stream(error)));
                    }
                }
            }
        };
        hyper.poll(cx)
    }

    fn poll_wake(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Parts {
            registry, state, ..
        } = &self.parts;
        match registry.must_go_away(state) {
            true => Poll::Ready(()),
            false => self.poll_input(cx).map(drop),
        }
    }

    fn follow(&mut self, order: Order, cx: &mut Context<'_>) -> Option<Order> {
        if order == Order::Rest {
            return self.try_rest();
        }
        if let Phase::Served(hyper) = &mut self.phase {
            return hyper.follow(order, cx);
        }
        match order {
            Order::Evict => evict(&self.parts.io, &self.parts.frames),
            Order::Expire(_) => match self.wake(cx) {
                Some(hyper) => hyper.follow(order, cx),
                None => Some(Order::Cut),
            },
            Order::Cut => Some(order),
            Order::Rest | Order::Streams | Order::CloseIdle | Order::EndUpgrade => None,
        }
    }

    fn into_stream(self: Box<Self>) -> Option<Stream<I>> {
        let Self { parts, phase } = *self;
        drop(phase);
        Rc::into_inner(parts.io).map(RefCell::into_inner)
    }
}
