//! The control channel between the master and a worker: a `SOCK_SEQPACKET` pair with one message in
//! each packet, and descriptors as `SCM_RIGHTS`. When one process ends, the other sees the end of
//! the channel.

#[cfg(test)]
mod fuzz;

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
    /// inbox.
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
        match receive(self.as_fd(), bytes) {
            Ok((0, _)) => Ok(Received::End),
            Ok((len, with)) => match decode(&bytes[..len], with) {
                Some(message) => Ok(Received::Message(message)),
                None => Err(io::ErrorKind::InvalidData.into()),
            },
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Received::Nothing),
            // The other side has ended with unread messages (unix(7)). The kernel reports that
            // once, before the messages of the other side.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                self.recv(bytes, receive, decode)
            }
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
        }
    }

    fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let (inbox, listeners) = match self {
            Self::Adopt {
                inbox, listeners, ..
            } => (Some(*inbox), listeners.as_slice()),
            Self::Share { inbox, .. } => (Some(*inbox), &[][..]),
            _ => (None, &[][..]),
        };
        inbox.into_iter().chain(listeners.iter().copied())
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
            _ => None,
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Stop;

    #[test]
    fn a_last_message_arrives_though_the_worker_has_read_none() {
        let (master, worker) = Channel::pair().expect("a pair");
        let drain = ToWorkerRef::Drain(Idle::Close);
        master.send_to_worker(drain).expect("room for one");
        let last = ToMaster::Failed("no database".into());
        worker.send_to_master(&last).expect("room for one");
        drop(worker);
        let Ok(Received::Message(received)) = master.recv_from_worker() else {
            panic!("the last message is lost")
        };
        assert_eq!(received, last);
        assert!(matches!(master.recv_from_worker(), Ok(Received::End)));
    }

    #[test]
    fn messages_of_a_worker_arrive() {
        let (master, worker) = Channel::pair().expect("a pair");
        let sent = [
            ToMaster::Recycle,
            ToMaster::Leaving,
            ToMaster::Ready(Versions::OURS),
            ToMaster::Drained { cut: 70_000 },
            ToMaster::Failed("no database".into()),
            ToMaster::NotAdopted(Slot(300)),
            ToMaster::Asked(Command::Stop(Stop::Now)),
        ];
        for message in &sent {
            worker.send_to_master(message).expect("room for one");
        }
        for message in sent {
            let Received::Message(received) = master.recv_from_worker().expect("received") else {
                panic!("{message:?} is missing")
            };
            assert_eq!(received, message);
        }
        assert!(matches!(master.recv_from_worker(), Ok(Received::Nothing)));
        drop(worker);
        assert!(matches!(master.recv_from_worker(), Ok(Received::End)));
    }

    #[test]
    fn a_ready_without_versions_means_that_no_state_is_read() {
        let ready = ToMaster::decode(b"R");
        assert_eq!(ready, Some(ToMaster::Ready(Versions::NONE)));
    }

    #[test]
    fn an_adoption_carries_inbox_and_listeners() {
        let (master, worker) = Channel::pair().expect("a pair");
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let (inbox, _other) = fds::seqpacket_pair().expect("a pair");
        let adopt = ToWorkerRef::Adopt {
            slot: Slot(300),
            inbox: inbox.as_fd(),
            listeners: vec![listener.as_fd()],
        };
        master.send_to_worker(adopt).expect("room for one");
        let Ok(Received::Message(ToWorker::Adopt {
            slot,
            inbox,
            listeners,
        })) = worker.recv_from_master()
        else {
            panic!("an adoption")
        };
        assert_eq!((slot, listeners.len()), (Slot(300), 1));
        fds::seqpacket_maker(inbox.as_raw_fd()).expect("the inbox comes first");
    }

    #[test]
    fn an_adoption_that_lost_descriptors_is_not_received() {
        let (inbox, other) = fds::seqpacket_pair().expect("a pair");
        let adopt = ToWorkerRef::Adopt {
            slot: Slot(300),
            inbox: inbox.as_fd(),
            listeners: vec![other.as_fd(); ADDRESSES_MAX],
        };
        let bytes = adopt.encode();
        for lost in [1, 2, ADDRESSES_MAX + 1] {
            let kept = ADDRESSES_MAX + 1 - lost;
            let fds = (0..kept).map(|_| other.try_clone().expect("a number"));
            let decoded = ToWorker::decode(&bytes, fds.collect());
            let slot = match decoded {
                Some(ToWorker::NotReceived(slot)) => slot,
                decoded => panic!("{lost} lost: {decoded:?}"),
            };
            assert_eq!(slot, Slot(300));
        }
        let (master, worker) = Channel::pair().expect("a pair");
        master.send_to_worker(adopt).expect("as many as may");
        let Ok(Received::Message(ToWorker::Adopt { listeners, .. })) = worker.recv_from_master()
        else {
            panic!("an adoption")
        };
        assert_eq!(listeners.len(), ADDRESSES_MAX);
    }

    #[test]
    fn a_share_carries_the_inbox() {
        let (master, worker) = Channel::pair().expect("a pair");
        let (inbox, other) = fds::seqpacket_pair().expect("a pair");
        let share = ToWorkerRef::Share {
            connections: 300,
            inbox: inbox.as_fd(),
        };
        master.send_to_worker(share).expect("room for one");
        let Ok(Received::Message(ToWorker::Share { connections, inbox })) =
            worker.recv_from_master()
        else {
            panic!("a share")
        };
        assert_eq!(connections, 300);
        fds::send(&inbox, b"x", &[]).expect("room for one");
        assert!(fds::is_readable(&other));
    }

    #[test]
    fn messages_of_the_master_without_descriptors_arrive() {
        let (master, worker) = Channel::pair().expect("a pair");
        let sent = [
            ToWorkerRef::Drain(Idle::HandOver),
            ToWorkerRef::Drain(Idle::Close),
            ToWorkerRef::Release(Slot(300)),
            ToWorkerRef::ReopenLogs,
            ToWorkerRef::Beat,
        ];
        for message in sent.clone() {
            master.send_to_worker(message).expect("room for one");
        }
        for message in sent {
            let Received::Message(received) = worker.recv_from_master().expect("received") else {
                panic!("{message:?} is missing")
            };
            assert_eq!(format!("{received:?}"), format!("{message:?}"));
        }
    }

    #[test]
    fn a_long_error_is_cut_between_characters() {
        let (master, worker) = Channel::pair().expect("a pair");
        worker
            .send_to_master(&ToMaster::Failed("é".repeat(LEN_MAX)))
            .expect("cut to fit");
        let Ok(Received::Message(ToMaster::Failed(why))) = master.recv_from_worker() else {
            panic!("a reason")
        };
        assert!(
            why.chars().all(|c| c == 'é') && why.len() > WHY_MAX - 4,
            "{}",
            why.len()
        );
    }

    #[test]
    fn no_bytes_make_a_decoder_panic() {
        for tag in 0..=u8::MAX {
            for len in 0..8 {
                let mut bytes = vec![0xff; len];
                bytes.insert(0, tag);
                let _ = ToMaster::decode(&bytes);
                let _ = ToWorker::decode(&bytes, Vec::new());
            }
        }
        assert!(ToMaster::decode(&[]).is_none() && ToWorker::decode(&[], Vec::new()).is_none());
    }
}
