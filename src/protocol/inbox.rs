//! The inbox of a slot. A worker that drains, or that has more connections than others, sends
//! connections to it: those that were idle, and new ones of which no byte was read. The worker that
//! attends to the slot receives them. It is a `SOCK_SEQPACKET` pair with one connection in each
//! message, whose descriptor is sent as `SCM_RIGHTS`. If many bytes were read and not processed,
//! they are in a sealed file in memory, whose descriptor follows.
//!
//! The master keeps both ends, so connections in the inbox outlive sender and receiver. The inbox
//! holds some 270 connections (unix(7), `SO_SNDBUF`); the others stay with the sender until there
//! is room. A message could carry hundreds of connections. It carries one, so that a receiver takes
//! no more than it may hold, and so that a connection that cannot be sent stays with the sender.

mod harm;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io;
use std::iter;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use nix::errno::Errno;
use socket2::SockRef;
use tokio::io::unix::AsyncFd;
use zeroize::Zeroize;

use crate::address::Address;
use crate::codec::{Malformed, Reader, Record, Writer, record};
use crate::moved::{Moved, READ_AHEAD_MAX};
use crate::proxy::Forwarded;
use crate::secret::{self, Secret};
use crate::sys::fds;
use crate::sys::memory;
use crate::sys::socket::has_ended;

/// The first byte of a message says what comes, and in which version. The sender may be of another
/// image; a receiver closes connections that come in another version.
const HANDED_OVER: u8 = 1;
const PLACED: u8 = 2;
const HTTP2_HANDED_OVER: u8 = 3;
const TLS_HANDED_OVER: u8 = 4;
/// A file follows the connection, and one of these the byte.
const WITH_FILE: u8 = 5;

/// The most bytes of what an HTTP/2 client will not send again: its header table and some numbers.
const HTTP2_MAX: usize = 16 * 1024;

/// The version, the addresses and some lengths. A path is short (unix(7), `sun_path`).
const ADDRESSES_MAX: usize = 256;

/// More bytes that were read and not processed go into a file.
const INLINE_MAX: usize = 16 * 1024;

/// The longest message. A buffer of the kernel's default size (unix(7), `SO_SNDBUF`) holds several.
const LEN_MAX: usize = INLINE_MAX + HTTP2_MAX + secret::RECORD_MAX + ADDRESSES_MAX;

/// A message has so many descriptors at most.
const FDS_MAX: usize = 2;

/// A receiver closes so many messages in a row that are no connections, and fails then. A hostile
/// worker may send them as fast as they are received.
const CLOSED_MAX: usize = 16;

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
    /// What moves with the socket. Of a connection that is placed, nothing.
    pub(crate) moved: Moved,
}

impl Inbox {
    pub(crate) fn new() -> io::Result<Self> {
        let (sender, receiver) = fds::seqpacket_pair()?;
        fds::refuse_filters(&sender);
        fds::refuse_filters(&receiver);
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
    /// room: in the inbox, or for more descriptors of this user in all sockets.
    pub(crate) fn send(&self, connection: impl AsFd, note: &Note) -> io::Result<()> {
        let Moved {
            tls,
            http2,
            read_ahead,
        } = &note.moved;
        if read_ahead.len() > READ_AHEAD_MAX
            || http2
                .as_ref()
                .is_some_and(|record| record.len() > HTTP2_MAX)
            || tls
                .as_ref()
                .is_some_and(|record| record.len() > secret::RECORD_MAX)
        {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let mut message = note.encode();
        let file = match note.needs_file() {
            true => Some(memory::sealed(c"prefork-read-ahead", read_ahead)?),
            false => None,
        };
        let fds = iter::once(connection.as_fd()).chain(file.as_ref().map(AsFd::as_fd));
        let fds: Vec<_> = fds.map(|fd| fd.as_raw_fd()).collect();
        let sent = fds::send(&self.0, &message, &fds).map_err(or_no_room);
        if tls.is_some() {
            message.as_mut_slice().zeroize();
        }
        sent
    }
}

/// The kernel sends no descriptor for a user who has as many in sockets as a process may have open
/// (unix(7), `ETOOMANYREFS`). No socket tells when that is over.
fn or_no_room(error: io::Error) -> io::Error {
    match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::ETOOMANYREFS) => io::ErrorKind::WouldBlock.into(),
        _ => error,
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

    /// `None` if the inbox was shut down.
    pub(crate) fn socket(&self) -> Option<&Arc<OwnedFd>> {
        self.watch.as_ref().map(AsyncFd::get_ref)
    }

    /// Whether a connection waits. `false` for an inbox that was shut down.
    pub(crate) fn is_waited_in(&self) -> bool {
        let waits = |inbox| fds::is_readable(inbox) && !has_ended(inbox);
        self.socket().is_some_and(waits)
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
    /// free descriptor. Closes and logs what comes in another version; after [`CLOSED_MAX`] of them
    /// this fails, and the next call goes on.
    pub(crate) fn take(&mut self) -> io::Result<Option<(OwnedFd, Note)>> {
        self.bytes.resize(LEN_MAX, 0);
        for _ in 0..CLOSED_MAX {
            let Some(inbox) = self.watch.as_ref().map(AsyncFd::get_ref) else {
                return Ok(None);
            };
            fds::has_room(inbox, FDS_MAX)?;
            match fds::receive(inbox, &mut self.bytes) {
                Ok((0, fds)) if fds.is_empty() && has_ended(inbox) => {
                    tracing::warn!("an inbox was shut down; nothing comes from it any more");
                    self.watch = None;
                }
                Ok((len, mut fds)) => match Note::receive(&self.bytes[..len], &mut fds) {
                    Ok((connection, note)) => {
                        if note.moved.tls.is_some() {
                            self.bytes[..len].zeroize();
                        }
                        return Ok(Some((connection, note)));
                    }
                    Err(Malformed) => {
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
        let why = "much in an inbox is no connection";
        Err(io::Error::new(io::ErrorKind::InvalidData, why))
    }
}

impl Note {
    /// The message. It lacks the bytes that were read and not processed if they are in a file.
    fn encode(&self) -> Vec<u8> {
        let Moved { tls, http2, .. } = &self.moved;
        let read_ahead = match self.needs_file() {
            true => &[],
            false => &self.moved.read_ahead[..],
        };
        // So that no copy of a session stays where a shorter buffer was.
        let records =
            tls.as_deref().map_or(0, <[u8]>::len) + http2.as_deref().map_or(0, <[u8]>::len);
        let mut writer = Writer::with_capacity(ADDRESSES_MAX + records + read_ahead.len());
        if self.needs_file() {
            WITH_FILE.put(&mut writer);
        }
        match (self.reason, tls, http2) {
            (Reason::HandedOver, Some(_), _) => TLS_HANDED_OVER,
            (Reason::HandedOver, None, None) => HANDED_OVER,
            (Reason::HandedOver, None, Some(_)) => HTTP2_HANDED_OVER,
            (Reason::Placed, ..) => PLACED,
        }
        .put(&mut writer);
        self.local.put(&mut writer);
        let named = self
            .forwarded
            .map(|ends| (Address::Tcp(ends.peer), Address::Tcp(ends.local)));
        named.put(&mut writer);
        match (tls, http2) {
            (Some(session), http2) => {
                session.put(&mut writer);
                http2.put(&mut writer);
            }
            (None, Some(http2)) => http2.put(&mut writer),
            (None, None) => {}
        }
        let (mut bytes, _) = writer.finish();
        bytes.extend_from_slice(read_ahead);
        bytes
    }

    fn needs_file(&self) -> bool {
        self.moved.read_ahead.len() > INLINE_MAX
    }

    /// Reads a message. Takes what belongs to it out of the descriptors that came with it: the
    /// connection, and the file.
    fn receive(bytes: &[u8], fds: &mut Vec<OwnedFd>) -> Result<(OwnedFd, Self), Malformed> {
        let with_file = bytes.strip_prefix(&[WITH_FILE]);
        let mut note = Self::decode(with_file.unwrap_or(bytes))?;
        if fds.len() != 1 + usize::from(with_file.is_some()) {
            return Err(Malformed);
        }
        if with_file.is_some() {
            let file = File::from(fds.remove(1));
            // The sender may be a hostile worker. To read more would take time from all clients.
            match memory::contents_up_to(&file, READ_AHEAD_MAX) {
                Ok(bytes) => note.moved.read_ahead = bytes.into(),
                Err(_) => {
                    fds.push(file.into());
                    return Err(Malformed);
                }
            }
        }
        // The runtime must not wait for it. A worker of this server sends no other.
        if SockRef::from(&fds[0]).set_nonblocking(true).is_err() {
            return Err(Malformed);
        }
        Ok((fds.remove(0), note))
    }

    fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        let kind = u8::take(&mut reader)?;
        let reason = match kind {
            HANDED_OVER | HTTP2_HANDED_OVER | TLS_HANDED_OVER => Reason::HandedOver,
            PLACED => Reason::Placed,
            _ => return Err(Malformed),
        };
        let local = Address::take(&mut reader)?;
        let forwarded = match <Option<(Address, Address)> as Record>::take(&mut reader)? {
            None => None,
            Some((Address::Tcp(peer), Address::Tcp(local))) => Some(Forwarded { peer, local }),
            Some(_) => return Err(Malformed),
        };
        let (tls, http2) = match kind {
            TLS_HANDED_OVER => (Some(Secret::take(&mut reader)?), Record::take(&mut reader)?),
            HTTP2_HANDED_OVER => (None, Some(Bytes::take(&mut reader)?)),
            _ => (None, None),
        };
        Ok(Self {
            reason,
            local,
            forwarded,
            moved: Moved {
                tls,
                http2,
                read_ahead: Bytes::copy_from_slice(reader.rest()),
            },
        })
    }
}
