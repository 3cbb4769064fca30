//! What the master knows of a worker's process.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::unistd::Pid;

use crate::codec::{Malformed, Reader, Record, Writer, record};
use crate::hooks::{WorkerExit, WorkerInfo};
use crate::id::{Generation, Slot};
use crate::master::listeners::Listeners;
use crate::master::workers::outbox::{Message, Outbox, SendFailed};
use crate::protocol::channel::{Channel, Received, ToMaster};
use crate::protocol::scoreboard::Page;
use crate::sys::discard::discard;
use crate::sys::fds;

/// A process that was spawned and is not reaped yet.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) pid: Pid,
    pub(crate) slot: Slot,
    pub(crate) generation: Generation,
    pub(crate) end_request: EndRequest,
    pub(crate) intent: Intent,
    /// The worker's page of the scoreboard.
    pub(crate) stats: Arc<Page>,
    spawned: Moment,
    channel: ChannelState,
    outbox: Outbox,
    final_messages: FinalMessages,
}

/// The master's side of what it shares with a worker.
#[derive(Debug)]
pub(crate) struct MasterSide {
    pub(crate) channel: Channel,
    pub(crate) stats: Page,
}

record!(Process {
    pid,
    slot,
    generation,
    end_request,
    intent,
    stats,
    spawned,
    channel,
    outbox,
    final_messages
});

/// A point in time. It crosses into the next image as how long ago it was.
#[derive(Clone, Copy, Debug)]
struct Moment(Instant);

/// How the master has asked this process to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndRequest {
    None,
    Drain,
    /// It hung, and was sent SIGABRT. For notices it ended unasked.
    Abort,
    Kill,
}

/// What the worker has said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Intent {
    Stay,
    /// It was told to leave by a signal. If it does not serve yet, the supervisor hears of it when
    /// it does.
    Leave,
}

/// The control channel, until the worker's side is closed.
#[derive(Debug)]
enum ChannelState {
    Open(Channel),
    Ended,
}

/// What the master has received from a worker.
#[derive(Debug)]
pub(crate) enum Recv {
    Message(ToMaster),
    /// There is no message now, or the channel has ended.
    Nothing,
    /// Bytes that are no message. The channel is closed.
    Broken(io::Error),
}

#[derive(Debug, Default)]
struct FinalMessages {
    cut: Option<u32>,
    why: Option<String>,
}

record!(FinalMessages { cut, why });

impl Process {
    pub(crate) fn new(pid: Pid, slot: Slot, generation: Generation, ours: MasterSide) -> Self {
        let MasterSide { channel, stats } = ours;
        Self {
            pid,
            slot,
            generation,
            end_request: EndRequest::None,
            intent: Intent::Stay,
            stats: Arc::new(stats),
            spawned: Moment(Instant::now()),
            channel: ChannelState::Open(channel),
            outbox: Outbox::default(),
            final_messages: FinalMessages::default(),
        }
    }

    /// Whether the master has not asked it to end.
    pub(crate) fn is_wanted(&self) -> bool {
        self.end_request == EndRequest::None
    }

    /// Whether the master has sent it a signal that ends it.
    pub(crate) fn is_killed(&self) -> bool {
        matches!(self.end_request, EndRequest::Abort | EndRequest::Kill)
    }

    pub(crate) fn info(&self) -> WorkerInfo {
        let pid = self.pid.as_raw().unsigned_abs();
        WorkerInfo {
            slot: self.slot,
            generation: self.generation,
            pid,
        }
    }

    pub(crate) fn channel(&self) -> Option<&Channel> {
        match &self.channel {
            ChannelState::Open(channel) => Some(channel),
            ChannelState::Ended => None,
        }
    }

    /// Sends a message, at once or as soon as the worker has read earlier ones.
    pub(crate) fn send(
        &mut self,
        message: Message,
        listeners: &Listeners,
    ) -> Result<(), SendFailed> {
        self.outbox.add(message);
        self.send_pending(listeners)
    }

    /// Sends the messages that could not be sent before.
    pub(crate) fn send_pending(&mut self, listeners: &Listeners) -> Result<(), SendFailed> {
        match &self.channel {
            ChannelState::Open(channel) => self.outbox.send(channel, listeners),
            ChannelState::Ended => Ok(()),
        }
    }

    pub(crate) fn has_pending(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// Receives the next message. What the worker reports of its own end is kept here.
    pub(crate) fn recv(&mut self) -> Recv {
        let ChannelState::Open(channel) = &self.channel else {
            return Recv::Nothing;
        };
        match channel.recv_from_worker() {
            Ok(Received::Message(message)) => {
                match &message {
                    ToMaster::Drained { cut } => self.final_messages.cut = Some(*cut),
                    ToMaster::Failed(why) => self.final_messages.why = Some(printable(why)),
                    _ => {}
                }
                Recv::Message(message)
            }
            Ok(Received::Nothing) => Recv::Nothing,
            Ok(Received::End) => {
                // Or an empty message, the last but one.
                self.close_channel();
                Recv::Nothing
            }
            Err(error) => {
                self.close_channel();
                self.final_messages.why = Some(format!("it broke the protocol: {error}"));
                Recv::Broken(error)
            }
        }
    }

    /// Its exit report says why it ended, unless it has said so itself.
    pub(crate) fn blame(&mut self, why: String) {
        self.final_messages.why.get_or_insert(why);
    }

    /// Closes the channel, and what the worker or its descendants have sent by it.
    pub(crate) fn close_channel(&mut self) {
        if let ChannelState::Open(channel) =
            std::mem::replace(&mut self.channel, ChannelState::Ended)
            && !fds::refuses_descriptors(&channel)
        {
            discard(channel);
        }
    }

    /// How many connections it had to cut, if it has reported that.
    pub(crate) fn cut(&self) -> Option<u32> {
        self.final_messages.cut
    }

    /// How it ended, for the log and for the error that ends a server.
    pub(crate) fn exit_report(&self, status: WorkerExit) -> String {
        let after = self.spawned.0.elapsed();
        let mut text = format!(
            "worker {} (pid {}) {status} after {after:.1?}",
            self.slot, self.pid
        );
        if let Some(why) = &self.final_messages.why {
            text.push_str(": ");
            text.push_str(why);
        } else if self.is_wanted()
            && matches!(
                status,
                WorkerExit::Signal {
                    signal: nix::libc::SIGKILL,
                    ..
                }
            )
        {
            text.push_str(" (kill -9, or out of memory)");
        }
        text
    }
}

/// The text without control characters, which may be commands to a terminal: the worker may have
/// been taken over.
fn printable(why: &str) -> String {
    let is_command = |letter: char| letter.is_control() && !matches!(letter, '\n' | '\t');
    why.replace(is_command, "\u{fffd}")
}

impl Record for Moment {
    fn put(&self, to: &mut Writer) {
        self.0.elapsed().put(to);
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let (now, ago) = (Instant::now(), Duration::take(from)?);
        Ok(Self(now.checked_sub(ago).unwrap_or(now)))
    }
}

impl Record for Pid {
    fn put(&self, to: &mut Writer) {
        self.as_raw().put(to);
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let pid = i32::take(from)?;
        // For kill(2) 0 and negative numbers mean many processes.
        (pid > 0).then_some(Self::from_raw(pid)).ok_or(Malformed)
    }
}

record!(enum Intent { 0 = Stay, 1 = Leave });

record!(enum EndRequest {
    0 = None,
    1 = Drain,
    2 = Kill,
    3 = Abort,
});

record!(enum ChannelState { 0 = Ended, 1 = Open(channel) });

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_of_a_worker_is_no_command_to_a_terminal() {
        let why = "no tea\u{1b}[2J\u{9b}2J:\n\tno milk";
        let shown = "no tea\u{fffd}[2J\u{fffd}2J:\n\tno milk";
        assert_eq!(printable(why), shown);
    }
}
