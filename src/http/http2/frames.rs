//! Limits the frames of a client that serve no request.
//!
//! h2 responds to each PING and SETTINGS and processes each WINDOW_UPDATE, PRIORITY and unknown
//! frame. It has no limit for them and no hook. A client that sends nothing else keeps a worker
//! busy without one request. So [`Frames`] sees all bytes that h2 reads and writes, and the client
//! pays for such frames with its [`Credits`].
//!
//! It also keeps the [`ClientState`], and passes the replay of a connection that has rested to h2.
//! While h2 reads the replay, what it writes is discarded: the client has had it before.

use std::cell::{Cell, RefCell};
use std::io::IoSlice;
use std::mem;
use std::rc::Rc;

use bytes::{Bytes, BytesMut};

use crate::http::http2::announced::Announced;
use crate::http::http2::client_record::ClientRecord;
use crate::http::http2::client_state::{ClientState, Replay};
use crate::http::http2::credits::Credits;
use crate::http::http2::goaway::{GoAway, goaway};
use crate::http::http2::own_settings::{Begins, Ends, OwnSettings, Told};
use crate::http::http2::scan::{
    CONTINUATION, DATA, END_STREAM, FRAME_HEADER, HEADERS, Header, PADDED, RST_STREAM, Scan,
};
use crate::http::http2::unanswered::Unanswered;
use crate::http::http2::waiting::{NewStreams, WORKER_MAX, before_new_stream, one_new_stream};
use crate::http::registry::list::Registry;
use crate::http::registry::wheel::Tick;

/// A padded frame with more bytes than this has some that are not padding.
const PADDING_MAX: usize = 256;

/// h2 ends the connection if some 2,000 short DATA frames wait for their handlers. While more than
/// these may wait, it reads no more. One read has up to 1,600.
const SHORT_DATA_MAX: u32 = 256;

/// As many of them count as taken in one round as pieces of responses were written, and at least
/// these: a handler may read all before it responds.
const TAKEN_IN_ROUND: u32 = 32;

/// DATA frames with fewer bytes than this are short for h2.
const SHORT: usize = 256;

/// So many streams begin in one round if they have waited. The client may have reset them since,
/// and h2 ends the connection if more than 20 that are reset come in one round.
const BEGUN_IN_ROUND: u32 = 16;

/// The frames of one client.
pub(crate) struct Frames {
    registry: Rc<Registry>,
    read: RefCell<Scan>,
    written: RefCell<Scan>,
    client: RefCell<ClientState>,
    /// `Some` while h2 reads a replay: the part of it that h2 has not read. In a box, because a
    /// connection at rest has none.
    replay: RefCell<Option<Box<Replay>>>,
    pub(crate) credits: Credits,
    last_stream: Cell<u32>,
    /// Whether the last frame of the client was a part of a head, and not the last one.
    is_in_head: Cell<bool>,
    goaway: RefCell<GoAway>,
    new_streams: RefCell<NewStreams>,
    own_settings: RefCell<OwnSettings>,
    /// How many bytes of this connection the worker counts as waiting.
    counted: Cell<usize>,
    /// How many streams the client has begun in this round.
    begun_in_round: Cell<u32>,
    /// How many short DATA frames may wait for their handlers.
    short_data: Cell<u32>,
    /// How many pieces of responses were written in this round.
    written_data: Cell<u32>,
    /// When bytes were read last.
    last_read: Cell<Tick>,
    pub(crate) unanswered: Unanswered,
}

/// What h2 may read of an input.
pub(crate) enum Admitted {
    /// So many bytes. 0: none before more have come.
    Bytes(usize),
    /// A new stream, but not in this round.
    NextRound,
}

impl Frames {
    pub(crate) fn new(registry: &Rc<Registry>) -> Self {
        let told = Told::first(Announced::by(&registry.http));
        Self::of(registry, Scan::of_client(), ClientState::new(), told)
    }

    /// The frames of a client that another server has served.
    pub(crate) fn of_record(registry: &Rc<Registry>, record: &ClientRecord) -> Option<Self> {
        let client = ClientState::of_record(record)?;
        let frames = Self::of(registry, Scan::between_frames(), client, record.told);
        frames.last_stream.set(record.last_stream);
        frames.new_streams.replace(NewStreams::PassAfterWait);
        Some(frames)
    }

    fn of(registry: &Rc<Registry>, read: Scan, client: ClientState, told: Told) -> Self {
        Self {
            registry: Rc::clone(registry),
            read: RefCell::new(read),
            written: RefCell::new(Scan::between_frames()),
            client: RefCell::new(client),
            replay: RefCell::new(None),
            credits: Credits::new(registry),
            last_stream: Cell::new(0),
            is_in_head: Cell::new(false),
            goaway: RefCell::new(GoAway::NotSent),
            new_streams: RefCell::default(),
            own_settings: RefCell::new(OwnSettings::new(told)),
            counted: Cell::new(0),
            begun_in_round: Cell::new(0),
            short_data: Cell::new(0),
            written_data: Cell::new(0),
            last_read: Cell::new(registry.now()),
            unanswered: Unanswered::default(),
        }
    }

    /// Counts the frames in bytes that were read.
    pub(crate) fn read(&self, bytes: &[u8]) {
        self.last_read.set(self.registry.now());
        self.new_streams.borrow_mut().was_read(bytes.len());
        let mut client = self.client.borrow_mut();
        let mut own_settings = self.own_settings.borrow_mut();
        let mut read = self.read.borrow_mut();
        read.read(bytes, ClientState::wants_read, |frame, payload| {
            let begins = self.begins(frame);
            let ends = own_settings.read(frame, begins);
            self.count(frame, begins, ends);
            client.read(frame, payload);
        });
    }

    /// As [`OwnSettings::have_uploads`].
    pub(crate) fn have_uploads(&self) -> bool {
        self.own_settings.borrow().have_uploads()
    }

    /// What h2 announces. A client that another server has told more knows that.
    pub(crate) fn announced(&self) -> Announced {
        let told = self.own_settings.borrow().told();
        Announced::by(&self.registry.http).after(told.announced)
    }

    /// When bytes of the client were read last.
    pub(crate) fn last_read(&self) -> Tick {
        self.last_read.get()
    }

    /// The first `count` of these bytes were written.
    pub(crate) fn wrote(&self, bufs: &[IoSlice<'_>], count: usize) {
        self.credits.reward_bytes(count);
        let mut client = self.client.borrow_mut();
        let mut own_settings = self.own_settings.borrow_mut();
        let mut written = self.written.borrow_mut();
        let mut left = count;
        for buf in bufs {
            let bytes = &buf[..left.min(buf.len())];
            left -= bytes.len();
            let wants =
                |frame: &Header| frame.kind == RST_STREAM || ClientState::wants_written(frame);
            written.read(bytes, wants, |frame, payload| {
                if frame.kind == RST_STREAM {
                    self.credits.charge_reset(payload, &self.registry);
                }
                own_settings.wrote(frame);
                client.wrote(frame, payload);
            });
        }
    }

    /// The handlers have been polled.
    pub(crate) fn begin_round(&self) {
        let taken = self.written_data.take().max(TAKEN_IN_ROUND);
        let left = self.short_data.get().saturating_sub(taken);
        self.short_data.set(left);
        self.begun_in_round.set(0);
    }

    /// Whether h2 must wait for the handlers before it reads more.
    pub(crate) fn are_many(&self) -> bool {
        self.short_data.get() > SHORT_DATA_MAX
    }

    /// Some of a response's data was written.
    pub(crate) fn wrote_data(&self) {
        if !self.is_replaying() {
            self.written_data.set(self.written_data.get() + 1);
        }
    }

    /// The last of a piece of a response was written.
    pub(crate) fn wrote_piece(&self) {
        if !self.is_replaying() {
            self.credits.reward_message();
        }
    }

    /// The server sends GOAWAY and a PING.
    pub(crate) fn go_away(&self) {
        *self.goaway.borrow_mut() = GoAway::Sent;
    }

    /// As [`GoAway::release`].
    pub(crate) fn release_acknowledgement(&self, is_needed: impl FnOnce() -> bool) -> bool {
        self.goaway.borrow_mut().release(is_needed)
    }

    /// From now on new streams wait.
    pub(crate) fn hold_new_streams(&self) {
        self.new_streams.borrow_mut().hold();
        if self.client.borrow().is_complete() {
            self.own_settings.borrow_mut().close_new_windows();
        }
    }

    /// New streams wait no longer. Those that have waited are in the input again.
    pub(crate) fn release_new_streams(&self, input: &mut BytesMut) {
        if self.new_streams_wait() {
            let begin = self.read.borrow().rest_of_frame(input);
            let mut new_streams = self.new_streams.borrow_mut();
            new_streams.release(input, begin, self.last_stream.get());
            self.count_waiting(0);
        }
    }

    pub(crate) fn new_streams_wait(&self) -> bool {
        self.new_streams.borrow().waiting().is_some()
    }

    /// Whether so much waits that no more may be read than is in this input.
    pub(crate) fn are_full(&self, input: &[u8]) -> bool {
        let new_streams = self.new_streams.borrow();
        let window = self.announced().connection_window;
        let waiting = new_streams.waiting();
        let are_many = self.counted.get() > 0 && self.registry.waiting() >= WORKER_MAX;
        waiting.is_some_and(|waiting| are_many || waiting.is_full(input, window))
    }

    /// Changes the number of bytes that wait on all connections.
    fn count_waiting(&self, bytes: usize) {
        let counted = self.counted.replace(bytes);
        self.registry.change_waiting(counted, bytes);
    }

    /// Whether the input must come to [`Frames::admit`] before h2 reads any of it.
    pub(crate) fn hold_input(&self) -> bool {
        self.goaway.borrow().is_awaited()
            || self.new_streams_wait()
            || self.own_settings.borrow().are_unacknowledged()
    }

    /// The frames that follow what h2 has written. Empty if that is a part of a frame.
    pub(crate) fn take_added(&self) -> Vec<u8> {
        match self.written.borrow().is_between_frames() {
            true => self.own_settings.borrow_mut().take_unwritten(),
            false => Vec::new(),
        }
    }

    /// How many bytes of this input h2 may read now. Frames that have to wait are taken out of it,
    /// and those that h2 must not read.
    pub(crate) fn admit(&self, input: &mut BytesMut) -> Admitted {
        let Some(begin) = self.read.borrow().rest_of_frame(input) else {
            return Admitted::Bytes(input.len());
        };
        let part = match self.new_streams.borrow().unseen(begin) {
            Some(unseen) => (self.own_settings.borrow_mut()).take_acknowledgements(input, unseen),
            None => 0,
        };
        let before_acknowledgement = self.goaway.borrow_mut().hold(input, begin);
        // What waits is taken out of the input next, and the part may be in it.
        let before_part = input.len() - part;
        let last_stream = self.last_stream.get();
        let before_waiting = match &mut *self.new_streams.borrow_mut() {
            NewStreams::Pass => input.len(),
            NewStreams::Wait(waiting) => {
                let passed = waiting.take(input, begin, last_stream);
                self.count_waiting(waiting.len());
                passed
            }
            NewStreams::PassAfterWait => match before_new_stream(input, begin, last_stream) {
                0 if self.begun_in_round.get() >= BEGUN_IN_ROUND => return Admitted::NextRound,
                0 => one_new_stream(input, last_stream),
                before => before,
            },
        };
        Admitted::Bytes(before_part.min(before_acknowledgement).min(before_waiting))
    }

    /// The acknowledgement that was released, if h2 can read it now: no more bytes have come.
    pub(crate) fn held_acknowledgement(&self) -> Option<[u8; FRAME_HEADER + 8]> {
        let is_between = self.read.borrow().is_between_frames() && !self.is_in_head.get();
        match is_between {
            true => self.goaway.borrow_mut().take_released(),
            false => None,
        }
    }

    /// GOAWAY with the number of the last stream that has come (RFC 9113 6.8).
    pub(crate) fn goaway(&self, reason: h2::Reason) -> [u8; FRAME_HEADER + 8] {
        goaway(self.last_stream.get(), reason)
    }

    /// As [`ClientState::is_lost`].
    pub(crate) fn are_lost(&self) -> bool {
        self.client.borrow().is_lost()
    }

    /// Whether a new connection can take the place of this one, which has no open stream.
    pub(crate) fn can_be_replayed(&self) -> bool {
        let header_size_max = self.registry.http.max_header_size;
        self.read.borrow().is_between_frames()
            && self.written.borrow().is_between_frames()
            && self.own_settings.borrow().are_written()
            && self.client.borrow().can_be_replayed(header_size_max)
    }

    /// What another server needs to know of the client, if the connection
    /// [can be replayed](Self::can_be_replayed).
    pub(crate) fn record(&self, has_requested: bool) -> ClientRecord {
        let client = self.client.borrow();
        let told = self.own_settings.borrow().told();
        client.record(told, self.last_stream.get(), has_requested)
    }

    /// Gives memory back that is not needed while the connection rests.
    pub(crate) fn shrink(&self) {
        self.client.borrow_mut().shrink();
        self.own_settings.borrow_mut().shrink();
    }

    /// From now on h2 reads the replay, until [`Frames::end_replay`].
    pub(crate) fn begin_replay(&self) {
        let replay = self.client.borrow().replay(self.last_stream.get());
        self.replay.replace(Some(Box::new(replay)));
    }

    pub(crate) fn is_replaying(&self) -> bool {
        self.replay.borrow().is_some()
    }

    /// The next bytes of the replay, at most `max`. Empty if h2 has read all of them, and `None` if
    /// there is no replay.
    pub(crate) fn read_replay(&self, max: usize) -> Option<Bytes> {
        let mut replay = self.replay.borrow_mut();
        let left = &mut replay.as_mut()?.next;
        Some(left.split_to(left.len().min(max)))
    }

    /// The length of the response to the last request of the replay, in bytes. It is 0 if the
    /// replay needs no response.
    pub(crate) fn spent_in_replay(&self) -> usize {
        let replay = self.replay.borrow();
        replay.as_ref().map_or(0, |replay| replay.spent)
    }

    /// The response is sent. Returns whether there is more to read.
    pub(crate) fn continue_replay(&self) -> bool {
        let mut replay = self.replay.borrow_mut();
        replay.as_mut().is_some_and(|replay| {
            replay.next.is_empty() && {
                replay.next = mem::take(&mut replay.last);
                !replay.next.is_empty()
            }
        })
    }

    /// The new connection is where the old one was. Returns the frames by which the client learns
    /// the window of the connection and the settings, as far as it does not know them. `None` if h2
    /// has not read the whole replay.
    pub(crate) fn end_replay(&self) -> Option<Vec<u8>> {
        let replay = self.replay.take()?;
        let announced = self.announced();
        let mut client = self.client.borrow_mut();
        let mut frames = client.grant(announced.connection_window);
        let mut own_settings = self.own_settings.borrow_mut();
        own_settings.announce(announced);
        frames.append(&mut own_settings.take_unwritten());
        replay.next.is_empty().then_some(frames)
    }

    /// A client opens streams with odd numbers only, each greater than the one before. h2 ignores
    /// those that follow the acknowledgement of GOAWAY.
    fn begins(&self, frame: &Header) -> Begins {
        let is_new = frame.stream % 2 == 1 && frame.stream > self.last_stream.get();
        if frame.kind != HEADERS || !is_new {
            return Begins::Nothing;
        }
        self.last_stream.set(frame.stream);
        self.begun_in_round.set(self.begun_in_round.get() + 1);
        match self.goaway.borrow().is_over() {
            true => Begins::Nothing,
            false => Begins::Stream,
        }
    }

    fn count(&self, frame: &Header, begins: Begins, ends: Ends) {
        self.unanswered.add();
        self.is_in_head.set(frame.leaves_head_open());
        let is_last = frame.flags & END_STREAM != 0;
        let has_bytes = (frame.len > 0 && frame.flags & PADDED == 0) || frame.len > PADDING_MAX;
        match frame.kind {
            HEADERS if begins == Begins::Stream => self.credits.reward_message(),
            HEADERS | DATA if ends == Ends::Upload => {}
            // h2 limits them for each request.
            CONTINUATION => {}
            // Bytes of a request's body.
            DATA if has_bytes && !is_last => {
                if frame.len < SHORT {
                    self.short_data.set(self.short_data.get() + 1);
                }
            }
            // Also HEADERS and the last DATA of a stream that was reset: h2 ignores them for a
            // second, however many come.
            _ => self.credits.charge_frame(frame, &self.registry),
        }
    }
}

impl Drop for Frames {
    fn drop(&mut self) {
        self.count_waiting(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each idle connection has one, with the two counts of an `Rc`. The next size of the allocator
    /// has 64 bytes more.
    #[test]
    fn the_frames_of_a_connection_are_small() {
        let bytes = size_of::<Frames>();
        assert!(bytes <= 432, "{bytes} bytes");
    }
}
