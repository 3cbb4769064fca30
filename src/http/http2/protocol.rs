//! Begins HTTP/2 on a stream.

use std::cell::RefCell;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use hyper::rt::Write;
use hyper::server::conn::http2::{Builder, Connection};

use crate::http::http2::budget::ResponseBudget;
use crate::http::http2::hyper_stream::HyperStream;
use crate::http::http2::spawner::Spawner;
use crate::http::http2::streams::{Overdue, StreamService, Streams};
use crate::http::http2::tasks::Tasks;

use crate::http::conn::protocol::{Failure, Protocol};
use crate::http::conn::socket::Socket;
use crate::http::conn::stream::Stream;
use crate::http::exchange::service::Handler;
use crate::http::options::{DateHeader, Http};
use crate::http::registry::list::Registry;
use crate::http::registry::state::{ConnState, Stage};
use crate::http::registry::timeouts::{Deadline, Order};
use crate::http::registry::wheel::Tick;

/// What a stream may send ahead of its handler, and what all streams of a connection may. The
/// first is what one upload has under way in a round trip, the second what a client can make a
/// worker keep for it.
const STREAM_WINDOW: u32 = 256 * 1024;
const CONNECTION_WINDOW: u32 = 1024 * 1024;

/// How many bytes of one stream's response are kept ahead of the client before its body is asked
/// for more.
const SEND_BUFFER: usize = 64 * 1024;

/// Streams that a client opens and resets before they are served, and streams that we reset for
/// its errors: beyond so many it is told to calm down, and the connection ends. The first is for
/// a moment (what comes in one read), the second for the connection's life.
const RESETS_AHEAD: usize = 20;
const RESETS_FOR_ERRORS: usize = 1024;

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
        // The preface is due, be it on its way or to be read once more. It is not for a rest.
        state.enter(Stage::Head);
        let io = Rc::new(RefCell::new(stream));
        let streams = Rc::new(Streams::new(state));
        let spawner = Spawner::new(&streams);
        let budget = Rc::new(ResponseBudget::new(&self.registry));
        let served = StreamService::new(&self.service, &self.registry, &streams, &budget);
        let lent = HyperStream {
            stream: Rc::clone(&io),
            frames: Rc::clone(&budget.frames),
        };
        let connection = builder(&self.registry.http, spawner).serve_connection(lent, served);
        Box::new(HyperConnection {
            connection,
            tasks: Tasks::new(),
            streams,
            budget,
            io,
            registry: Rc::clone(&self.registry),
            state: Arc::clone(state),
            shutdown: Shutdown::NotBegun,
            last_look: self.registry.now(),
        })
    }
}

/// A connection as hyper has it, and what hyper does not keep.
struct HyperConnection<I, S>
where
    StreamService<S>: hyper::service::HttpService<hyper::body::Incoming>,
{
    connection: Connection<HyperStream<I>, StreamService<S>, Spawner>,
    tasks: Tasks,
    streams: Rc<Streams>,
    budget: Rc<ResponseBudget>,
    io: Rc<RefCell<Stream<I>>>,
    registry: Rc<Registry>,
    state: Arc<ConnState>,
    shutdown: Shutdown,
    /// When it last looked for streams that are in the way of others.
    last_look: Tick,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Shutdown {
    NotBegun,
    /// The client was told GOAWAY: what it has begun is finished.
    GoAwaySent,
    /// It does not acknowledge that.
    Unacknowledged,
}

impl<I, S> HyperConnection<I, S>
where
    I: Socket,
    S: Handler,
{
    /// Two rounds: what the handlers answer in the first is sent in the second. What is there to
    /// do after that is done when other connections have had their turn; a handler that wakes
    /// itself would keep this one going for ever.
    fn poll_rounds(&mut self, cx: &mut Context<'_>) -> Poll<hyper::Result<()>> {
        for _ in 0..2 {
            if self.is_to_go() {
                self.go_away();
            }
            if let Poll::Ready(outcome) = Pin::new(&mut self.connection).poll(cx) {
                return Poll::Ready(outcome);
            }
            self.streams.hand_over(&mut self.tasks);
            self.budget.admit();
            if !self.tasks.poll_due(cx) {
                return Poll::Pending;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn note_stage(&self) {
        let open = !self.tasks.is_empty() || self.streams.are_open();
        let stage = match (open, self.shutdown) {
            (true, _) => Stage::Streams,
            // The deadline for the first bytes and for the preface.
            (false, _) if !self.io.borrow().begins_http2() => return,
            (false, Shutdown::NotBegun) => Stage::Quiet,
            (false, Shutdown::GoAwaySent | Shutdown::Unacknowledged) => Stage::Ending,
        };
        if !open {
            self.state.set_streams_wait(None);
        }
        if self.state.stage() != stage {
            self.state.enter(stage);
        }
    }

    /// Whether the client is to be told. Before its first request a client may take the end of a
    /// connection for a failure to connect, and fail the request: Go's does. So in a drain a new
    /// connection has its first request answered, or ends a while later.
    fn is_to_go(&self) -> bool {
        let drains = self.registry.is_draining(&self.state) && self.state.has_requested();
        drains || self.state.ends_after_response()
    }

    /// GOAWAY with the highest number and a PING; once the client has answered that, the number of
    /// its last stream (RFC 9113 6.8). So no request is lost that was on its way.
    fn go_away(&mut self) {
        if self.shutdown == Shutdown::NotBegun {
            self.shutdown = Shutdown::GoAwaySent;
            self.streams.end(self.registry.now());
            Pin::new(&mut self.connection).graceful_shutdown();
        }
    }

    /// The connection ends for a reason of which h2 knows nothing. Where h2 may have written a part
    /// of a frame no other can follow.
    fn say_goaway(&self, reason: h2::Reason) {
        if self.state.write_blocked_since().is_none() {
            let mut io = self.io.borrow_mut();
            io.held()
                .extend_from_slice(&self.budget.frames.goaway(reason));
            io.note_held();
        }
    }

    /// Resets streams that take the room of others and are not taken. One whose handler is done and
    /// whose rest is hyper's stays: see below.
    fn relieve(&mut self, cx: &Context<'_>) {
        let now = self.registry.now();
        if self.last_look == now || !self.budget.is_full() {
            return;
        }
        self.last_look = now;
        let heard = self.budget.frames.heard();
        for stream in self.streams.in_the_way(&self.registry, heard) {
            if self.tasks.drop_of(&stream) {
                let peer = self.state.info().client();
                tracing::debug!(?peer, "stream reset: others wait for its client");
                self.registry.counters.timeout(Deadline::Write);
                cx.waker().wake_by_ref();
            }
        }
    }

    /// Looks for streams whose client takes too long.
    fn look_after_streams(&mut self, cx: &mut Context<'_>) -> Option<Order> {
        let Overdue {
            bodies,
            responses,
            waiting_since,
        } = self.streams.overdue(&self.registry);
        self.state.set_streams_wait(waiting_since);
        for stream in bodies {
            self.registry.counters.timeout(Deadline::Body);
            stream.expire_body().into_iter().for_each(Waker::wake);
        }
        for stream in responses {
            if self.tasks.drop_of(&stream) {
                // Which resets it.
                let peer = self.state.info().client();
                tracing::debug!(?peer, "stream reset: nobody reads it");
                self.registry.counters.timeout(Deadline::Write);
            } else {
                // Its handler is done and the rest of the response is hyper's: there is nothing
                // to reset it by.
                self.go_away();
                let _: Poll<_> = Pin::new(&mut self.connection).poll(cx);
                return Some(Order::Expire(Deadline::Write));
            }
        }
        None
    }
}

impl<I, S> Protocol<I> for HyperConnection<I, S>
where
    I: Socket,
    S: Handler,
{
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        if self.shutdown == Shutdown::Unacknowledged {
            // Within TLS the end has a word of its own.
            let ended = Pin::new(&mut *self.io.borrow_mut()).poll_shutdown(cx);
            return ended.map(|_| Ok(()));
        }
        let Poll::Ready(outcome) = self.poll_rounds(cx) else {
            self.relieve(cx);
            self.note_stage();
            return Poll::Pending;
        };
        if let Err(error) = outcome {
            tracing::debug!(peer = ?self.state.info().client(), %error, "HTTP/2 failed");
        }
        if self.budget.frames.are_too_many() {
            self.say_goaway(h2::Reason::ENHANCE_YOUR_CALM);
        }
        // Whatever it was, the client was told by GOAWAY, and is to read it: it may be sending
        // still, and a reset would take our last frames from it.
        self.state.leave_body_unread();
        Poll::Ready(Ok(()))
    }

    fn follow(&mut self, order: Order, cx: &mut Context<'_>) -> Option<Order> {
        match order {
            Order::Streams => self.look_after_streams(cx),
            Order::Expire(Deadline::Idle) => {
                if !self.registry.is_draining(&self.state) {
                    self.registry.counters.timeout(Deadline::Idle);
                }
                self.go_away();
                self.note_stage();
                None
            }
            Order::Expire(Deadline::Header) if self.shutdown == Shutdown::GoAwaySent => {
                self.shutdown = Shutdown::Unacknowledged;
                None
            }
            Order::Evict => {
                let is_idle = self.tasks.is_empty() && !self.streams.are_open();
                // What has come is to be read first.
                let goes = is_idle && !self.io.borrow().has_unread();
                goes.then(|| {
                    self.say_goaway(h2::Reason::NO_ERROR);
                    order
                })
            }
            // They are about what the connection was before.
            Order::Rest | Order::CloseIdle | Order::EndUpgrade => None,
            Order::Cut | Order::Expire(_) => Some(order),
        }
    }

    fn into_stream(self: Box<Self>) -> Option<Stream<I>> {
        let Self {
            connection,
            tasks,
            streams,
            io,
            ..
        } = *self;
        drop((tasks, streams, connection));
        Rc::into_inner(io).map(RefCell::into_inner)
    }
}

fn builder(http: &Http, spawner: Spawner) -> Builder<Spawner> {
    let mut builder = Builder::new(spawner);
    builder
        .max_concurrent_streams(http.max_concurrent_streams)
        .max_header_list_size(u32::try_from(http.max_header_size).unwrap_or(u32::MAX))
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(SEND_BUFFER)
        .max_pending_accept_reset_streams(RESETS_AHEAD)
        .max_local_error_reset_streams(RESETS_FOR_ERRORS)
        .auto_date_header(http.date_header == DateHeader::Sent);
    builder
}
