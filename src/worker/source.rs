//! What connections come in by: a listener, or the inbox of a slot.

use std::io;
use std::net;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use nix::errno::Errno;
use socket2::SockAddr;
use tokio::io::unix::AsyncFd;
use tokio::net::{TcpStream, UnixStream};

use crate::address::{Address, Peer};
use crate::id::Slot;
use crate::protocol::inbox::{Note, Receiver};
use crate::proxy::Forwarded;
use crate::row::Count;
use crate::sys::{fds, listener};
use crate::worker::stream::Stream;

/// One source. See the module's head.
#[derive(Debug)]
pub(super) struct Source {
    door: Door,
    /// Whose it is, if it was adopted.
    pub(super) adopted: Option<Slot>,
    /// How many connections waited when the drain began and have not been taken since; more than
    /// any number if that is not known.
    pub(super) waiting: usize,
}

#[derive(Debug)]
enum Door {
    Listener(AsyncFd<Arc<OwnedFd>>, Arc<Address>),
    Inbox(Receiver),
}

/// A connection that has come in and is not counted yet.
#[derive(Debug)]
pub(super) struct Accepted {
    pub(super) stream: Stream,
    pub(super) peer: Peer,
    pub(super) local: Arc<Address>,
    /// What was read by whoever had it before.
    pub(super) read_ahead: Bytes,
    /// What a balancer had said of the client.
    pub(super) forwarded: Option<Forwarded>,
    pub(super) origin: Origin,
}

/// Where a connection comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    Client,
    Worker,
}

impl Origin {
    pub(super) fn count(self) -> Count {
        match self {
            Self::Client => Count::Connections,
            Self::Worker => Count::TakenOver,
        }
    }
}

impl Source {
    /// To be called inside a runtime, as the next one.
    pub(super) fn listener(fd: OwnedFd, adopted: Option<Slot>) -> io::Result<Self> {
        let address = Arc::new(listener::address(&fd)?);
        let listener = fds::watch_readable(Arc::new(fd))?;
        Ok(Self::new(Door::Listener(listener, address), adopted))
    }

    pub(super) fn inbox(fd: OwnedFd, adopted: Option<Slot>) -> io::Result<Self> {
        Ok(Self::new(Door::Inbox(Receiver::new(fd)?), adopted))
    }

    fn new(door: Door, adopted: Option<Slot>) -> Self {
        Self {
            door,
            adopted,
            waiting: usize::MAX,
        }
    }

    pub(super) fn is_inbox(&self) -> bool {
        matches!(self.door, Door::Inbox(_))
    }

    /// The address that is listened on.
    pub(super) fn address(&self) -> Option<&Address> {
        match &self.door {
            Door::Listener(_, address) => Some(address),
            Door::Inbox(_) => None,
        }
    }

    /// Ready if a client waits to be accepted.
    pub(super) fn poll_waiting(&self, cx: &mut Context<'_>) -> Poll<()> {
        let Door::Listener(listener, _) = &self.door else {
            return Poll::Pending;
        };
        loop {
            let Ok(mut readable) = ready!(listener.poll_read_ready(cx)) else {
                return Poll::Pending;
            };
            if self.is_waiting() {
                return Poll::Ready(());
            }
            readable.clear_ready();
        }
    }

    /// Whether a client waits to be accepted.
    pub(super) fn is_waiting(&self) -> bool {
        match &self.door {
            Door::Listener(listener, _) => fds::is_readable(listener),
            Door::Inbox(_) => false,
        }
    }

    pub(super) fn count(&mut self) {
        let queued = match &self.door {
            Door::Listener(listener, _) => listener::queued(listener),
            Door::Inbox(_) => None,
        };
        self.waiting = queued.unwrap_or(usize::MAX);
    }

    pub(super) fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Accepted>> {
        match &mut self.door {
            Door::Listener(listener, address) => loop {
                let mut readable = ready!(listener.poll_read_ready(cx))?;
                match listener::accept(&*listener)? {
                    Some(connection) => return Accepted::direct(connection, address).into(),
                    None => readable.clear_ready(),
                }
            },
            Door::Inbox(inbox) => ready!(inbox.poll_take(cx))
                .and_then(|(connection, note)| Accepted::taken_over(connection, note))
                .into(),
        }
    }

    /// Asks the kernel itself; `None` if nothing waits.
    pub(super) fn accept_queued(&mut self) -> io::Result<Option<Accepted>> {
        match &mut self.door {
            Door::Listener(listener, address) => listener::accept(listener)?
                .map(|connection| Accepted::direct(connection, address))
                .transpose(),
            Door::Inbox(inbox) => inbox
                .take()?
                .map(|(connection, note)| Accepted::taken_over(connection, note))
                .transpose(),
        }
    }
}

impl Accepted {
    /// From a client that has connected to `local`.
    fn direct((fd, peer): (OwnedFd, SockAddr), local: &Arc<Address>) -> io::Result<Self> {
        let (stream, peer) = match peer.as_socket() {
            Some(peer) => (Stream::new(fd.into()), Peer::Tcp(peer)),
            None => (Stream::Unix(UnixStream::from_std(fd.into())?), Peer::Unix),
        };
        Ok(Self::new(stream, peer, Arc::clone(local)))
    }

    fn new(stream: Stream, peer: Peer, local: Arc<Address>) -> Self {
        Self {
            stream,
            peer,
            local,
            read_ahead: Bytes::new(),
            forwarded: None,
            origin: Origin::Client,
        }
    }

    /// Fails if the client is gone, or the sender meant something else by a connection.
    fn taken_over(connection: OwnedFd, note: Note) -> io::Result<Self> {
        let Note {
            local,
            forwarded,
            read_ahead,
        } = note;
        let (stream, peer) = match local {
            Address::Tcp(_) => {
                let stream = net::TcpStream::from(connection);
                let peer = Peer::Tcp(stream.peer_addr()?);
                (Stream::Tcp(TcpStream::from_std(stream)?), peer)
            }
            Address::Unix(_) => {
                let stream = UnixStream::from_std(connection.into())?;
                (Stream::Unix(stream), Peer::Unix)
            }
        };
        Ok(Self {
            read_ahead,
            forwarded,
            origin: Origin::Worker,
            ..Self::new(stream, peer, Arc::new(local))
        })
    }
}

/// Whether an error is about the one connection that was next, and is gone with it (accept(2),
/// "Error handling"; getpeername(2) of one whose client has left). Any other is about this process,
/// the system or the source, or may be: trying again at once would spin.
pub(super) fn is_of_connection(error: &io::Error) -> bool {
    let of_connection = [
        Errno::ECONNABORTED,
        Errno::EHOSTDOWN,
        Errno::EHOSTUNREACH,
        Errno::EINTR,
        Errno::ENETDOWN,
        Errno::ENETUNREACH,
        Errno::ENONET,
        Errno::ENOPROTOOPT,
        Errno::ENOTCONN,
        Errno::EPROTO,
        Errno::ETIMEDOUT,
    ];
    is_one_of(error, &of_connection)
}

/// Whether the process or the system has run out of something that it may get back.
pub(super) fn is_exhausted(error: &io::Error) -> bool {
    is_one_of(
        error,
        &[Errno::EMFILE, Errno::ENFILE, Errno::ENOBUFS, Errno::ENOMEM],
    )
}

fn is_one_of(error: &io::Error, numbers: &[Errno]) -> bool {
    error
        .raw_os_error()
        .is_some_and(|raw| numbers.contains(&Errno::from_raw(raw)))
}
