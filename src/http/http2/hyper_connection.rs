//! hyper's HTTP/2 connection, with the tasks and states of its streams.

use std::cell::RefCell;
use std::mem;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use hyper::server::conn::http2::{Builder, Connection};

use crate::http::http2::announced::Announced;
use crate::http::http2::budget::ResponseBudget;
use crate::http::http2::frames::Frames;
use crate::http::http2::goaway::first_goaway;
use crate::http::http2::hyper_stream::{AnyStream, HyperStream};
use crate::http::http2::response::StreamHandler;
use crate::http::http2::spawner::Spawner;
use crate::http::http2::streams::{Overdue, StreamService, Streams, Tunnels};
use crate::http::http2::tasks::Tasks;

use crate::http::conn::protocol::Failure;
use crate::http::conn::stream::Gathers;
use crate::http::options::{DateHeader, Http};
use crate::http::registry::list::Registry;
use crate::http::registry::state::{ConnState, Replay, Stage};
use crate::http::registry::timeouts::{Deadline, Order};
use crate::http::registry::wheel::Tick;

/// The bytes of one stream's response that hyper buffers before it polls the body again.
const SEND_BUFFER: usize = 64 * 1024;

/// Limit for the streams in one read that a client opens and resets before they are served. Beyond
/// it the connection ends with ENHANCE_YOUR_CALM.
const RESETS_AHEAD: usize = 20;

/// hyper reads a replay in one round and discards its last stream in the next one. If there is a
/// response to it, its head and its body take a round each, and the settings after it another one.
const REPLAY_ROUNDS: usize = 10;

/// The parts of a connection that stay while it rests.
pub(crate) struct Parts {
    pub(crate) registry: Rc<Registry>,
    pub(crate) service: Rc<dyn StreamHandler>,
    pub(crate) state: Arc<ConnState>,
    pub(crate) io: Rc<RefCell<AnyStream>>,
    pub(crate) frames: Rc<Frames>,
}

/// hyper's connection, with the tasks and states of its streams.
pub(crate) struct HyperConnection {
    connection: Connection<HyperStream, StreamService, Spawner>,
    tasks: Tasks,
    streams: Rc<Streams>,
    budget: Rc<ResponseBudget>,
    io: Rc<RefCell<AnyStream>>,
    registry: Rc<Registry>,
    state: Arc<ConnState>,
    shutdown: Shutdown,
    work: Work,
    /// How many requests had begun when the stage was noted last.
    noted_requests: u32,
    /// When the connection was last searched for streams that block others.
    last_search: Tick,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Shutdown {
    NotBegun,
    /// The server has sent GOAWAY, and finishes the streams that are open.
    GoAwaySent,
    /// The client does not acknowledge the GOAWAY.
    Unacknowledged,
}

/// Whether hyper or a handler can go on without an event.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Work {
    Left,
    Done,
}

impl HyperConnection {
    pub(crate) fn new(parts: &Parts) -> Self {
        let Parts {
            registry,
            service,
            state,
            io,
            frames,
        } = parts;
        let streams = Rc::new(Streams::new(state));
        let spawner = Spawner::new(&streams);
        let budget = Rc::new(ResponseBudget::new(registry, frames));
        let served = StreamService::new(service, registry, &streams, &budget);
        let lent = HyperStream::new(io, &budget);
        Self {
            connection: builder(&registry.http, frames.announced(), spawner)
                .serve_connection(lent, served),
            tasks: Tasks::new(),
            streams,
            budget,
            io: Rc::clone(io),
            registry: Rc::clone(registry),
            state: Arc::clone(state),
            shutdown: Shutdown::NotBegun,
            work: Work::Left,
            noted_requests: state.requests(),
            last_search: registry.now(),
        }
    }

    /// Has hyper read what the client would send that begins a connection in its present state.
    /// Returns whether the client's next bytes can follow.
    pub(crate) fn replay(&mut self, cx: &mut Context<'_>) -> bool {
        let frames = &self.budget.frames;
        frames.begin_replay();
        for _ in 0..REPLAY_ROUNDS {
            if Pin::new(&mut self.connection).poll(cx).is_ready() {
                break;
            }
            self.streams.move_spawned(&mut self.tasks);
            if !self.tasks.poll_due(cx) && !frames.continue_replay() {
                let Some(granted) = frames.end_replay() else {
                    return false;
                };
                self.io.borrow_mut().hold(&granted);
                return true;
            }
        }
        false
    }

    /// Whether nothing is lost if this connection is dropped and a new one reads a replay, here or
    /// in another server.
    pub(crate) fn can_be_dropped(&self) -> bool {
        self.work == Work::Done
            && self.shutdown == Shutdown::NotBegun
            && !self.registry.must_go_away(&self.state)
            && !self.has_streams()
            && self.streams.tunnels() == Tunnels::None
            && self.state.is_quiet()
            && self.budget.frames.can_be_replayed()
    }

    /// A client that sent something in the last second may send more, such as a PING now and then.
    pub(crate) fn can_rest(&self) -> bool {
        self.io.borrow_mut().input().is_empty()
            && !self.budget.frames.new_streams_wait()
            && (self.registry).is_second_over(self.budget.frames.last_read())
            && self.can_be_dropped()
    }

    /// While the connection is to move and streams are open, new ones wait, so that a moment comes
    /// in which none is open.
    fn prepare_to_move(&self) {
        let are_long = || self.streams.are_long(&self.registry);
        if self.registry.must_stay(&self.state, are_long) {
            self.state.forbid_handover();
        }
        // The last stream may have ended since then. But the connection could not move yet.
        let were_open = self.state.stage() == Stage::Streams;
        let frames = &self.budget.frames;
        let is_unsent = self.work == Work::Left || !self.state.is_quiet();
        let wait = self.shutdown == Shutdown::NotBegun
            && self.registry.moves_since(&self.state).is_some()
            && (were_open || (frames.new_streams_wait() && is_unsent));
        match wait {
            true => {
                frames.hold_new_streams();
                self.add_frames();
            }
            false => frames.release_new_streams(self.io.borrow_mut().input()),
        }
    }

    /// In a reload GOAWAY leaves together with the last response. Many clients fail requests that
    /// are open when it comes.
    fn poll_to_last_response(&mut self, cx: &mut Context<'_>) -> Poll<hyper::Result<()>> {
        let ends = self.shutdown == Shutdown::NotBegun && self.registry.ends_soon(&self.state);
        self.io.borrow_mut().set_gathers(match ends {
            true => Gathers::All,
            false => Gathers::Pipelined,
        });
        let polled = self.poll_rounds(cx);
        let has_responded =
            self.state.stage() == Stage::Streams || self.state.requests() != self.noted_requests;
        if ends && has_responded && !self.has_streams() && polled.is_pending() {
            self.go_away();
            let polled = Pin::new(&mut self.connection).poll(cx);
            // A client may take GOAWAY for the end: the module h2 of Python fails what comes later.
            let mut frames = first_goaway();
            let written = frames.concat();
            frames.reverse();
            self.io.borrow_mut().amend(&written, frames.as_flattened());
            return polled;
        }
        polled
    }

    /// Polls hyper and the handlers twice: the second round sends the responses of the first. Then
    /// it yields to other connections. A loop without a limit would never end with a handler that
    /// wakes itself.
    fn poll_rounds(&mut self, cx: &mut Context<'_>) -> Poll<hyper::Result<()>> {
        self.prepare_to_move();
        self.work = Work::Left;
        for _ in 0..2 {
            if self.registry.must_go_away(&self.state) {
                self.go_away();
            }
            self.budget.frames.begin_round();
            if let Poll::Ready(outcome) = Pin::new(&mut self.connection).poll(cx) {
                return Poll::Ready(outcome);
            }
            self.streams.move_spawned(&mut self.tasks);
            self.budget.admit();
            let any_due = self.tasks.poll_due(cx) | self.look_after_kept(cx);
            if !any_due && !self.releases_acknowledgement() {
                self.work = Work::Done;
                return Poll::Pending;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// The rests of requests are in the way if the connection is to move or to end.
    fn look_after_kept(&self, cx: &mut Context<'_>) -> bool {
        let must_end = self.shutdown != Shutdown::NotBegun
            || self.registry.is_draining(&self.state)
            || self.registry.moves_since(&self.state).is_some();
        match must_end {
            true => self.streams.kept.clear(),
            false => self.streams.kept.discard(&self.registry, cx),
        }
    }

    /// While streams are open, h2 does not need the acknowledgement of its PING. A request that the
    /// client had begun before it read GOAWAY may follow the acknowledgement: a Go client whose
    /// uploads fill the connection often sends one.
    fn releases_acknowledgement(&self) -> bool {
        let is_needed = || !self.has_streams() || self.streams.are_over(&self.registry);
        self.budget.frames.release_acknowledgement(is_needed)
    }

    fn has_streams(&self) -> bool {
        // When the server has ended its half of a tunnel, only the handler still has the stream.
        let may_be_tunnelled = || self.budget.frames.have_uploads();
        !self.tasks.is_empty()
            || self.streams.are_open()
            || (self.streams.tunnels() == Tunnels::Some && may_be_tunnelled())
    }

    /// New streams wait. They need not if the connection does not move now, or cannot.
    fn look_at_waiting(&self, cx: &Context<'_>) {
        let is_full = self.budget.frames.are_full(self.io.borrow_mut().input());
        let is_stuck = is_full && self.state.stage() == Stage::Streams;
        if is_stuck {
            // What open streams need to end cannot come in any more.
            self.state.forbid_handover();
        }
        if is_stuck || self.state.is_quiet() {
            cx.waker().wake_by_ref();
        }
    }

    /// Adds the server's own frames to those that h2 has written.
    fn add_frames(&self) {
        let added = self.budget.frames.take_added();
        if !added.is_empty() {
            self.io.borrow_mut().hold(&added);
        }
    }

    fn note_stage(&mut self) {
        // The stream may hold the end of the last response. It has the write timeout.
        let open = self.has_streams() || self.state.write_blocked_since().is_some();
        let stage = match (open, self.shutdown) {
            (true, _) => Stage::Streams,
            // The deadline for the first bytes and for the preface stays.
            (false, _) if !self.io.borrow().begins_http2() => return,
            (false, Shutdown::NotBegun) => Stage::Quiet,
            (false, Shutdown::GoAwaySent | Shutdown::Unacknowledged) => Stage::Ending,
        };
        if !open {
            self.state.set_streams_wait(None);
        }
        // A request may begin and end in one poll. Then the idle time begins again.
        let requests = mem::replace(&mut self.noted_requests, self.state.requests());
        if self.state.stage() != stage || self.noted_requests != requests {
            self.state.enter(stage);
        }
        if stage == Stage::Quiet {
            self.state
                .set_replay(match self.budget.frames.can_be_replayed() {
                    true => Replay::Possible,
                    false => Replay::Impossible,
                });
        }
    }

    /// Sends GOAWAY with the highest stream number and a PING. When the client has acknowledged the
    /// PING, h2 sends GOAWAY with the number of the client's last stream (RFC 9113 6.8). So a
    /// request that the client has already sent is not lost.
    pub(crate) fn go_away(&mut self) {
        if self.shutdown == Shutdown::NotBegun {
            self.shutdown = Shutdown::GoAwaySent;
            self.streams.end(self.registry.now());
            let frames = &self.budget.frames;
            frames.release_new_streams(self.io.borrow_mut().input());
            frames.go_away();
            Pin::new(&mut self.connection).graceful_shutdown();
        }
    }

    /// Resets streams whose response the client does not take while other responses of the
    /// connection wait. A stream whose handler has ended stays, because only hyper has the rest of
    /// its response and no task is left to drop.
    fn reset_blocking(&mut self, cx: &Context<'_>) {
        let now = self.registry.now();
        if self.last_search == now || !self.budget.is_full() {
            return;
        }
        self.last_search = now;
        let last_read = self.budget.frames.last_read();
        for stream in self.streams.blocking(&self.registry, last_read) {
            if self.tasks.drop_of(&stream) {
                let peer = self.state.info().client();
                tracing::debug!(?peer, "stream reset: other streams wait for its client");
                self.registry.counters.timeout(Deadline::Write);
                cx.waker().wake_by_ref();
            }
        }
    }

    /// Ends the streams whose client takes too long.
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
                // hyper resets the stream when its task is dropped.
                let peer = self.state.info().client();
                tracing::debug!(?peer, "stream reset: the client does not read it");
                self.registry.counters.timeout(Deadline::Write);
            } else {
                // The handler has ended and only hyper has the rest of the response: no task is
                // left whose drop would reset the stream. So the connection ends.
                self.go_away();
                let _: Poll<_> = Pin::new(&mut self.connection).poll(cx);
                return Some(Order::Expire(Deadline::Write));
            }
        }
        None
    }

    /// As [`Protocol::poll`](crate::http::conn::protocol::Protocol::poll).
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        if self.shutdown == Shutdown::Unacknowledged {
            // A request that is on its way is not served, so the client may send it elsewhere.
            write_goaway(&self.io, &self.budget.frames, h2::Reason::NO_ERROR);
            self.state.leave_body_unread();
            return Poll::Ready(Ok(()));
        }
        let Poll::Ready(outcome) = self.poll_to_last_response(cx) else {
            self.reset_blocking(cx);
            self.note_stage();
            if self.budget.frames.new_streams_wait() {
                self.look_at_waiting(cx);
            }
            self.add_frames();
            return Poll::Pending;
        };
        if let Err(error) = &outcome {
            tracing::debug!(peer = ?self.state.info().client(), %error, "HTTP/2 failed");
        }
        let frames = &self.budget.frames;
        let has_ended = self.io.borrow().has_ended();
        if frames.credits.are_exceeded() {
            write_goaway(&self.io, frames, h2::Reason::ENHANCE_YOUR_CALM);
        } else if outcome.is_ok() && !has_ended && !frames.are_lost() {
            // hyper stops at a CONNECT with a `Content-Length`, and drops all streams.
            write_goaway(&self.io, frames, h2::Reason::PROTOCOL_ERROR);
        }
        // In every case the server has sent GOAWAY, and the client must be able to read it. The
        // client may still send, and a reset would discard the last frames of the server.
        self.state.leave_body_unread();
        Poll::Ready(Ok(()))
    }

    /// As [`Protocol::follow`](crate::http::conn::protocol::Protocol::follow).
    pub(crate) fn follow(&mut self, order: Order, cx: &mut Context<'_>) -> Option<Order> {
        match order {
            Order::Streams => self.look_after_streams(cx),
            Order::Expire(Deadline::Idle) => {
                self.registry.count_idle_end(&self.state);
                self.go_away();
                self.note_stage();
                None
            }
            Order::Expire(Deadline::Header) if self.shutdown == Shutdown::GoAwaySent => {
                self.shutdown = Shutdown::Unacknowledged;
                None
            }
            Order::Evict => (!self.has_streams())
                .then(|| evict(&self.io, &self.budget.frames))
                .flatten(),
            // These orders are for HTTP/1, and for a connection that can rest.
            Order::Rest | Order::CloseIdle | Order::EndUpgrade => None,
            Order::Cut | Order::Expire(_) => Some(order),
        }
    }
}

/// Ends a connection without an open stream. Bytes that have come must be read first.
pub(crate) fn evict(io: &RefCell<AnyStream>, frames: &Frames) -> Option<Order> {
    let may_end = !io.borrow().has_unread();
    may_end.then(|| {
        write_goaway(io, frames, h2::Reason::NO_ERROR);
        Order::Evict
    })
}

/// Sends GOAWAY for an end of the connection that h2 does not know of. Not sent if h2 may have
/// written a part of a frame, because no other frame can follow a part of one.
pub(crate) fn write_goaway(io: &RefCell<AnyStream>, frames: &Frames, reason: h2::Reason) {
    let mut io = io.borrow_mut();
    if !io.is_write_blocked() {
        io.hold(&frames.goaway(reason));
    }
}

fn builder(http: &Http, announced: Announced, spawner: Spawner) -> Builder<Spawner> {
    let mut builder = Builder::new(spawner);
    builder
        .max_concurrent_streams(announced.max_streams)
        .max_header_list_size(announced.header_list_size)
        .initial_stream_window_size(announced.stream_window)
        .initial_connection_window_size(announced.connection_window)
        .max_send_buf_size(SEND_BUFFER)
        .max_pending_accept_reset_streams(RESETS_AHEAD)
        // [`Frames`] counts them, and limits those that wait for a write. h2 would also count DATA
        // that comes after the server has responded and stopped an upload.
        .max_local_error_reset_streams(None)
        .auto_date_header(http.date_header == DateHeader::Sent);
    builder
}
