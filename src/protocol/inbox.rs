//! The inbox of a slot: by it connections go to whoever attends to the slot, from a worker that
//! drains or from a sibling that has more to do. A `SOCK_SEQPACKET` pair, one connection a message,
//! its descriptor as `SCM_RIGHTS`.
//!
//! The master keeps both ends for good, so what is in it outlives sender and receiver alike. It
//! holds some 270 connections (unix(7), `SO_SNDBUF`); the rest stay with the sender until there is
//! room. One a message, though a message could carry hundreds: so a receiver takes no more than it
//! may hold, and what cannot be sent is still whole in the sender's hands.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use tokio::io::unix::AsyncFd;

use crate::address::Address;
use crate::proxy::Forwarded;
use crate::record::{Malformed, Reader, Record, Writer, record};
use crate::sys::fds;

/// How a message is written. A receiver of another version closes the connection; the sender may
/// be of another image.
const VERSION: u8 = 1;

/// The most bytes that travel along that were read and not answered. A pair takes messages of
/// three times that size.
pub(crate) const READ_AHEAD_MAX: usize = 64 * 1024;

/// Version, address and bytes: a path is short (unix(7), `sun_path`).
const LEN_MAX: usize = READ_AHEAD_MAX + 256;

/// Both ends.
#[derive(Debug)]
pub(crate) struct Inbox {
    sender: OwnedFd,
    receiver: OwnedFd,
}

record!(Inbox { sender, receiver });

/// The end that connections are put into. Clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct Sender(Arc<OwnedFd>);

/// The end that they are taken from. Several may have it; each connection goes to one of them.
#[derive(Debug)]
pub(crate) struct Receiver {
    watch: AsyncFd<Arc<OwnedFd>>,
    bytes: Vec<u8>,
}

/// What is told of a connection besides its descriptor; its client's address the socket knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Note {
    /// The listener's address.
    pub(crate) local: Address,
    /// What a balancer said of the client. The header itself is read, and never comes again.
    pub(crate) forwarded: Option<Forwarded>,
    /// What was read and not answered, usually nothing.
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

    /// Whether somebody ought to take a connection.
    pub(crate) fn is_waited_in(&self) -> bool {
        fds::is_readable(&self.receiver)
    }
}

impl Sender {
    /// One that was inherited.
    pub(crate) fn new(fd: OwnedFd) -> Self {
        Self(Arc::new(fd))
    }

    /// Watches, inside a tokio runtime, for there to be room.
    pub(crate) fn watch(&self) -> io::Result<AsyncFd<Arc<OwnedFd>>> {
        fds::watch_writable(Arc::clone(&self.0))
    }

    /// Puts a connection in, which is to be dropped here then. `WouldBlock` if there is no room.
    pub(crate) fn send(&self, connection: impl AsFd, note: &Note) -> io::Result<()> {
        if note.read_ahead.len() > READ_AHEAD_MAX {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        fds::send(&self.0, &note.encode(), &[connection.as_fd().as_raw_fd()])
    }
}

impl Receiver {
    /// One that was inherited or adopted. To be called inside a tokio runtime.
    pub(crate) fn new(fd: OwnedFd) -> io::Result<Self> {
        Ok(Self {
            watch: fds::watch_readable(Arc::new(fd))?,
            bytes: Vec::new(),
        })
    }

    /// Takes the next connection, as [`Receiver::take`] does.
    pub(crate) fn poll_take(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<(OwnedFd, Note)>> {
        loop {
            // Asked first: it costs nothing as long as nothing comes.
            ready!(self.watch.poll_read_ready(cx))?.retain_ready();
            if let Some(taken) = self.take()? {
                return Poll::Ready(Ok(taken));
            }
            ready!(self.watch.poll_read_ready(cx))?.clear_ready();
        }
    }

    /// Takes the next connection; `None` if there is none now. Without a free descriptor nothing is
    /// taken. What somebody else's message holds is closed and told.
    pub(crate) fn take(&mut self) -> io::Result<Option<(OwnedFd, Note)>> {
        self.bytes.resize(LEN_MAX, 0);
        loop {
            fds::has_room(self.watch.get_ref())?;
            match fds::receive(self.watch.get_ref(), &mut self.bytes) {
                Ok((len, received)) => match (Note::decode(&self.bytes[..len]), received) {
                    (Ok(note), mut fds) if fds.len() == 1 => {
                        return Ok(fds.pop().map(|connection| (connection, note)));
                    }
                    // No receiver is left without a sender, but not to spin is worth a line.
                    (_, _) if len == 0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                    (_, fds) => tracing::error!(
                        connections = fds.len(),
                        "handed over in a way that this image does not know; closed"
                    ),
                },
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                    tracing::error!("handed over in too long a message; closed");
                }
                Err(error) => return Err(error),
            }
        }
    }
}

impl Note {
    fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::default();
        VERSION.put(&mut writer);
        self.local.put(&mut writer);
        let named = self
            .forwarded
            .map(|ends| (Address::Tcp(ends.peer), Address::Tcp(ends.local)));
        named.put(&mut writer);
        let (mut bytes, _) = writer.finish();
        bytes.extend_from_slice(&self.read_ahead);
        bytes
    }

    fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        if u8::take(&mut reader)? != VERSION {
            return Err(Malformed);
        }
        let local = Address::take(&mut reader)?;
        let forwarded = match <Option<(Address, Address)> as Record>::take(&mut reader)? {
            None => None,
            Some((Address::Tcp(peer), Address::Tcp(local))) => Some(Forwarded { peer, local }),
            Some(_) => return Err(Malformed),
        };
        Ok(Self {
            local,
            forwarded,
            read_ahead: Bytes::copy_from_slice(reader.rest()),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    fn note(read_ahead: &'static [u8]) -> Note {
        Note {
            local: "[::1]:80".parse().expect("an address"),
            forwarded: None,
            read_ahead: read_ahead.into(),
        }
    }

    /// Inside a runtime, as workers have one.
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
        for note in [note(b""), note(b"\0\xff"), unix, forwarded] {
            assert_eq!(Note::decode(&note.encode()), Ok(note));
        }
    }

    #[test]
    fn what_is_no_note_is_refused_without_a_panic() {
        let whole = note(b"").encode();
        for length in 0..whole.len() {
            assert_eq!(Note::decode(&whole[..length]), Err(Malformed), "{length}");
        }
        for version in (0..=u8::MAX).filter(|&version| version != VERSION) {
            let other = [&[version], &whole[1..]].concat();
            assert_eq!(Note::decode(&other), Err(Malformed), "{version}");
        }
        for tag in 0..=u8::MAX {
            let _ = Note::decode(&[VERSION, tag, 0xff, 0xff, 0xff, 0xff, 0]);
        }
    }

    #[test]
    fn what_waits_is_seen_from_outside() {
        let inbox = Inbox::new().expect("a pair");
        let (ours, _theirs) = UnixStream::pair().expect("a pair");
        assert!(!inbox.is_waited_in());
        let sender = inbox.sender().try_clone_to_owned().expect("a number");
        Sender::new(sender).send(&ours, &note(b"")).expect("room");
        assert!(inbox.is_waited_in());
    }

    #[test]
    fn connections_arrive_one_by_one_with_their_bytes() {
        with_inbox(|sender, mut receiver| {
            let (ours, theirs) = UnixStream::pair().expect("a pair");
            sender.send(&ours, &note(b"ab")).expect("room");
            sender.send(&ours, &note(b"")).expect("room");
            drop(ours);
            let (first, told) = receiver.take().expect("no error").expect("one");
            assert_eq!(told, note(b"ab"));
            drop(first);
            let (second, told) = receiver.take().expect("no error").expect("another");
            assert_eq!(told, note(b""));
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
    fn what_another_image_sent_is_passed_over_and_closed() {
        with_inbox(|sender, mut receiver| {
            let (ours, theirs) = UnixStream::pair().expect("a pair");
            for bytes in [&b"\x02"[..], &[0; LEN_MAX + 1]] {
                fds::send(&sender.0, bytes, &[ours.as_raw_fd()]).expect("room");
            }
            let two = [ours.as_raw_fd(); 2];
            fds::send(&sender.0, &note(b"").encode(), &two).expect("room");
            fds::send(&sender.0, &note(b"").encode(), &[]).expect("room");
            sender.send(&theirs, &note(b"x")).expect("room");
            drop(ours);
            let (_connection, told) = receiver.take().expect("no error").expect("the last");
            assert_eq!(told, note(b"x"));
            let ended = std::io::Read::read(&mut &theirs, &mut [0]);
            assert_eq!(ended.expect("nobody has the other end"), 0);
        });
    }

    #[test]
    fn there_is_an_end_to_an_inbox_and_to_what_travels_along() {
        with_inbox(|sender, mut receiver| {
            let (ours, _theirs) = UnixStream::pair().expect("a pair");
            let long = Note {
                read_ahead: vec![b'x'; READ_AHEAD_MAX + 1].into(),
                ..note(b"")
            };
            let error = sender.send(&ours, &long).expect_err("too much");
            assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
            let longest = Note {
                read_ahead: long.read_ahead.slice(1..),
                forwarded: None,
                local: format!("unix:/{}", "p".repeat(106)).parse().expect("valid"),
            };
            sender.send(&ours, &longest).expect("it fits");
            let (_, told) = receiver.take().expect("no error").expect("one");
            assert_eq!(told, longest);
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
