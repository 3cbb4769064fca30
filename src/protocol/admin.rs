//! What the master and the admin process agree on: the variable that makes a process an admin
//! process, and the channel, a `SOCK_SEQPACKET` pair with one message in each packet.
//!
//! The master sends facts in the order in which they happened. First it sends what the workers
//! before have counted, then each worker with its page, then each change. So the admin process adds
//! the page of a worker that has ended to its own sum, and no count is added twice or lost,
//! although it reads the pages while the workers write.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;

use nix::unistd::Pid;
use tokio::io::unix::AsyncFd;

use crate::address::Address;
use crate::codec::{self, record};
use crate::handle::Command;
use crate::hooks::WorkerInfo;
use crate::id::Slot;
use crate::protocol::channel::{Channel, Received};
use crate::status::{History, Operations, Status};
use crate::sys::{fds, memory};

/// The version of the messages and of the variable. A process does not believe another one.
const VERSION: u32 = 1;

/// The longest message. Longer notices are not sent.
const LEN_MAX: usize = 32 << 10;

/// How many notices the master keeps for admin processes that start later, and an admin process for
/// its clients.
pub(crate) const NOTICES_MAX: usize = 200;

/// The content of [`MARKER`](crate::protocol::inheritance::MARKER) for an admin process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AdminMarker {
    pub(crate) master: Pid,
    /// As for a worker.
    pub(crate) nesting: u8,
    pub(crate) channel: RawFd,
    pub(crate) listener: RawFd,
}

/// What an admin process has inherited, with owned descriptors.
#[derive(Debug)]
pub(crate) struct AdminInheritance {
    pub(crate) master: Pid,
    pub(crate) channel: AdminChannel,
    pub(crate) listener: OwnedFd,
}

/// One side of a channel between the master and an admin process.
#[derive(Clone, Debug)]
pub(crate) struct AdminChannel(Channel);

record!(AdminChannel { 0 });

/// A message of the master, without its descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fact {
    /// The descriptor is a page with what workers have counted that ended before.
    Ended,
    /// A worker was started; the descriptor is its page.
    Worker(WorkerInfo),
    /// The worker with this pid has ended. Its page does not change any more.
    Gone(u32),
    /// The descriptor has a [`ServerView`], which replaces the one before.
    View,
    /// Something has happened.
    Notice(NumberedNotice),
    /// Finish the open requests and exit.
    Leave,
    /// Send [`FromAdmin::Alive`].
    Ping,
}

record!(enum Fact {
    0 = Ended,
    1 = Worker(info),
    2 = Gone(pid),
    3 = View,
    4 = Notice(notice),
    5 = Leave,
    6 = Ping,
});

/// A notice as the announce stream writes it, without its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NumberedNotice {
    /// Each number is larger than the one before, in all admin processes of a master, so a client
    /// goes on after the last one it has. After an upgrade too.
    pub(crate) number: u64,
    /// When it was reported, in milliseconds after 1970.
    pub(crate) millis: u64,
    pub(crate) line: String,
}

record!(NumberedNotice {
    number,
    millis,
    line
});

impl NumberedNotice {
    /// `last` is the number of the notice before.
    pub(crate) fn after(last: Option<u64>, millis: u64, line: String) -> Self {
        // The clock of the machine may be set back, and two notices may have the same time.
        let number = last.map_or(millis, |last| millis.max(last + 1));
        Self {
            number,
            millis,
            line,
        }
    }
}

/// What the master knows of the server at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServerView {
    /// Without counts: those are in the pages.
    pub(crate) status: Status,
    /// The admin addresses.
    pub(crate) admin: Vec<Address>,
    pub(crate) history: History,
    /// The commands that the master has begun to carry out.
    pub(crate) operations: Operations,
    pub(crate) queues: Vec<AcceptQueue>,
    /// The first name of each certificate, and the second after 1970 at which it ends.
    pub(crate) certificates: Vec<(String, u64)>,
}

/// The queue of a TCP listener. For a Unix listener the kernel does not report it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AcceptQueue {
    pub(crate) address: Address,
    /// `None` if all slots share it.
    pub(crate) slot: Option<Slot>,
    pub(crate) connections: u32,
    /// For one more, the kernel drops the client's last packet of the handshake.
    pub(crate) max: u32,
}

record!(AcceptQueue {
    address,
    slot,
    connections,
    max
});

record!(ServerView {
    status,
    admin,
    history,
    operations,
    queues,
    certificates
});

/// A message of an admin process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FromAdmin {
    /// It has the first view, and accepts connections.
    Ready,
    /// It has read a [`Fact::Ping`].
    Alive,
    /// Send a view with what has no notice, such as the length of queues.
    Look,
    /// An operator gives this command.
    Asked { number: u64, command: Command },
}

record!(enum FromAdmin {
    b'R' = Ready,
    b'A' = Alive,
    b'L' = Look,
    b'C' = Asked { number, command },
});

impl AdminMarker {
    /// The descriptors that the process inherits.
    pub(crate) fn descriptors(&self) -> [RawFd; 2] {
        [self.channel, self.listener]
    }

    pub(crate) fn encode(&self) -> String {
        let Self {
            master,
            nesting,
            channel,
            listener,
        } = self;
        format!("admin {VERSION} {master} {nesting} {channel} {listener}")
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        let text = text.strip_prefix("admin ")?;
        let (version, rest) = text.split_once(' ')?;
        let mut fields = rest.split(' ');
        let mut number = || fields.next()?.parse::<i32>().ok();
        let marker = Self {
            master: Pid::from_raw(number()?),
            nesting: number()?.try_into().ok().filter(|&it| it < u8::MAX)?,
            channel: number().filter(|&fd| fd > 2)?,
            listener: number().filter(|&fd| fd > 2)?,
        };
        (version.parse() == Ok(VERSION) && number().is_none()).then_some(marker)
    }

    /// Takes the descriptors. Call it once in a process.
    pub(crate) fn take(self) -> io::Result<AdminInheritance> {
        Ok(AdminInheritance {
            master: self.master,
            channel: AdminChannel(Channel::new(fds::adopt(self.channel)?)),
            listener: fds::adopt(self.listener)?,
        })
    }
}

impl AdminChannel {
    /// The master's side and the admin process's.
    pub(crate) fn pair() -> io::Result<(Self, Self)> {
        let (master, admin) = Channel::pair()?;
        Ok((Self(master), Self(admin)))
    }

    /// Waits for messages and for the end. Call it inside a tokio runtime.
    pub(crate) fn watch(&self) -> io::Result<AsyncFd<Arc<OwnedFd>>> {
        self.0.watch()
    }

    /// Sends a fact with its descriptor.
    pub(crate) fn tell(&self, fact: &Fact, with: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let bytes = codec::to_bytes(fact);
        if bytes.len() > LEN_MAX {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let with = with.map(|fd| fd.as_raw_fd());
        fds::send(&self.0, &bytes, with.as_slice())
    }

    /// Receives the next fact.
    pub(crate) fn hear(&self) -> io::Result<Received<(Fact, Option<OwnedFd>)>> {
        let decode = |bytes: &[u8], fds: Vec<OwnedFd>| {
            let fact = codec::from_bytes(bytes).ok()?;
            Some((fact, fds.into_iter().next()))
        };
        self.0.recv(&mut vec![0; LEN_MAX], fds::receive, decode)
    }

    pub(crate) fn send(&self, message: FromAdmin) -> io::Result<()> {
        fds::send(&self.0, &codec::to_bytes(&message), &[])
    }

    /// Receives the next message of the admin process. As for a worker, descriptors are an error.
    pub(crate) fn recv(&self) -> io::Result<Received<FromAdmin>> {
        let receive = |from, bytes: &mut [u8]| Ok((fds::receive_bytes(from, bytes)?, ()));
        let decode = |bytes: &[u8], ()| codec::from_bytes(bytes).ok();
        self.0.recv(&mut [0; 64], receive, decode)
    }
}

impl AsFd for AdminChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for AdminChannel {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl ServerView {
    /// A file in memory with this view, to be sent with [`Fact::View`].
    pub(crate) fn to_memory(&self) -> io::Result<OwnedFd> {
        memory::sealed(c"prefork-view", &codec::to_bytes(self))
    }

    /// The view in such a file.
    pub(crate) fn from_memory(fd: OwnedFd) -> io::Result<Self> {
        let bytes = memory::contents(&fd.into())?;
        codec::from_bytes(&bytes).map_err(|_| io::ErrorKind::InvalidData.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{Generation, Slot};

    fn marker() -> AdminMarker {
        AdminMarker {
            master: Pid::from_raw(100),
            nesting: 1,
            channel: 9,
            listener: 10,
        }
    }

    #[test]
    fn a_marker_is_parsed_as_it_was_encoded_and_no_other_text_is() {
        assert_eq!(AdminMarker::parse(&marker().encode()), Some(marker()));
        for text in [
            "",
            "admin",
            "admin 1 100 1 9",
            "admin 2 100 1 9 10",
            "admin 1 100 1 9 10 11",
            "admin 1 100 255 9 10",
            "admin 1 100 1 9 2",
            "worker 1 100 1 9 10",
        ] {
            assert_eq!(AdminMarker::parse(text), None, "{text}");
        }
    }

    #[test]
    fn numbers_of_notices_grow_even_if_the_time_does_not() {
        let mut last = None;
        let numbers = [5, 5, 5, 3, 9].map(|millis| {
            let notice = NumberedNotice::after(last, millis, String::new());
            last = Some(notice.number);
            assert_eq!(notice.millis, millis);
            notice.number
        });
        assert_eq!(numbers, [5, 6, 7, 8, 9]);
    }

    #[test]
    fn facts_arrive_in_order_with_their_descriptors() {
        let (master, admin) = AdminChannel::pair().expect("a pair");
        let (file, _) = fds::seqpacket_pair().expect("two descriptors");
        let worker = WorkerInfo::new(Slot(1), Generation(2), 3);
        let line = "x".repeat(LEN_MAX / 2);
        let facts = [
            Fact::Ended,
            Fact::Worker(worker),
            Fact::Gone(3),
            Fact::Notice(NumberedNotice::after(None, 1, line)),
            Fact::Leave,
        ];
        for fact in &facts {
            let with = matches!(fact, Fact::Ended | Fact::Worker(_)).then(|| file.as_fd());
            master.tell(fact, with).expect("room");
        }
        for expected in facts {
            let Received::Message((fact, with)) = admin.hear().expect("received") else {
                panic!("{expected:?} is missing")
            };
            let has_one = matches!(fact, Fact::Ended | Fact::Worker(_));
            assert_eq!((fact, with.is_some()), (expected, has_one));
        }
        admin.send(FromAdmin::Ready).expect("room");
        let ready = master.recv().expect("received");
        assert!(matches!(ready, Received::Message(FromAdmin::Ready)));
    }
}
