//! The state of one connection: what it is doing, and since when it has made no progress.
//!
//! The code that sees an event writes it here: the stream, the service, the bodies. The registry
//! reads the state when it looks at the connection. A request costs a few plain stores: the time is
//! the registry's coarse clock, never the system's.
//!
//! On an upgrade, hyper gives the stream to another task, and routers require request bodies that
//! are `Send`. So the state is shared by `Arc` and made of atomics, although a worker has one
//! thread. They are relaxed: no other memory depends on them.

mod parts;
mod upgrade;

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Waker;

use self::parts::{Atomic, ClientCheck, End, Handover, Output, RequestBody, StreamLife};
pub(crate) use self::parts::{BodyFailure, Replay, Stage};
use crate::http::info::ConnectionInfo;
use crate::http::registry::clock::{Blocked, Clock, Since};
use crate::http::registry::wheel::Tick;

/// The state of a connection, or of one stream of HTTP/2.
///
/// These combinations of values are legal; [`ConnState::enter`] asserts it in debug builds. "any"
/// is any value of the column.
///
/// | stage | request body | output | what waits for the client |
/// |---|---|---|---|
/// | `Unopened`, `Opening`, `Fresh` | `Done` | `Empty` | nothing |
/// | `Head` | not `Open` | any | writes of earlier responses |
/// | `Handling`, `Responding` | any | any | the request's body, writes |
/// | `Idle` | any: a task may run longer than its handler | any | the request's body, writes |
/// | `Streams` | `Done` | any | its streams, writes |
/// | `Quiet`, `Ending` | `Done` | any | writes |
/// | `Closing` | any | any | writes |
/// | `Upgraded` | any | `LastHeld`, `Direct` | the reads and writes of the handler |
/// | `HandedOver` | not `Open`, not `Dropped` | `Empty`, `Direct` | nothing |
///
/// `Handover` never goes back to `Allowed`; `ClientCheck` is `Due` in `Handling` and `Responding`
/// only; `End` never goes back; `Replay` is that of the last `Quiet`. Each is legal in each stage.
#[derive(Debug)]
pub(crate) struct ConnState {
    /// Set when the connection has opened.
    info: OnceLock<ConnectionInfo>,
    clock: Arc<Clock>,
    scope: Scope,
    stage: Atomic<Stage>,
    /// When the stage began. `Responding` and `Idle` begin again with each byte of a response that
    /// is written.
    stamp: AtomicU64,
    /// Since when the client does not take what the server writes.
    write_blocked: Blocked,
    /// Since when something waits for the client to send; see [`ConnState::input_wait`].
    input_awaited: Since,
    request_body: Atomic<RequestBody>,
    body_failure: Atomic<BodyFailure>,
    output: Atomic<Output>,
    handover: Atomic<Handover>,
    client_check: Atomic<ClientCheck>,
    end: Atomic<End>,
    stream: Atomic<StreamLife>,
    replay: Atomic<Replay>,
    requests: AtomicU32,
    wakers: Mutex<Option<Box<Wakers>>>,
}

/// Whether a state belongs to a connection or to a stream.
#[derive(Debug)]
enum Scope {
    Connection,
    /// One stream of this connection.
    #[cfg_attr(
        not(feature = "http2"),
        expect(dead_code, reason = "HTTP/1 has no streams")
    )]
    Stream(Arc<ConnState>),
}

/// Something waits for the client to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InputWait {
    /// A handler has waited since this tick for the next piece of its request's body.
    Body(Tick),
    /// A stream of this HTTP/2 connection may have waited since this tick, to read its body or to
    /// write.
    Streams(Tick),
}

/// Wakers that few connections need. So they are in a box, behind a lock without contention.
#[derive(Debug, Default)]
struct Wakers {
    body: Option<Waker>,
    upgraded_read: Option<Waker>,
    upgraded_write: Option<Waker>,
    stream_gone: Option<Waker>,
}

impl ConnState {
    pub(crate) fn new(clock: Arc<Clock>) -> Self {
        Self::of(Scope::Connection, clock)
    }

    fn of(scope: Scope, clock: Arc<Clock>) -> Self {
        Self {
            info: OnceLock::new(),
            stamp: AtomicU64::new(clock.now().0),
            clock,
            scope,
            stage: Atomic::default(),
            write_blocked: Blocked::default(),
            input_awaited: Since::default(),
            request_body: Atomic::default(),
            body_failure: Atomic::default(),
            output: Atomic::default(),
            handover: Atomic::default(),
            client_check: Atomic::default(),
            end: Atomic::default(),
            stream: Atomic::default(),
            replay: Atomic::default(),
            requests: AtomicU32::new(0),
            wakers: Mutex::default(),
        }
    }

    /// Sets the addresses of the connection and what was learned about the client. Called once.
    pub(crate) fn set_info(&self, info: ConnectionInfo) {
        self.info.set(info).expect("a connection opens once");
    }

    pub(crate) fn info(&self) -> &ConnectionInfo {
        self.info
            .get()
            .expect("a connection opens before it is served")
    }

    pub(crate) fn stage(&self) -> Stage {
        self.stage.get()
    }

    pub(crate) fn enter(&self, stage: Stage) {
        debug_assert!(self.may_enter(stage), "{stage:?} of {self:?}");
        self.stage.set(stage);
        self.stamp.store(self.clock.now().0, Relaxed);
    }

    /// The table above [`ConnState`].
    fn may_enter(&self, stage: Stage) -> bool {
        let body = self.request_body.get();
        let output = self.output.get();
        match stage {
            Stage::Unopened | Stage::Opening | Stage::Fresh => {
                body == RequestBody::Done && output == Output::Empty
            }
            Stage::Head => body != RequestBody::Open,
            Stage::Handling | Stage::Responding | Stage::Idle | Stage::Closing => true,
            Stage::Streams | Stage::Quiet | Stage::Ending => body == RequestBody::Done,
            Stage::Upgraded => matches!(output, Output::LastHeld | Output::Direct),
            Stage::HandedOver => {
                !matches!(body, RequestBody::Open | RequestBody::Dropped)
                    && matches!(output, Output::Empty | Output::Direct)
            }
        }
    }

    /// When the present stage began.
    pub(crate) fn stamp(&self) -> Tick {
        Tick(self.stamp.load(Relaxed))
    }

    /// Bytes came in. Between requests they begin a head. The header timeout is for the whole head:
    /// otherwise a byte now and then would keep the head open for ever.
    pub(crate) fn has_read(&self) {
        if matches!(self.stage(), Stage::Fresh | Stage::Idle) && !self.is_body_open() {
            self.enter(Stage::Head);
        }
    }

    /// Whether nothing is going on. A complete response may still be on its way to a slow client,
    /// and a task that runs longer than its handler may still read the request's body.
    pub(crate) fn is_idle(&self) -> bool {
        matches!(self.stage(), Stage::Unopened | Stage::Fresh | Stage::Idle)
            && self.write_blocked_since().is_none()
            && !self.is_body_open()
            && !self.holds_back()
    }

    /// Whether an HTTP/2 connection has no open stream, and the client has taken all that was
    /// written.
    pub(crate) fn is_quiet(&self) -> bool {
        self.stage() == Stage::Quiet && self.write_blocked_since().is_none() && !self.holds_back()
    }

    /// Whether an HTTP/2 connection may rest.
    pub(crate) fn may_rest(&self) -> bool {
        self.is_quiet() && self.replay.is(Replay::Possible)
    }

    /// Whether the connection may go to another server now.
    pub(crate) fn may_move(&self) -> bool {
        self.may_hand_over() && (self.is_idle() && self.has_no_leftover() || self.may_rest())
    }

    /// Call it when the connection is quiet.
    #[cfg(feature = "http2")]
    pub(crate) fn set_replay(&self, replay: Replay) {
        self.replay.set(replay);
    }

    /// hyper is polled: it discards the rest of a body, or ends the connection.
    pub(crate) fn clear_leftover(&self) {
        if self.request_body.is(RequestBody::Dropped) {
            self.request_body.set(RequestBody::Discarded);
        }
    }

    /// Whether the next byte is the first of a request.
    pub(crate) fn has_no_leftover(&self) -> bool {
        !self.request_body.is(RequestBody::Dropped)
    }

    /// Whether a request has come to this server.
    pub(crate) fn has_requested(&self) -> bool {
        self.requests() > 0
    }

    /// The connection may go to another server.
    pub(crate) fn allow_handover(&self) {
        self.handover.set(Handover::Allowed);
    }

    /// The connection cannot go to another server, or no longer can.
    pub(crate) fn forbid_handover(&self) {
        self.handover.set(Handover::Forbidden);
    }

    pub(crate) fn may_hand_over(&self) -> bool {
        self.handover.is(Handover::Allowed)
    }

    /// How many requests have begun.
    pub(crate) fn requests(&self) -> u32 {
        self.requests.load(Relaxed)
    }

    pub(crate) fn count_request(&self) {
        let requests = self.requests().saturating_add(1);
        self.requests.store(requests, Relaxed);
    }

    /// Makes the next response the connection's last one. Returns whether that is new.
    pub(crate) fn end_after_response(&self) -> bool {
        let is_new = self.end.is(End::Open);
        if is_new {
            self.end.set(End::AfterResponse);
        }
        is_new
    }

    pub(crate) fn ends_after_response(&self) -> bool {
        !self.end.is(End::Open)
    }

    /// Makes the stream check, at its next flush, whether the client is still there. The check
    /// stays due until bytes are written or the next request begins.
    pub(crate) fn ask_client_check(&self) {
        self.client_check.set(ClientCheck::Due);
    }

    pub(crate) fn is_client_check_due(&self) -> bool {
        self.client_check.is(ClientCheck::Due)
    }

    /// A head is complete and its request begins.
    pub(crate) fn begin_request(&self) {
        // A task may still have the body of the request before, all of which has come.
        self.input_awaited.end();
        self.body_failure.set(BodyFailure::None);
        self.request_body.set(RequestBody::Done);
        self.client_check.set(ClientCheck::NotDue);
        self.enter(Stage::Handling);
        self.count_request();
    }
}

/// Writing.
impl ConnState {
    pub(crate) fn write_blocked(&self) {
        self.write_blocked.begin(self.clock.now());
        self.notify_connection();
    }

    /// The client has taken this many bytes. Few bytes are no progress, unless they are all there
    /// is.
    #[inline]
    pub(crate) fn has_written(&self, bytes: usize) {
        if self.write_blocked.note_taken(bytes) {
            self.has_written_all();
        }
    }

    /// The client has taken all there is, or enough for the write timeout to begin again.
    #[inline]
    pub(crate) fn has_written_all(&self) {
        self.write_blocked.end();
        self.client_check.set(ClientCheck::NotDue);
        // A response that moves is not silent. A response that was buffered as a whole leaves the
        // connection idle while it is still being sent to a slow client.
        let stage = self.stage();
        if matches!(stage, Stage::Responding | Stage::Idle) {
            self.enter(stage);
        }
    }

    /// Since when the client has taken nothing, or too little, of what the server writes.
    pub(crate) fn write_blocked_since(&self) -> Option<Tick> {
        self.write_blocked.get()
    }

    /// Whether the stream holds bytes back, to send them with the next ones.
    pub(crate) fn holds_back(&self) -> bool {
        self.output.is(Output::Held) || self.output.is(Output::LastHeld)
    }

    /// The stream now holds this many bytes back.
    #[inline]
    pub(crate) fn set_held_back(&self, bytes: usize) {
        self.output.set(match (self.may_hold(), bytes > 0) {
            (true, false) => Output::Empty,
            (true, true) => Output::Held,
            (false, true) => Output::LastHeld,
            (false, false) => Output::Direct,
        });
    }

    /// Makes the stream hold nothing back from now on.
    pub(crate) fn hold_nothing(&self) {
        self.output.set(match self.holds_back() {
            true => Output::LastHeld,
            false => Output::Direct,
        });
    }

    #[inline]
    pub(crate) fn may_hold(&self) -> bool {
        self.output.is(Output::Empty) || self.output.is(Output::Held)
    }
}

/// The request's body.
impl ConnState {
    /// The handler wants more of the body than has come.
    pub(crate) fn await_body(&self, waker: &Waker) {
        self.input_awaited.begin(self.clock.now());
        self.notify_connection();
        store(&mut wakers(&mut self.wakers()).body, waker);
    }

    pub(crate) fn end_await_body(&self) {
        self.input_awaited.end();
    }

    /// The wait for the client to send, if there is one.
    pub(crate) fn input_wait(&self) -> Option<InputWait> {
        let since = self.input_awaited.get()?;
        Some(match self.stage() {
            Stage::Streams => InputWait::Streams(since),
            _ => InputWait::Body(since),
        })
    }

    /// Since when the handler of a stream has waited for the next piece of its request's body.
    #[cfg(feature = "http2")]
    pub(crate) fn body_awaited_since(&self) -> Option<Tick> {
        match self.input_wait()? {
            InputWait::Body(since) => Some(since),
            InputWait::Streams(_) => None,
        }
    }

    /// Fails the body because the client took too long to send it. Returns the waker of the task
    /// that reads the body.
    pub(crate) fn expire_body(&self) -> Option<Waker> {
        self.input_awaited.end();
        self.fail_body(BodyFailure::TimedOut);
        self.wakers().as_mut()?.body.take()
    }

    pub(crate) fn fail_body(&self, failure: BodyFailure) {
        self.body_failure.set(failure);
    }

    pub(crate) fn body_failure(&self) -> BodyFailure {
        self.body_failure.get()
    }

    /// There is a body, and the handler gets it.
    pub(crate) fn open_body(&self) {
        self.request_body.set(RequestBody::Open);
    }

    /// The body was read to its end.
    pub(crate) fn close_body(&self) {
        self.request_body.set(RequestBody::Done);
    }

    /// The body was dropped before its end.
    pub(crate) fn leave_body_unread(&self) {
        self.input_awaited.end();
        self.request_body.set(RequestBody::Dropped);
    }

    pub(crate) fn is_body_open(&self) -> bool {
        self.request_body.is(RequestBody::Open)
    }

    pub(crate) fn is_body_unread(&self) -> bool {
        self.request_body.is(RequestBody::Dropped) || self.request_body.is(RequestBody::Discarded)
    }
}

/// HTTP/2.
impl ConnState {
    /// The state of one stream of a connection.
    #[cfg(feature = "http2")]
    pub(crate) fn of_stream(connection: &Arc<Self>) -> Self {
        let scope = Scope::Stream(Arc::clone(connection));
        Self {
            info: connection.info.clone(),
            ..Self::of(scope, Arc::clone(&connection.clock))
        }
    }

    /// For a stream, the state of its connection. For a connection, this state.
    pub(crate) fn of_connection(&self) -> &Self {
        match &self.scope {
            Scope::Connection => self,
            Scope::Stream(connection) => connection,
        }
    }

    /// Whether this is the state of a stream, which can end without its connection.
    pub(crate) fn is_of_stream(&self) -> bool {
        matches!(self.scope, Scope::Stream(_))
    }

    /// Sets the wait that was found when all streams were looked at.
    #[cfg(feature = "http2")]
    pub(crate) fn set_streams_wait(&self, since: Option<Tick>) {
        self.input_awaited.end();
        if let Some(since) = since {
            self.input_awaited.begin(since);
        }
    }

    fn notify_connection(&self) {
        if let Scope::Stream(connection) = &self.scope {
            connection.input_awaited.begin(self.clock.now());
        }
    }
}

impl ConnState {
    fn wakers(&self) -> MutexGuard<'_, Option<Box<Wakers>>> {
        // Nothing panics while it holds the lock, and no waker depends on another.
        self.wakers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn wakers(boxed: &mut Option<Box<Wakers>>) -> &mut Wakers {
    boxed.get_or_insert_default()
}

fn store(slot: &mut Option<Waker>, waker: &Waker) {
    match slot {
        Some(stored) => stored.clone_from(waker),
        None => *slot = Some(waker.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each idle connection has one.
    #[test]
    fn the_state_of_a_connection_is_small() {
        let bytes = size_of::<ConnState>();
        assert!(bytes <= 128, "{bytes} bytes");
    }

    #[test]
    fn requests_and_body_errors_are_send() {
        fn is_send<T: Send>() {}
        is_send::<crate::http::Request>();
        is_send::<crate::http::BodyError>();
    }
}
