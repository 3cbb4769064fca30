//! What a worker is to be told, until its channel has room for it.
//!
//! A channel takes a few hundred messages (unix(7), `SO_SNDBUF`), and a worker may be long in
//! reading them: its loop is blocked, or it is stopped. Nothing may be lost meanwhile: one that
//! never hears `Drain` is killed with its requests, a retired slot whose adopter never hears of it
//! is attended by nobody.

use std::collections::VecDeque;
use std::io;

use crate::id::Slot;
use crate::master::listeners::Listeners;
use crate::protocol::channel::{Channel, ToWorker};
use crate::record::record;

record!(Outbox { messages });

/// Messages in order; at most one of a kind, or of a slot.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    messages: VecDeque<Message>,
}

/// A [`ToWorker`] without its descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    Drain,
    Adopt(Slot),
    Release(Slot),
    ReopenLogs,
    Beat,
}

impl Outbox {
    /// Adds a message, unless it would undo or repeat one that still waits.
    pub(crate) fn add(&mut self, message: Message) {
        let undone = match message {
            Message::Adopt(slot) => Some(Message::Release(slot)),
            Message::Release(slot) => Some(Message::Adopt(slot)),
            Message::Drain | Message::ReopenLogs | Message::Beat => None,
        };
        let undone = |waiting: &Message| Some(*waiting) == undone;
        if let Some(at) = self.messages.iter().position(undone) {
            self.messages.remove(at);
        } else if !self.messages.contains(&message) {
            self.messages.push_back(message);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Sends what there is room for; the rest waits. A message that fails otherwise is given up.
    pub(crate) fn send(&mut self, channel: &Channel, listeners: &Listeners) -> io::Result<()> {
        while let Some(&message) = self.messages.front() {
            match message.send(channel, listeners) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                result => {
                    self.messages.pop_front();
                    result?;
                }
            }
        }
        Ok(())
    }
}

record!(enum Message {
    0 = Drain,
    1 = Adopt(slot),
    2 = Release(slot),
    3 = ReopenLogs,
    4 = Beat,
});

impl Message {
    fn send(self, channel: &Channel, listeners: &Listeners) -> io::Result<()> {
        let (message, listeners) = match self {
            Self::Drain => (ToWorker::Drain, Vec::new()),
            Self::Release(slot) => (ToWorker::Release(slot), Vec::new()),
            Self::ReopenLogs => (ToWorker::ReopenLogs, Vec::new()),
            Self::Beat => (ToWorker::Beat, Vec::new()),
            Self::Adopt(slot) => {
                let message = ToWorker::Adopt {
                    slot,
                    listeners: Vec::new(),
                };
                (message, listeners.of_alone(slot))
            }
        };
        channel.tell_worker(&message, &listeners)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_undone_before_it_was_told_is_not_told() {
        let mut outbox = Outbox::default();
        for message in [
            Message::Adopt(Slot(1)),
            Message::Release(Slot(2)),
            Message::ReopenLogs,
            Message::Release(Slot(1)),
            Message::ReopenLogs,
            Message::Drain,
            Message::Adopt(Slot(2)),
            Message::Drain,
        ] {
            outbox.add(message);
        }
        assert_eq!(outbox.messages, [Message::ReopenLogs, Message::Drain]);
    }
}
