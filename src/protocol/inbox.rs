//! The inbox of a slot. A worker that drains, or that has more connections than others, sends
//! connections to it: those that were idle, and new ones of which no byte was read. The worker that
//! attends to the slot receives them. It is a `SOCK_SEQPACKET` pair with one connection in each
//! message, whose descriptor is sent as `SCM_RIGHTS`.
//!
//! The master keeps both ends, so connections in the inbox outlive sender and receiver. The inbox
//! holds some 270 connections (unix(7), `SO_SNDBUF`); the others stay with the sender until there
//! is room. A message could carry hundreds of connections. It carries one, so that a receiver takes
//! no more than it may hold, and so that a connection that cannot be sent stays with the sender.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use tokio::io::unix::AsyncFd;

use crate::address::Address;
use crate::codec::{Malformed, Reader, Record, Writer, record};
use crate::proxy::Forwarded;
use crate::sys::fds;
use crate::sys::socket::has_ended;

/// The first byte of a message says what comes, and in which version. The sender may be of another
/// image; a receiver closes connections that come in another version.
const HANDED_OVER: u8 = 1;
const PLACED: u8 = 2;
const HTTP2_HANDED_OVER: u8 = 3;

/// The most bytes of a message that were read and not processed. A pair takes messages of more than
/// twice that size.
pub(crate) const READ_AHEAD_MAX: usize = 64 * 1024;

/// The most bytes of what an HTTP/2 client will not send again: its header table and some numbers.
const HTTP2_MAX: usize = 16 * 1024;

/// The longest message: version, addresses and bytes. A path is short (unix(7), `sun_path`).
const LEN_MAX: usize = READ_AHEAD_MAX + HTTP2_MAX + 256;

/// Both ends of an inbox.
#[derive(Debug)]
pub(crate) struct Inbox {
    sender: OwnedFd,
    receiver: OwnedFd,
}

record!(Inbox { sender, receiver });

/// The end that connections are sent to. Clones are the same end.
#[derive(Clone, Debug)]
pub(crate) struct Sender(Arc<OwnedFd>);

/// The end that connections are received from. If several processes have it, each connection goes
/// to one of them.
#[derive(Debug)]
pub(crate) struct Receiver {
    /// `None` once the inbox was shut down and is empty: nothing comes from it any more.
    watch: Option<AsyncFd<Arc<OwnedFd>>>,
    bytes: Vec<u8>,
}

/// Why a connection is in an inbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// A worker has served it, and it was idle.
    HandedOver,
    /// It is new, and the worker that has accepted it had more to do.
    Placed,
}

/// What is sent with the descriptor of a connection. The socket itself knows the client's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Note {
    pub(crate) reason: Reason,
    /// The address of the listener.
    pub(crate) local: Address,
    /// The addresses in the PROXY header, which was read and does not come again.
    pub(crate) forwarded: Option<Forwarded>,
    /// What an HTTP/2 client will not send again. Only in a connection that was handed over.
    pub(crate) http2: Option<Bytes>,
    /// The bytes that were read and not processed, usually none.
    pub(crate) read_ahead: Bytes,
}

impl Inbox {
    pub(crate) fn new() -> io::Result<Self> {
        let (sender, receiver) = fds::seqpacket_pair()?;
        Ok(Self { sender, receiver })
    }

    pub(crate) fn sender(&self) -> BorrowedFd<'_> {
        self.sender.as_fd()
    }

    pub(crate) fn receiver(&self) -> BorrowedFd<'_> {
        self.receiver.as_fd()
    }

    /// Whether a connection waits in the inbox.
    pub(crate) fn is_waited_in(&self) -> bool {
        fds::is_readable(&self.receiver)
    }
}

impl Sender {
    /// A sender that was inherited.
    pub(crate) fn new(fd: OwnedFd) -> Self {
        Self(Arc::new(fd))
    }

    /// Waits for room. Call inside a tokio runtime.
    pub(crate) fn watch(&self) -> io::Result<AsyncFd<Arc<OwnedFd>>> {
        fds::watch_writable(Arc::clone(&self.0))
    }

    /// Whether something that was sent is still in the inbox, by this worker or by another.
    pub(crate) fn has_unread(&self) -> bool {
        fds::has_unread(&self.0)
    }

    /// Sends a connection. The caller drops its own descriptor then. `WouldBlock` if there is no
    /// room.
    pub(crate) fn send(&self, connection: impl AsFd, note: &Note) -> io::Result<()> {
        let http2 = note.http2.as_ref().map_or(0, Bytes::len);
        if note.read_ahead.len() > READ_AHEAD_MAX || http2 > HTTP2_MAX {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        fds::send(&self.0, &note.encode(), &[connection.as_fd().as_raw_fd()])
    }
}

impl Receiver {
    /// A receiver that was inherited or adopted. Call inside a tokio runtime.
    pub(crate) fn new(fd: OwnedFd) -> io::Result<Self> {
        Ok(Self {
            watch: Some(fds::watch_readable(Arc::new(fd))?),
            bytes: Vec::new(),
        })
    }

    /// Takes the next connection, as [`Receiver::take`] does.
    pub(crate) fn poll_take(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<(OwnedFd, Note)>> {
        self.poll(cx, Self::take)
    }

    /// Ready if a connection waits.
    pub(crate) fn poll_waiting(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll(cx, |inbox| Ok(inbox.is_waited_in().then_some(())))
    }

    /// Whether a connection waits. `false` for an inbox that was shut down.
    pub(crate) fn is_waited_in(&self) -> bool {
        let inbox = self.watch.as_ref().map(AsyncFd::get_ref);
        inbox.is_some_and(|inbox| fds::is_readable(inbox) && !has_ended(inbox))
    }

    /// Ready when `look` finds something, or fails.
    fn poll<T>(
        &mut self,
        cx: &mut Context<'_>,
        look: impl Fn(&mut Self) -> io::Result<Option<T>>,
    ) -> Poll<io::Result<T>> {
        while let Some(watch) = &self.watch {
            // First the readiness: this costs no system call while no connection comes.
            ready!(watch.poll_read_ready(cx))?.retain_ready();
            if let Some(found) = look(self)? {
                return Poll::Ready(Ok(found));
            }
            let Some(watch) = &self.watch else { break };
            let mut readable = ready!(watch.poll_read_ready(cx))?;
            if readable.ready().is_read_closed() {
                // The runtime takes an inbox that was shut down for ready for ever.
                break;
            }
            readable.clear_ready();
        }
        Poll::Pending
    }

    /// Takes the next connection; `None` if there is none now. Takes nothing if the process has no
    /// free descriptor. Closes and logs what comes in another version.
    pub(crate) fn take(&mut self) -> io::Result<Option<(OwnedFd, Note)>> {
        self.bytes.resize(LEN_MAX, 0);
        while let Some(inbox) = self.watch.as_ref().map(AsyncFd::get_ref) {
            fds::has_room(inbox)?;
            match fds::receive(inbox, &mut self.bytes) {
                Ok((len, received)) => match (Note::decode(&self.bytes[..len]), received) {
                    (Ok(note), mut fds) if fds.len() == 1 => {
                        return Ok(fds.pop().map(|connection| (connection, note)));
                    }
                    (_, fds) if len == 0 && fds.is_empty() && has_ended(inbox) => {
                        tracing::warn!("an inbox was shut down; nothing comes from it any more");
                        self.watch = None;
                    }
                    (_, fds) => {
                        tracing::error!(
                            connections = fds.len(),
                            "handed over in a version that this image does not know; closed"
                        );
                        fds::close_received(fds);
                    }
                },
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                    tracing::error!("handed over in too long a message; closed");
                }
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }
}

impl Note {
    fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::default();
        match (self.reason, &self.http2) {
            (Reason::HandedOver, None) => HANDED_OVER,
            (Reason::HandedOver, Some(_)) => HTTP2_HANDED_OVER,
            (Reason::Placed, _) => PLACED,
        }
        .put(&mut writer);
        self.local.put(&mut writer);
        let named = self
            .forwarded
            .map(|ends| (Address::Tcp(ends.peer), Address::Tcp(ends.local)));
        named.put(&mut writer);
        if let Some(http2) = &self.http2 {
            http2.put(&mut writer);
        }
        let (mut bytes, _) = writer.finish();
        bytes.extend_from_slice(&self.read_ahead);
        bytes
    }

    fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        let kind = u8::take(&mut reader)?;
        let reason = match kind {
            HANDED_OVER | HTTP2_HANDED_OVER => Reason::HandedOver,
            PLACED => Reason::Placed,
            _ => return Err(Malformed),
        };
        let local = Address::take(&mut reader)?;
        let forwarded = match <Option<(Address, Address)> as Record>::take(&mut reader)? {
            None => None,
            Some((Address::Tcp(peer), Address::Tcp(local))) => Some(Forwarded { peer, local }),
            Some(_) => return Err(Malformed),
        };
        let http2 = match kind {
            HTTP2_HANDED_OVER => Some(Bytes::take(&mut reader)?),
            _ => None,
        };
        Ok(Self {
            reason,
            local,
            forwarded,
            http2,
            read_ahead: Bytes::copy_from_slice(reader.rest()),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    use socket2::Socket;

    use super::*;

    fn note(read_ahead: &'static [u8]) -> Note {
        Note {
            reason: Reason::HandedOver,
            local: "[::1]:80".parse().expect("an address"),
            forwarded: None,
            http2: None,
            read_ahead: read_ahead.into(),
        }
    }

    /// Runs the test inside a runtime.
    fn with_inbox(test: impl FnOnce(Sender, Receiver)) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build()
            .expect("a runtime");
        let _inside = runtime.enter();
        let Inbox { sender, receiver } = Inbox::new().expect("a pair");
        let receiver = Receiver::new(receiver).expect("a runtime");
        test(Sender::new(sender), receiver);
    }

    #[test]
    fn a_note_is_read_as_it_was_written() {
        let unix = Note {
            local: "unix:/run/app.sock".parse().expect("an address"),
            ..note(b"GET / HT")
        };
        let forwarded = Note {
            forwarded: Some(Forwarded {
                peer: ([192, 0, 2, 7], 56324).into(),
                local: ([198, 51, 100, 1], 443).into(),
            }),
            ..note(b"GET")
        };
        let placed = Note {
            reason: Reason::Placed,
            ..note(b"")
        };
        let http2 = Note {
            http2: Some(b"state"[..].into()),
            ..note(b"\0\0\x01")
        };
        for note in [note(b""), note(b"\0\xff"), unix, forwarded, placed, http2] {
            assert_eq!(Note::decode(&note.encode()), Ok(note));
        }
    }

    #[test]
    fn other_bytes_are_refused_without_a_panic() {
        let http2 = Note {
            http2: Some(b"state"[..].into()),
            ..note(b"")
        };
        for whole in [note(b"").encode(), http2.encode()] {
            for length in 0..whole.len() {
                assert_eq!(Note::decode(&whole[..length]), Err(Malformed), "{length}");
            }
        }
        let whole = note(b"").encode();
        let known = [HANDED_OVER, PLACED, HTTP2_HANDED_OVER];
        for version in (0..=u8::MAX).filter(|version| !known.contains(version)) {
            let other = [&[version], &whole[1..]].concat();
            assert_eq!(Note::decode(&other), Err(Malformed), "{version}");
        }
        for tag in 0..=u8::MAX {
            let _ = Note::decode(&[HANDED_OVER, tag, 0xff, 0xff, 0xff, 0xff, 0]);
        }
    }

    #[test]
    fn the_master_sees_that_a_connection_waits() {
        let inbox = Inbox::new().expect("a pair");
        let (ours, _theirs) = UnixStream::pair().expect("a pair");
        assert!(!inbox.is_waited_in());
        let sender = inbox.sender().try_clone_to_owned().expect("a number");
        Sender::new(sender).send(&ours, &note(b"")).expect("room");
        assert!(inbox.is_waited_in());
    }

    #[test]
    fn a_sender_sees_that_nothing_is_left_in_the_inbox() {
        with_inbox(|sender, mut receiver| {
            let (ours, _theirs) = UnixStream::pair().expect("a pair");
            assert!(!sender.has_unread());
            sender.send(&ours, &note(b"")).expect("room");
            sender.send(&ours, &note(b"")).expect("room");
            for _ in 0..2 {
                assert!(sender.has_unread());
                receiver.take().expect("no error").expect("one");
            }
            assert!(!sender.has_unread());
        });
    }

    #[test]
    fn connections_arrive_one_by_one_with_their_bytes() {
        with_inbox(|sender, mut receiver| {
            let (ours, theirs) = UnixStream::pair().expect("a pair");
            sender.send(&ours, &note(b"ab")).expect("room");
            sender.send(&ours, &note(b"")).expect("room");
            drop(ours);
            let (first, received) = receiver.take().expect("no error").expect("one");
            assert_eq!(received, note(b"ab"));
            drop(first);
            let (second, received) = receiver.take().expect("no error").expect("another");
            assert_eq!(received, note(b""));
            assert!(receiver.take().expect("no error").is_none());
            theirs.set_nonblocking(true).expect("a socket");
            let open = std::io::Read::read(&mut &theirs, &mut [0]).expect_err("nothing to read");
            assert_eq!(open.kind(), io::ErrorKind::WouldBlock);
            drop(second);
            let ended = std::io::Read::read(&mut &theirs, &mut [0]);
            assert_eq!(ended.expect("the last one has it"), 0);
        });
    }

    #[test]
    fn connections_in_another_version_are_passed_over_and_closed() {
        with_inbox(|sender, mut receiver| {
            let (ours, theirs) = UnixStream::pair().expect("a pair");
            for bytes in [&b"\x04"[..], &[0; LEN_MAX + 1]] {
                fds::send(&sender.0, bytes, &[ours.as_raw_fd()]).expect("room");
            }
            let two = [ours.as_raw_fd(); 2];
            fds::send(&sender.0, &note(b"").encode(), &two).expect("room");
            fds::send(&sender.0, &note(b"").encode(), &[]).expect("room");
            sender.send(&theirs, &note(b"x")).expect("room");
            drop(ours);
            let (_connection, received) = receiver.take().expect("no error").expect("the last");
            assert_eq!(received, note(b"x"));
            let ended = std::io::Read::read(&mut &theirs, &mut [0]);
            assert_eq!(ended.expect("nobody has the other end"), 0);
        });
    }

    #[test]
    fn an_inbox_that_was_shut_down_is_emptied_and_then_nothing_comes_from_it() {
        with_inbox(|sender, mut receiver| {
            let (ours, _theirs) = UnixStream::pair().expect("a pair");
            fds::send(&sender.0, b"", &[]).expect("room");
            sender.send(&ours, &note(b"x")).expect("room");
            let (_, received) = receiver.take().expect("no error").expect("one");
            assert_eq!(received, note(b"x"), "an empty message is not the end");
            fds::send(&sender.0, b"", &[ours.as_raw_fd()]).expect("room");
            sender.send(&ours, &note(b"")).expect("room");
            let pair = socket2::SockRef::from(&sender.0);
            pair.shutdown(std::net::Shutdown::Both).expect("a socket");
            sender.send(&ours, &note(b"")).expect_err("it is shut down");
            receiver.take().expect("no error").expect("what was left");
            for _ in 0..2 {
                assert!(receiver.take().expect("no error").is_none());
                let polled = receiver.poll_take(&mut Context::from_waker(std::task::Waker::noop()));
                assert!(polled.is_pending());
            }
        });
    }

    #[test]
    fn to_close_what_another_process_sent_does_not_wait_for_its_unsent_data() {
        with_inbox(|sender, mut receiver| {
            let domain = socket2::Domain::IPV4;
            let stream = Socket::new(domain, socket2::Type::STREAM, None).expect("a socket");
            for bytes in [&b"\x03"[..], &[0; LEN_MAX + 1]] {
                let linger = Some(Duration::from_secs(600));
                stream.set_linger(linger).expect("an option");
                fds::send(&sender.0, bytes, &[stream.as_raw_fd()]).expect("room");
                assert!(receiver.take().expect("no error").is_none());
                assert_eq!(stream.linger().expect("an option"), None);
            }
        });
    }

    #[test]
    fn an_inbox_and_the_bytes_of_a_message_have_a_limit() {
        with_inbox(|sender, mut receiver| {
            let (ours, _theirs) = UnixStream::pair().expect("a pair");
            let long = Note {
                read_ahead: vec![b'x'; READ_AHEAD_MAX + 1].into(),
                ..note(b"")
            };
            let long_state = Note {
                http2: Some(vec![b's'; HTTP2_MAX + 1].into()),
                ..note(b"")
            };
            for note in [&long, &long_state] {
                let error = sender.send(&ours, note).expect_err("too much");
                assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
            }
            let longest = Note {
                read_ahead: long.read_ahead.slice(1..),
                forwarded: None,
                http2: Some(vec![b's'; HTTP2_MAX].into()),
                reason: Reason::HandedOver,
                local: format!("unix:/{}", "p".repeat(106)).parse().expect("valid"),
            };
            sender.send(&ours, &longest).expect("it fits");
            let (_, received) = receiver.take().expect("no error").expect("one");
            assert_eq!(received, longest);
            let full = (0..10_000).find_map(|count| {
                let error = sender.send(&ours, &note(b"")).err()?;
                Some((count, error.kind()))
            });
            let (count, kind) = full.expect("it is full at last");
            assert_eq!(kind, io::ErrorKind::WouldBlock);
            assert!(count > 100, "{count}");
        });
    }
}
