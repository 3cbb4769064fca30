//! Messages to a worker that wait until its channel has room.
//!
//! A channel holds a few hundred messages (unix(7), `SO_SNDBUF`). A worker may take long to read
//! them, because its loop is blocked or it is stopped. No message may be lost meanwhile: a worker
//! that never gets `Drain` is killed with its requests, and a retired slot whose adopter never gets
//! `Adopt` is unattended.

use std::collections::VecDeque;
use std::fmt;
use std::io;

use crate::codec::record;
use crate::drain::Idle;
use crate::id::Slot;
use crate::master::listeners::Listeners;
use crate::protocol::channel::{Channel, ToWorkerRef};

record!(Outbox { messages });

/// Messages in order, each once.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    messages: VecDeque<Message>,
}

/// A [`ToWorkerRef`] without its descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    Drain(Idle),
    Stopping,
    Adopt(Slot),
    Release(Slot),
    ReopenLogs,
    Beat,
    Share { to: Slot, connections: u16 },
}

/// A message that could not be sent, and will not be sent again.
#[derive(Debug)]
pub(crate) struct SendFailed {
    pub(crate) message: Message,
    pub(crate) error: io::Error,
}

impl SendFailed {
    /// Whether the worker has ended. If it had not read all messages, the first error says that the
    /// connection was reset (unix(7)).
    pub(crate) fn has_ended(&self) -> bool {
        use io::ErrorKind::{BrokenPipe, ConnectionReset};
        matches!(self.error.kind(), BrokenPipe | ConnectionReset)
    }
}

impl Outbox {
    /// Adds a message, unless the same one still waits. Those that it makes pointless are removed.
    pub(crate) fn add(&mut self, message: Message) {
        let is_pointless = |waiting: &Message| match (message, waiting) {
            // The latest one counts.
            (Message::Share { to, .. }, Message::Share { to: other, .. }) => *other == to,
            // The worker may have adopted the slot before, and then got new sockets of it.
            (Message::Release(slot), Message::Adopt(other)) => *other == slot,
            _ => false,
        };
        self.messages.retain(|waiting| !is_pointless(waiting));
        if !self.messages.contains(&message) {
            self.messages.push_back(message);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Sends as many messages as there is room for; the rest waits. Stops at a message that fails
    /// for another reason, and drops it.
    pub(crate) fn send(
        &mut self,
        channel: &Channel,
        listeners: &Listeners,
    ) -> Result<(), SendFailed> {
        while let Some(&message) = self.messages.front() {
            match message.send(channel, listeners) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                result => {
                    self.messages.pop_front();
                    result.map_err(|error| SendFailed { message, error })?;
                }
            }
        }
        Ok(())
    }
}

record!(enum Message {
    0 = Drain(idle),
    1 = Adopt(slot),
    2 = Release(slot),
    3 = ReopenLogs,
    4 = Beat,
    5 = Share { to, connections },
    6 = Stopping,
});

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Drain(Idle::HandOver) => f.write_str("drain and hand over"),
            Self::Drain(Idle::Close) => f.write_str("drain and close"),
            Self::Stopping => f.write_str("the server drains"),
            Self::Adopt(slot) => write!(f, "adopt slot {slot}"),
            Self::Release(slot) => write!(f, "release slot {slot}"),
            Self::ReopenLogs => f.write_str("reopen the logs"),
            Self::Beat => f.write_str("beat"),
            Self::Share { to, connections } => {
                write!(f, "give {connections} connections to slot {to}")
            }
        }
    }
}

impl Message {
    fn send(self, channel: &Channel, listeners: &Listeners) -> io::Result<()> {
        channel.send_to_worker(match self {
            Self::Drain(idle) => ToWorkerRef::Drain(idle),
            Self::Stopping => ToWorkerRef::Stopping,
            Self::Release(slot) => ToWorkerRef::Release(slot),
            Self::ReopenLogs => ToWorkerRef::ReopenLogs,
            Self::Beat => ToWorkerRef::Beat,
            Self::Share { to, connections } => {
                let Some(inbox) = listeners.inbox(to) else {
                    return Ok(());
                };
                ToWorkerRef::Share {
                    connections,
                    inbox: inbox.sender(),
                }
            }
            Self::Adopt(slot) => {
                let Some(inbox) = listeners.inbox(slot) else {
                    // The slot has never had a worker, so it has no connections.
                    return Ok(());
                };
                ToWorkerRef::Adopt {
                    slot,
                    inbox: inbox.receiver(),
                    listeners: listeners.of(slot),
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU16;

    use super::*;
    use crate::config::Config;
    use crate::master::init::Inherited;
    use crate::sys::fds::tests::until_other_end_closed;

    fn share(to: u16, connections: u16) -> Message {
        let to = Slot(to);
        Message::Share { to, connections }
    }

    #[test]
    fn the_latest_message_about_a_slot_decides() {
        let mut outbox = Outbox::default();
        for message in [
            Message::Adopt(Slot(1)),
            Message::Release(Slot(2)),
            Message::ReopenLogs,
            Message::Release(Slot(1)),
            Message::ReopenLogs,
            Message::Drain(Idle::HandOver),
            Message::Adopt(Slot(2)),
            Message::Release(Slot(1)),
            Message::Adopt(Slot(2)),
            Message::Drain(Idle::HandOver),
            Message::Drain(Idle::Close),
            share(3, 5),
            share(4, 5),
            share(3, 1),
        ] {
            outbox.add(message);
        }
        let left = [
            Message::Release(Slot(2)),
            Message::ReopenLogs,
            Message::Release(Slot(1)),
            Message::Drain(Idle::HandOver),
            Message::Adopt(Slot(2)),
            Message::Drain(Idle::Close),
            share(4, 5),
            share(3, 1),
        ];
        assert_eq!(outbox.messages, left);
    }

    #[test]
    fn a_worker_that_left_a_message_unread_has_ended() {
        let config = Config {
            addresses: vec!["127.0.0.1:0".parse().expect("an address")],
            ..Config::default()
        };
        let listeners = Listeners::open(&config, NonZeroU16::MIN, Inherited::default());
        let listeners = listeners.expect("a free port");
        let (master, worker) = Channel::pair().expect("two sockets");
        let mut outbox = Outbox::default();
        let mut send = || {
            outbox.add(Message::ReopenLogs);
            outbox.send(&master, &listeners)
        };
        send().expect("the worker has the channel");
        drop(worker);
        until_other_end_closed(&master);
        let first = send().expect_err("the worker has ended");
        assert_eq!(first.error.kind(), io::ErrorKind::ConnectionReset);
        assert!(first.has_ended());
        assert!(send().expect_err("still").has_ended());
    }
}
