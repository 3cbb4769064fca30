//! The control channel between the master and a worker: a `SOCK_SEQPACKET` pair with one message in
//! each packet, and descriptors as `SCM_RIGHTS`. When one process ends, the other sees the end of
//! the channel.

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::unix::AsyncFd;

use crate::codec::{self, Malformed, Reader, Record, Writer, record};
use crate::drain::Idle;
use crate::handle::Command;
use crate::id::Slot;
use crate::protocol::state::Versions;
use crate::sys::fds;

/// How long a [`ToWorker::Share`] is valid, and how often the master compares the loads.
pub(crate) const SHARE_TERM: Duration = Duration::from_millis(250);

/// The most addresses of a server: one message of an adoption carries a listener for each address,
/// and an inbox.
pub(crate) const ADDRESSES_MAX: usize = fds::MESSAGE_FDS_MAX - 1;

/// The most siblings of a worker: those to which it gives new connections. A worker has two
/// descriptors and a mapped page for each.
pub(crate) const SIBLINGS_MAX: usize = 8;

const _: () = assert!(SIBLINGS_MAX * SIBLING_FDS <= fds::MESSAGE_FDS_MAX);

/// How many descriptors a message has for each sibling.
const SIBLING_FDS: usize = 3;

/// The longest message.
const LEN_MAX: usize = 1024;

/// The longest error text in a message, which is cut: beside it are a tag and its length.
const WHY_MAX: usize = LEN_MAX - size_of::<u8>() - size_of::<u32>();

/// One side of a channel. Clones are the same side, which closes when the last one is dropped.
#[derive(Clone, Debug)]
pub(crate) struct Channel {
    fd: Arc<OwnedFd>,
}

/// A message of the master.
#[derive(Debug)]
pub(crate) enum ToWorker {
    /// Finish what is open and exit. A second one is [`Idle::Close`]: no worker takes over.
    Drain(Idle),
    /// The whole server ends, now or after its pre-stop delay. Serve on until `Drain`.
    Stopping,
    /// Attend to a slot whose own worker does not serve: accept from these listeners and from its
    /// inbox. If it is the worker's own slot, some of them are new. The worker may have the others.
    Adopt {
        slot: Slot,
        inbox: OwnedFd,
        listeners: Vec<OwnedFd>,
    },
    /// An `Adopt` whose descriptors were lost, because this process is at its limit.
    NotReceived(Slot),
    /// Stop attending to that slot.
    Release(Slot),
    /// Call the hook that reopens logs.
    ReopenLogs,
    /// Write a heartbeat: the master is in doubt whether the worker hangs.
    Beat,
    /// Give so many connections to another slot, by its inbox.
    Share { connections: u16, inbox: OwnedFd },
    /// These, and no others, are the workers that may get new connections. None, if descriptors
    /// were lost.
    Siblings(Vec<SiblingEnds>),
}

/// What a worker has of another one.
#[derive(Debug)]
pub(crate) struct SiblingEnds {
    /// Its page, which can only be read.
    pub(crate) page: OwnedFd,
    /// Both ends of its slot's inbox.
    pub(crate) sender: OwnedFd,
    pub(crate) receiver: OwnedFd,
}

/// A [`ToWorker`] as the master sends it, with borrowed descriptors.
#[derive(Clone, Debug)]
pub(crate) enum ToWorkerRef<'a> {
    Drain(Idle),
    Stopping,
    Adopt {
        slot: Slot,
        inbox: BorrowedFd<'a>,
        listeners: Vec<BorrowedFd<'a>>,
    },
    Release(Slot),
    ReopenLogs,
    Beat,
    Share {
        connections: u16,
        inbox: BorrowedFd<'a>,
    },
    /// Of each sibling: its page, and the sender and the receiver of its inbox.
    Siblings(Vec<[BorrowedFd<'a>; SIBLING_FDS]>),
}

/// A message of a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ToMaster {
    /// The worker has served its share and asks to be replaced.
    Recycle,
    /// The worker got a signal that was not from the master. It drains, and accepts no more.
    Leaving,
    /// The worker accepts connections. A master of its image reads these versions of a state.
    Ready(Versions),
    /// The worker has drained. It had to cut so many connections.
    Drained { cut: u32 },
    /// The worker ends because of this error.
    Failed(String),
    /// The worker could not adopt this slot.
    NotAdopted(Slot),
    /// A handle in the worker gives this command.
    Asked(Command),
}

/// The result of receiving from a channel.
#[derive(Debug)]
pub(crate) enum Received<T> {
    Message(T),
    /// The other side is closed.
    End,
    /// There is no message now.
    Nothing,
}

impl Channel {
    /// The master's side and the worker's.
    pub(crate) fn pair() -> io::Result<(Self, Self)> {
        let (master, worker) = fds::seqpacket_pair()?;
        fds::refuse_descriptors(&master);
        Ok((Self::new(master), Self::new(worker)))
    }

    /// A side that was inherited.
    pub(crate) fn new(fd: OwnedFd) -> Self {
        Self { fd: Arc::new(fd) }
    }

    /// Waits for messages and for the end. Call inside a tokio runtime.
    pub(crate) fn watch(&self) -> io::Result<AsyncFd<Arc<OwnedFd>>> {
        fds::watch_readable(Arc::clone(&self.fd))
    }

    /// Sends a message to the worker.
    pub(crate) fn send_to_worker(&self, message: ToWorkerRef<'_>) -> io::Result<()> {
        let raw: Vec<RawFd> = message.fds().map(|fd| fd.as_raw_fd()).collect();
        fds::send(self, &message.encode(), &raw)
    }

    pub(crate) fn send_to_master(&self, message: &ToMaster) -> io::Result<()> {
        fds::send(self, &message.encode(), &[])
    }

    /// Receives the next message of the master.
    pub(crate) fn recv_from_master(&self) -> io::Result<Received<ToWorker>> {
        self.recv(&mut [0; LEN_MAX], fds::receive, ToWorker::decode)
    }

    /// Receives the next message of the worker. Descriptors from a worker are an error; after it
    /// the master must [discard](crate::sys::discard) the channel.
    pub(crate) fn recv_from_worker(&self) -> io::Result<Received<ToMaster>> {
        let receive = |from, bytes: &mut [u8]| Ok((fds::receive_bytes(from, bytes)?, ()));
        let decode = |bytes: &[u8], ()| ToMaster::decode(bytes);
        self.recv(&mut [0; LEN_MAX], receive, decode)
    }

    /// Receives the next message into `bytes`, which must have room for the longest.
    pub(super) fn recv<'a, T, D>(
        &'a self,
        bytes: &mut [u8],
        receive: impl Fn(BorrowedFd<'a>, &mut [u8]) -> io::Result<(usize, D)>,
        decode: impl Fn(&[u8], D) -> Option<T>,
    ) -> io::Result<Received<T>> {
        let is_reset = |error: &io::Error| error.kind() == io::ErrorKind::ConnectionReset;
        let mut received = receive(self.as_fd(), bytes);
        // The other side has ended with unread messages (unix(7)). Linux reports that once, before
        // the messages of the other side. gVisor reports it after them, each time.
        if received.as_ref().is_err_and(is_reset) {
            received = receive(self.as_fd(), bytes);
        }
        match received {
            Ok((0, _)) => Ok(Received::End),
            Ok((len, with)) => match decode(&bytes[..len], with) {
                Some(message) => Ok(Received::Message(message)),
                None => Err(io::ErrorKind::InvalidData.into()),
            },
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Received::Nothing),
            Err(error) if is_reset(&error) => Ok(Received::End),
            Err(error) => Err(error),
        }
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Only the master's side crosses into the next image.
impl Record for Channel {
    fn put(&self, to: &mut Writer) {
        self.fd.put(to);
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        OwnedFd::take(from).map(Self::new)
    }
}

impl AsRawFd for Channel {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

impl ToWorkerRef<'_> {
    fn encode(&self) -> Vec<u8> {
        match self {
            Self::Drain(Idle::HandOver) => vec![b'D', b'H'],
            Self::Drain(Idle::Close) => vec![b'D', b'C'],
            Self::Stopping => vec![b'E'],
            Self::Adopt {
                slot, listeners, ..
            } => {
                // Upgrades may add addresses beyond ADDRESSES_MAX. Then the kernel refuses to send.
                let count = u8::try_from(listeners.len()).unwrap_or(u8::MAX);
                [&with_number(b'A', slot.0)[..], &[count]].concat()
            }
            Self::Release(slot) => with_number(b'R', slot.0),
            Self::ReopenLogs => vec![b'L'],
            Self::Beat => vec![b'B'],
            Self::Share { connections, .. } => with_number(b'S', *connections),
            Self::Siblings(siblings) => {
                let count = u8::try_from(siblings.len()).unwrap_or(u8::MAX);
                vec![b'P', count]
            }
        }
    }

    fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let (inbox, others) = match self {
            Self::Adopt {
                inbox, listeners, ..
            } => (Some(*inbox), listeners.as_slice()),
            Self::Share { inbox, .. } => (Some(*inbox), &[][..]),
            Self::Siblings(siblings) => (None, siblings.as_flattened()),
            _ => (None, &[][..]),
        };
        inbox.into_iter().chain(others.iter().copied())
    }
}

impl ToWorker {
    fn decode(bytes: &[u8], fds: Vec<OwnedFd>) -> Option<Self> {
        let number = |low, high| u16::from_le_bytes([low, high]);
        match *bytes {
            [b'D', b'H'] => Some(Self::Drain(Idle::HandOver)),
            [b'D', b'C'] => Some(Self::Drain(Idle::Close)),
            [b'E'] => Some(Self::Stopping),
            [b'A', low, high, count] => {
                let slot = Slot(number(low, high));
                if fds.len() != 1 + usize::from(count) {
                    return Some(Self::NotReceived(slot));
                }
                let mut fds = fds.into_iter();
                Some(Self::Adopt {
                    slot,
                    inbox: fds.next()?,
                    listeners: fds.collect(),
                })
            }
            [b'R', low, high] => Some(Self::Release(Slot(number(low, high)))),
            [b'L'] => Some(Self::ReopenLogs),
            [b'B'] => Some(Self::Beat),
            [b'S', low, high] => Some(Self::Share {
                connections: number(low, high),
                inbox: fds.into_iter().next()?,
            }),
            [b'P', count] => Some(Self::Siblings(siblings(count, fds))),
            _ => None,
        }
    }
}

/// None, if a descriptor was lost: then it is not known which.
fn siblings(count: u8, fds: Vec<OwnedFd>) -> Vec<SiblingEnds> {
    if fds.len() != usize::from(count) * SIBLING_FDS {
        return Vec::new();
    }
    let mut fds = fds.into_iter();
    let next = || {
        Some(SiblingEnds {
            page: fds.next()?,
            sender: fds.next()?,
            receiver: fds.next()?,
        })
    };
    std::iter::from_fn(next).collect()
}

fn with_number(tag: u8, number: u16) -> Vec<u8> {
    let [low, high] = number.to_le_bytes();
    vec![tag, low, high]
}

record!(enum ToMaster {
    b'S' = Recycle,
    b'L' = Leaving,
    b'R' = Ready(versions),
    b'D' = Drained { cut },
    b'F' = Failed(why),
    b'N' = NotAdopted(slot),
    b'C' = Asked(command),
});

impl ToMaster {
    fn encode(&self) -> Vec<u8> {
        let Self::Failed(why) = self else {
            return codec::to_bytes(self);
        };
        let mut ends = (0..=WHY_MAX.min(why.len())).rev();
        let end = ends.find(|&end| why.is_char_boundary(end)).unwrap_or(0);
        codec::to_bytes(&Self::Failed(why[..end].to_owned()))
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        match bytes {
            b"R" => Some(Self::Ready(Versions::NONE)),
            // A later image may send more, which is for later masters.
            [b'R', ..] => Self::take(&mut Reader::new(bytes)).ok(),
            _ => codec::from_bytes(bytes).ok(),
        }
    }
}
