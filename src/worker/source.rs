//! Where connections come from: a listener, or the inbox of a slot.

use std::io;
use std::net;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use nix::errno::Errno;
use socket2::{SockAddr, SockRef};
use tokio::io::unix::AsyncFd;
use tokio::net::{TcpStream, UnixStream};
use tokio::time::{Sleep, sleep};

use crate::address::{Address, Peer};
use crate::id::Slot;
use crate::moved::Moved;
use crate::protocol::inbox::{Note, Reason, Receiver};
use crate::proxy::Forwarded;
use crate::stats::Count;
use crate::sys::{fds, file_status, listener};
use crate::worker::stream::Stream;

/// A listener or an inbox, with what the worker's queue knows of it.
#[derive(Debug)]
pub(super) struct Source {
    kind: SourceKind,
    /// That of the socket, which all descriptors of it have in common; `None` if the kernel does
    /// not tell.
    inode: Option<u64>,
    /// The slot that the source was adopted from; `None` if it is the worker's own.
    pub(super) adopted: Option<Slot>,
    /// Connections that waited when the drain began and have not been taken since; `usize::MAX` if
    /// the kernel does not tell.
    pub(super) waiting: usize,
    /// Set while the worker takes nothing from this source, because it fails.
    rest: Option<Pin<Box<Sleep>>>,
}

#[derive(Debug)]
enum SourceKind {
    Listener(Listener),
    Inbox(Receiver),
}

#[derive(Debug)]
struct Listener {
    fd: Arc<OwnedFd>,
    address: Arc<Address>,
    /// `None` if the next poll has to make it.
    watch: Option<AsyncFd<Arc<OwnedFd>>>,
}

/// A connection that has come in and is not counted yet.
#[derive(Debug)]
pub(super) struct Accepted {
    pub(super) stream: Stream,
    pub(super) peer: Peer,
    pub(super) local: Arc<Address>,
    /// What the worker before this one knew of the connection.
    pub(super) moved: Moved,
    /// The addresses in the PROXY header that the worker before this one has read.
    pub(super) forwarded: Option<Forwarded>,
    pub(super) origin: Origin,
}

/// Where a connection comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Origin {
    /// The client has just connected.
    #[default]
    Client,
    /// The client has just connected, and a sibling has accepted it.
    Sibling,
    /// Another worker has handed the connection over. It was idle.
    Worker,
}

impl Origin {
    pub(super) fn count(self) -> Count {
        match self {
            Self::Client | Self::Sibling => Count::Connections,
            Self::Worker => Count::TakenOver,
        }
    }

    /// Whether no worker has served it.
    pub(super) fn is_new(self) -> bool {
        self != Self::Worker
    }
}

impl Source {
    /// Call inside a runtime. An earlier worker may have made the listener blocking for all
    /// processes that have it. Then an accept4(2) from an empty queue would stop the event loop.
    pub(super) fn listener(fd: OwnedFd, adopted: Option<Slot>) -> io::Result<Self> {
        SockRef::from(&fd).set_nonblocking(true)?;
        let fd = Arc::new(fd);
        let inode = inode(&fd);
        let listener = Listener {
            address: Arc::new(listener::address(&fd)?),
            watch: Some(fds::watch_readable(Arc::clone(&fd))?),
            fd,
        };
        Ok(Self::new(SourceKind::Listener(listener), inode, adopted))
    }

    /// Call inside a runtime.
    pub(super) fn inbox(fd: OwnedFd, adopted: Option<Slot>) -> io::Result<Self> {
        let inode = inode(&fd);
        let inbox = SourceKind::Inbox(Receiver::new(fd)?);
        Ok(Self::new(inbox, inode, adopted))
    }

    fn new(kind: SourceKind, inode: Option<u64>, adopted: Option<Slot>) -> Self {
        Self {
            kind,
            inode,
            adopted,
            waiting: usize::MAX,
            rest: None,
        }
    }

    /// Whether both are one socket. A worker that adopts compares each listener of the slot with
    /// each that it has, so this asks the kernel nothing.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.is_open() && other.is_open() && self.inode.is_some() && self.inode == other.inode
    }

    /// False for an inbox that was shut down. Another socket may have its inode by now.
    fn is_open(&self) -> bool {
        match &self.kind {
            SourceKind::Listener(_) => true,
            SourceKind::Inbox(inbox) => inbox.socket().is_some(),
        }
    }

    pub(super) fn is_inbox(&self) -> bool {
        matches!(self.kind, SourceKind::Inbox(_))
    }

    /// The listener's address; `None` for an inbox.
    pub(super) fn address(&self) -> Option<&Address> {
        match &self.kind {
            SourceKind::Listener(listener) => Some(&listener.address),
            SourceKind::Inbox(_) => None,
        }
    }

    /// Ready if a connection waits to be taken.
    pub(super) fn poll_waiting(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let waiting = match &mut self.kind {
            SourceKind::Listener(listener) => {
                listener.poll(cx, |fd| Ok(fds::is_readable(fd).then_some(())))
            }
            SourceKind::Inbox(inbox) => inbox.poll_waiting(cx),
        };
        match ready!(waiting) {
            Ok(()) => Poll::Ready(()),
            Err(_) => Poll::Pending,
        }
    }

    /// Whether a connection waits to be taken.
    pub(super) fn is_waiting(&self) -> bool {
        match &self.kind {
            SourceKind::Listener(listener) => fds::is_readable(&listener.fd),
            SourceKind::Inbox(inbox) => inbox.is_waited_in(),
        }
    }

    /// Asks the kernel how many connections wait now.
    pub(super) fn count(&mut self) {
        let queued = match &self.kind {
            SourceKind::Listener(listener) => listener::queued(&listener.fd),
            SourceKind::Inbox(_) => None,
        };
        self.waiting = queued.unwrap_or(usize::MAX);
    }

    /// Takes nothing from this source for so long.
    pub(super) fn rest(&mut self, pause: Duration) {
        self.rest = Some(Box::pin(sleep(pause)));
    }

    pub(super) fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Accepted>> {
        if let Some(rest) = &mut self.rest {
            ready!(rest.as_mut().poll(cx));
            self.rest = None;
        }
        match &mut self.kind {
            SourceKind::Listener(listener) => ready!(listener.poll(cx, |fd| listener::accept(fd)))
                .and_then(|connection| Accepted::direct(connection, &listener.address))
                .into(),
            SourceKind::Inbox(inbox) => ready!(inbox.poll_take(cx))
                .and_then(|(connection, note)| Accepted::received(connection, note))
                .into(),
        }
    }

    /// Accepts without asking the runtime first; `None` if nothing waits.
    pub(super) fn accept_queued(&mut self) -> io::Result<Option<Accepted>> {
        match &mut self.kind {
            SourceKind::Listener(listener) => listener::accept(&listener.fd)?
                .map(|connection| Accepted::direct(connection, &listener.address))
                .transpose(),
            SourceKind::Inbox(inbox) => inbox
                .take()?
                .map(|(connection, note)| Accepted::received(connection, note))
                .transpose(),
        }
    }
}

fn inode(socket: &OwnedFd) -> Option<u64> {
    Some(file_status::of(socket, c"").ok()?.inode)
}

impl Listener {
    /// Ready when `look` finds something, or fails.
    fn poll<T>(
        &mut self,
        cx: &mut Context<'_>,
        look: impl Fn(&OwnedFd) -> io::Result<Option<T>>,
    ) -> Poll<io::Result<T>> {
        loop {
            let watch = match &mut self.watch {
                Some(watch) => watch,
                none => none.insert(fds::watch_readable(Arc::clone(&self.fd))?),
            };
            let mut readable = ready!(watch.poll_read_ready(cx))?;
            if let Some(found) = look(&self.fd)? {
                return Poll::Ready(Ok(found));
            }
            if readable.ready().is_read_closed() {
                // The listener was shut down, and listens again. The runtime would take it for
                // ready for ever.
                self.watch = None;
            } else {
                readable.clear_ready();
            }
        }
    }
}

impl Accepted {
    /// From a client that has connected to `local`.
    fn direct((fd, peer): (OwnedFd, SockAddr), local: &Arc<Address>) -> io::Result<Self> {
        let (stream, peer) = match peer.as_socket() {
            Some(peer) => (Stream::new(fd.into()), Peer::tcp(peer)),
            None => (Stream::Unix(UnixStream::from_std(fd.into())?), Peer::Unix),
        };
        Ok(Self::new(stream, peer, Arc::clone(local)))
    }

    pub(super) fn new(stream: Stream, peer: Peer, local: Arc<Address>) -> Self {
        Self {
            stream,
            peer,
            local,
            moved: Moved::default(),
            forwarded: None,
            origin: Origin::Client,
        }
    }

    /// One that was given to a sibling, and comes back.
    pub(super) fn taken_back(mut self) -> Self {
        if self.origin == Origin::Sibling {
            self.origin = Origin::Client;
        }
        self
    }

    /// From an inbox. Fails if the client is gone, or if the descriptor is no socket of the family
    /// in the note. The error is of the connection: the next one may be another worker's.
    fn received(connection: OwnedFd, note: Note) -> io::Result<Self> {
        let Note {
            reason,
            local,
            forwarded,
            moved,
        } = note;
        let ends = match local {
            Address::Tcp(_) => tcp_ends(connection.into()),
            Address::Unix(_) => UnixStream::from_std(connection.into())
                .map(|stream| (Stream::Unix(stream), Peer::Unix)),
        };
        let (stream, peer) =
            ends.map_err(|error| io::Error::new(io::ErrorKind::ConnectionAborted, error))?;
        Ok(Self {
            moved,
            forwarded,
            origin: match reason {
                Reason::HandedOver => Origin::Worker,
                Reason::Placed => Origin::Sibling,
            },
            ..Self::new(stream, peer, Arc::new(local))
        })
    }
}

fn tcp_ends(stream: net::TcpStream) -> io::Result<(Stream, Peer)> {
    let peer = Peer::tcp(stream.peer_addr()?);
    Ok((Stream::Tcp(TcpStream::from_std(stream)?), peer))
}

/// Whether an error concerns only the next connection and is gone with it (accept(2), "Error
/// handling"; getpeername(2) if the client has left). Any other error may concern the process, the
/// system or the source, so trying again at once could spin.
pub(super) fn is_of_connection(error: &io::Error) -> bool {
    let of_connection = [
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
    error.kind() == io::ErrorKind::ConnectionAborted || is_one_of(error, &of_connection)
}

/// Whether the process or the system has run out of descriptors or memory, which it may get back.
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
