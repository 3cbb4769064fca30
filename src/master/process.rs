//! A worker as the master sees it.

use std::io;
use std::time::{Duration, Instant};

use nix::unistd::Pid;

use crate::hooks::{ExitStatus, WorkerInfo};
use crate::id::{Generation, Slot};
use crate::master::listeners::Listeners;
use crate::master::outbox::{Message, Outbox, Unheard};
use crate::protocol::channel::{Channel, Received, ToMaster};
use crate::protocol::scoreboard::Page;
use crate::record::{Malformed, Reader, Record, Writer, record};
use crate::sys::discard::discard;

/// A process that was spawned and is not buried yet.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) pid: Pid,
    pub(crate) slot: Slot,
    pub(crate) generation: Generation,
    pub(crate) asked: Asked,
    /// Its row of the scoreboard.
    pub(crate) row: Page,
    spawned: Moment,
    line: Line,
    outbox: Outbox,
    last_words: LastWords,
}

/// What the master keeps of what it shares with a worker.
#[derive(Debug)]
pub(crate) struct Ours {
    pub(crate) channel: Channel,
    pub(crate) row: Page,
}

record!(Process {
    pid,
    slot,
    generation,
    asked,
    row,
    spawned,
    line,
    outbox,
    last_words
});

/// A point in time, which crosses into the next image as how long ago it was.
#[derive(Clone, Copy, Debug)]
struct Moment(Instant);

/// Whether the master wanted this process to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    Nothing,
    ToDrain,
    /// It hung. Nobody wanted it to end, but for that.
    ToDie,
    Killed,
}

/// The control channel, as long as the other side has it open.
#[derive(Debug)]
enum Line {
    Open(Channel),
    Ended,
}

/// What came from a worker.
#[derive(Debug)]
pub(crate) enum Heard {
    Message(ToMaster),
    /// Nothing for now, or for ever.
    Nothing,
    /// Something that no worker of ours says. The channel is closed.
    Broken(io::Error),
}

#[derive(Debug, Default)]
struct LastWords {
    cut: Option<u32>,
    why: Option<String>,
}

record!(LastWords { cut, why });

impl Process {
    pub(crate) fn new(pid: Pid, slot: Slot, generation: Generation, ours: Ours) -> Self {
        let Ours { channel, row } = ours;
        Self {
            pid,
            slot,
            generation,
            asked: Asked::Nothing,
            row,
            spawned: Moment(Instant::now()),
            line: Line::Open(channel),
            outbox: Outbox::default(),
            last_words: LastWords::default(),
        }
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
        match &self.line {
            Line::Open(channel) => Some(channel),
            Line::Ended => None,
        }
    }

    /// Tells the worker something, at once or as soon as it has read what it was told before.
    pub(crate) fn tell(&mut self, message: Message, listeners: &Listeners) -> Result<(), Unheard> {
        self.outbox.add(message);
        self.tell_rest(listeners)
    }

    /// Tells what could not be told before.
    pub(crate) fn tell_rest(&mut self, listeners: &Listeners) -> Result<(), Unheard> {
        match &self.line {
            Line::Open(channel) => self.outbox.send(channel, listeners),
            Line::Ended => Ok(()),
        }
    }

    pub(crate) fn has_more_to_hear(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// The next thing that the worker has said. What it says of its own end is noted here.
    pub(crate) fn hear(&mut self) -> Heard {
        let Line::Open(channel) = &self.line else {
            return Heard::Nothing;
        };
        match channel.recv_from_worker() {
            Ok(Received::Message(message)) => {
                match &message {
                    ToMaster::Drained { cut } => self.last_words.cut = Some(*cut),
                    ToMaster::Failed(why) => self.last_words.why = Some(why.clone()),
                    _ => {}
                }
                Heard::Message(message)
            }
            Ok(Received::Nothing) => Heard::Nothing,
            Ok(Received::End) => {
                self.line = Line::Ended;
                Heard::Nothing
            }
            Err(error) => {
                self.hang_up();
                self.last_words.why = Some(format!("it broke the protocol: {error}"));
                Heard::Broken(error)
            }
        }
    }

    /// Closes the channel, with whatever the worker or its descendants have sent besides.
    pub(crate) fn hang_up(&mut self) {
        if let Line::Open(channel) = std::mem::replace(&mut self.line, Line::Ended) {
            discard(channel);
        }
    }

    /// How many connections it had to cut, if it came to say so.
    pub(crate) fn cut(&self) -> Option<u32> {
        self.last_words.cut
    }

    /// How it ended, for the log and the error that ends a server.
    pub(crate) fn obituary(&self, status: ExitStatus) -> String {
        let after = self.spawned.0.elapsed();
        let mut text = format!(
            "worker {} (pid {}) {status} after {after:.1?}",
            self.slot, self.pid
        );
        if let Some(why) = &self.last_words.why {
            text.push_str(": ");
            text.push_str(why);
        } else if self.asked == Asked::Nothing
            && matches!(
                status,
                ExitStatus::Signal {
                    signal: nix::libc::SIGKILL,
                    ..
                }
            )
        {
            text.push_str(" (somebody's kill -9, or out of memory)");
        }
        text
    }
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
        // kill(2) would take 0 and less for many processes.
        (pid > 0).then_some(Self::from_raw(pid)).ok_or(Malformed)
    }
}

record!(enum Asked {
    0 = Nothing,
    1 = ToDrain,
    2 = Killed,
    3 = ToDie,
});

record!(enum Line { 0 = Ended, 1 = Open(channel) });
