//! What is known about one connection: what it is doing, and since when it has not moved.
//!
//! Written by whoever sees a thing happen (the stream, the service, the bodies), read by the
//! registry when the connection's turn comes. On the way of a request that is a few plain stores:
//! the time is the registry's coarse clock, never the system's.
//!
//! hyper gives the stream away on an upgrade and routers want request bodies that are `Send`, so
//! this is shared by `Arc` and made of atomics, though a worker has one thread. They are relaxed:
//! none of them guards another.

mod upgrade;

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Waker;

use crate::http::info::ConnectionInfo;
use crate::http::registry::clock::{Blocked, Clock, Since};
use crate::http::registry::wheel::Tick;

/// What a connection is doing. What its deadline is follows from that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Stage {
    /// What comes before HTTP is under way.
    Opening,
    /// Not one byte of HTTP has come.
    Fresh,
    /// A request's head is coming in.
    Head,
    /// From the head's end to the handler's answer. The handler's time is its own; only a client
    /// that does not send its body is timed.
    Handling,
    /// From there to the end of the response's body. Only a client that does not read is timed.
    Responding,
    /// Between requests.
    Idle,
    /// Our last word is said; what the client still sends is thrown away until it closes.
    Closing,
    /// HTTP/2, and streams are open. Each is timed by a state of its own.
    Streams,
    /// HTTP/2, and no stream is open.
    Quiet,
    /// As `Quiet`, and the client was told to go.
    Ending,
    /// No longer HTTP: the stream is in the hands of whoever asked for the upgrade.
    Upgraded,
    /// On its way to an heir. Nobody reads, and what comes waits in the kernel.
    HandedOver,
}

impl Stage {
    const ALL: [Self; 12] = [
        Self::Opening,
        Self::Fresh,
        Self::Head,
        Self::Handling,
        Self::Responding,
        Self::Idle,
        Self::Closing,
        Self::Streams,
        Self::Quiet,
        Self::Ending,
        Self::Upgraded,
        Self::HandedOver,
    ];
}

/// Why a request's body cannot be read to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum BodyFailure {
    TooLarge = 1,
    TimedOut = 2,
    Broken = 3,
}

/// See the module's head.
#[derive(Debug)]
pub(crate) struct ConnState {
    /// Whose it is; known once it has opened.
    info: OnceLock<ConnectionInfo>,
    clock: Arc<Clock>,
    /// Of a stream of HTTP/2: the state of its connection.
    connection: Option<Arc<Self>>,
    stage: AtomicU8,
    /// When the stage began; `Answering` and `Idle` begin anew with each byte of a response that is
    /// written.
    stamp: AtomicU64,
    /// Since when the client does not take what we write, and since when the handler waits for
    /// more of the request's body. Of a connection that has streams the second is since when any
    /// of them may have waited for its client.
    write_blocked: Blocked,
    body_awaited: Since,
    body_failure: AtomicU8,
    body_open: AtomicBool,
    body_unread: AtomicBool,
    leftover: AtomicBool,
    held_back: AtomicBool,
    may_hold: AtomicBool,
    may_hand_over: AtomicBool,
    client_check: AtomicBool,
    /// Whether the next answer ends the connection, for its age or its requests.
    ends_after_response: AtomicBool,
    requests: AtomicU32,
    cut: AtomicBool,
    stream_gone: AtomicBool,
    wakers: Mutex<Option<Box<Wakers>>>,
}

/// Wakers that are needed off the beaten path only: hence a box, and a lock, which nobody contends
/// for.
#[derive(Debug, Default)]
struct Wakers {
    body: Option<Waker>,
    upgraded_read: Option<Waker>,
    upgraded_write: Option<Waker>,
    stream_gone: Option<Waker>,
}

impl ConnState {
    pub(crate) fn new(clock: Arc<Clock>) -> Self {
        Self {
            info: OnceLock::new(),
            stage: AtomicU8::new(Stage::Opening as u8),
            stamp: AtomicU64::new(clock.now().0),
            clock,
            connection: None,
            write_blocked: Blocked::default(),
            body_awaited: Since::default(),
            body_failure: AtomicU8::new(0),
            body_open: AtomicBool::new(false),
            body_unread: AtomicBool::new(false),
            leftover: AtomicBool::new(false),
            held_back: AtomicBool::new(false),
            may_hold: AtomicBool::new(true),
            may_hand_over: AtomicBool::new(false),
            client_check: AtomicBool::new(false),
            ends_after_response: AtomicBool::new(false),
            requests: AtomicU32::new(0),
            cut: AtomicBool::new(false),
            stream_gone: AtomicBool::new(false),
            wakers: Mutex::default(),
        }
    }

    /// Says whose connection it is, once.
    pub(crate) fn set_info(&self, info: ConnectionInfo) {
        self.info.set(info).expect("a connection opens once");
    }

    pub(crate) fn info(&self) -> &ConnectionInfo {
        self.info
            .get()
            .expect("a connection is introduced before it is served")
    }

    pub(crate) fn stage(&self) -> Stage {
        Stage::ALL[usize::from(self.stage.load(Relaxed))]
    }

    pub(crate) fn enter(&self, stage: Stage) {
        self.stage.store(stage as u8, Relaxed);
        self.stamp.store(self.clock.now().0, Relaxed);
    }

    /// When the present stage began.
    pub(crate) fn stamp(&self) -> Tick {
        Tick(self.stamp.load(Relaxed))
    }

    /// Bytes came in. Between requests they are the beginning of a head; a deadline for a head is
    /// for the whole of it, or a byte now and then would keep it open for ever.
    pub(crate) fn has_read(&self) {
        if matches!(self.stage(), Stage::Fresh | Stage::Idle) && !self.is_body_open() {
            self.enter(Stage::Head);
        }
    }

    /// Whether nothing at all is going on: a response that is finished may still be on its way to
    /// a slow client, and its request's body may still be read by a task that outlives the handler.
    pub(crate) fn is_idle(&self) -> bool {
        matches!(self.stage(), Stage::Fresh | Stage::Idle)
            && self.write_blocked_since().is_none()
            && !self.is_body_open()
            && !self.holds_back()
    }

    /// hyper is polled, which reads what was left of a body or has the connection end.
    pub(crate) fn clear_leftover(&self) {
        self.leftover.store(false, Relaxed);
    }

    /// Whether the next byte is a request's first.
    pub(crate) fn has_no_leftover(&self) -> bool {
        !self.leftover.load(Relaxed)
    }

    /// Whether a request has come to this server.
    pub(crate) fn has_requested(&self) -> bool {
        self.requests() > 0
    }

    /// There is an heir to whom the connection may go.
    pub(crate) fn allow_handover(&self) {
        self.may_hand_over.store(true, Relaxed);
    }

    /// The connection cannot go to an heir, or not any more.
    pub(crate) fn forbid_handover(&self) {
        self.may_hand_over.store(false, Relaxed);
    }

    pub(crate) fn may_hand_over(&self) -> bool {
        self.may_hand_over.load(Relaxed)
    }

    /// How many requests have begun.
    pub(crate) fn requests(&self) -> u32 {
        self.requests.load(Relaxed)
    }

    pub(crate) fn count_request(&self) {
        let requests = self.requests().saturating_add(1);
        self.requests.store(requests, Relaxed);
    }

    /// Has the next answer be the connection's last; says whether that is news.
    pub(crate) fn end_after_response(&self) -> bool {
        !self.ends_after_response.swap(true, Relaxed)
    }

    pub(crate) fn ends_after_response(&self) -> bool {
        self.ends_after_response.load(Relaxed)
    }

    /// Has the stream look, at its next flush, whether the client is still there. It stays asked
    /// until bytes are written, or the next request.
    pub(crate) fn look(&self) {
        self.client_check.store(true, Relaxed);
    }

    pub(crate) fn is_client_check_due(&self) -> bool {
        self.client_check.load(Relaxed)
    }

    /// A head is complete and its request begins.
    pub(crate) fn begin_request(&self) {
        self.enter(Stage::Handling);
        self.count_request();
        self.body_failure.store(0, Relaxed);
        self.body_unread.store(false, Relaxed);
        self.client_check.store(false, Relaxed);
    }
}

/// Writing.
impl ConnState {
    pub(crate) fn write_blocked(&self) {
        self.write_blocked.begin(self.clock.now());
        self.notify_connection();
    }

    /// The client has taken so many bytes. Where it has not taken all there is, few are no
    /// progress.
    #[inline]
    pub(crate) fn has_written(&self, bytes: usize) {
        if self.write_blocked.moves(bytes) {
            self.has_written_all();
        }
    }

    /// The client has taken all there is, or enough to be given as much time again.
    #[inline]
    pub(crate) fn has_written_all(&self) {
        self.write_blocked.end();
        self.client_check.store(false, Relaxed);
        // An answer that moves is not silent, and one that was buffered whole leaves the connection
        // idle while it is still on its way to a slow client.
        let stage = self.stage();
        if matches!(stage, Stage::Responding | Stage::Idle) {
            self.enter(stage);
        }
    }

    /// Since when the client has taken nothing of what we have for it.
    pub(crate) fn write_blocked_since(&self) -> Option<Tick> {
        self.write_blocked.get()
    }

    /// Whether the stream keeps written bytes back, to send them with the next ones.
    pub(crate) fn holds_back(&self) -> bool {
        self.held_back.load(Relaxed)
    }

    pub(crate) fn set_held_back(&self, bytes: usize) {
        self.held_back.store(bytes > 0, Relaxed);
    }

    /// Has the stream keep nothing back from now on.
    pub(crate) fn hold_nothing(&self) {
        self.may_hold.store(false, Relaxed);
    }

    pub(crate) fn may_hold(&self) -> bool {
        self.may_hold.load(Relaxed)
    }
}

/// The request's body.
impl ConnState {
    /// The handler wants more of the body than has come.
    pub(crate) fn await_body(&self, waker: &Waker) {
        self.body_awaited.begin(self.clock.now());
        self.notify_connection();
        store(&mut wakers(&mut self.wakers()).body, waker);
    }

    pub(crate) fn end_await_body(&self) {
        self.body_awaited.end();
    }

    /// Since when the handler has waited for the next piece of the body.
    pub(crate) fn body_awaited_since(&self) -> Option<Tick> {
        self.body_awaited.get()
    }

    /// Has whoever reads the body find that it took too long.
    pub(crate) fn expire_body(&self) -> Option<Waker> {
        self.body_awaited.end();
        self.fail_body(BodyFailure::TimedOut);
        self.wakers().as_mut()?.body.take()
    }

    pub(crate) fn fail_body(&self, failure: BodyFailure) {
        self.body_failure.store(failure as u8, Relaxed);
    }

    pub(crate) fn body_failure(&self) -> Option<BodyFailure> {
        match self.body_failure.load(Relaxed) {
            0 => None,
            1 => Some(BodyFailure::TooLarge),
            2 => Some(BodyFailure::TimedOut),
            _ => Some(BodyFailure::Broken),
        }
    }

    /// There is a body, and somebody has it.
    pub(crate) fn open_body(&self) {
        self.body_open.store(true, Relaxed);
    }

    /// The body was read to its end.
    pub(crate) fn close_body(&self) {
        self.body_open.store(false, Relaxed);
    }

    /// The body was dropped before its end.
    pub(crate) fn leave_body_unread(&self) {
        self.body_awaited.end();
        self.body_unread.store(true, Relaxed);
        self.leftover.store(true, Relaxed);
        self.close_body();
    }

    fn is_body_open(&self) -> bool {
        self.body_open.load(Relaxed)
    }

    pub(crate) fn is_body_unread(&self) -> bool {
        self.body_unread.load(Relaxed)
    }
}

/// HTTP/2.
impl ConnState {
    /// That of one stream of a connection.
    #[cfg(feature = "http2")]
    pub(crate) fn of_stream(connection: &Arc<Self>) -> Self {
        Self {
            connection: Some(Arc::clone(connection)),
            info: connection.info.clone(),
            ..Self::new(Arc::clone(&connection.clock))
        }
    }

    /// Of a stream: that of its connection.
    pub(crate) fn of_connection(&self) -> &Self {
        self.connection.as_deref().unwrap_or(self)
    }

    /// Whether it is that of a stream, which can end without its connection.
    pub(crate) fn is_of_stream(&self) -> bool {
        self.connection.is_some()
    }

    /// Since when a stream may have waited for its client, at the most.
    pub(crate) fn streams_wait_since(&self) -> Option<Tick> {
        self.body_awaited.get()
    }

    /// What is known after all streams were looked at.
    #[cfg(feature = "http2")]
    pub(crate) fn set_streams_wait(&self, since: Option<Tick>) {
        self.body_awaited.end();
        if let Some(since) = since {
            self.body_awaited.begin(since);
        }
    }

    fn notify_connection(&self) {
        if let Some(connection) = &self.connection {
            connection.body_awaited.begin(self.clock.now());
        }
    }
}

impl ConnState {
    fn wakers(&self) -> MutexGuard<'_, Option<Box<Wakers>>> {
        // Nothing panics while it holds the lock, and each waker stands alone anyway.
        self.wakers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn wakers(parked: &mut Option<Box<Wakers>>) -> &mut Wakers {
    parked.get_or_insert_default()
}

fn store(slot: &mut Option<Waker>, waker: &Waker) {
    match slot {
        Some(known) => known.clone_from(waker),
        None => *slot = Some(waker.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Part of what an idle connection costs.
    #[test]
    fn it_is_small() {
        let bytes = size_of::<ConnState>();
        assert!(bytes <= 128, "{bytes} bytes");
    }

    #[test]
    fn requests_may_go_to_routers_that_want_them_send() {
        fn is_send<T: Send>() {}
        is_send::<crate::http::Request>();
        is_send::<crate::http::BodyError>();
    }
}
