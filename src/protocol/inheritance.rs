//! What a worker inherits at exec: an environment variable that names the master, the slot and the
//! descriptors, and the descriptors themselves, with the numbers that they have in the master.
//!
//! A process believes the variable only if the master that it names has started the process. A
//! worker does not edit its environment, so a program that a worker starts sees the variable too.
//! But the master has not started that program, and the channel is not open there, so it is no
//! worker.

#[cfg(test)]
mod fuzz;

use std::fmt::Write as _;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::process::Command;

use nix::unistd::{Pid, getppid};

use crate::config::ListenerUse;
use crate::id::{Generation, Slot};
use crate::protocol::admin::AdminMarker;
use crate::protocol::channel::Channel;
use crate::protocol::inbox::Sender;
use crate::protocol::state;
use crate::sys::{exec, fds};

/// The variable's name.
pub(crate) const MARKER: &str = "PREFORK_SERVER_WORKER";

/// The variable that names the state of the image before, in a master that was upgraded. It stays
/// in the environment, as the marker of a worker does. Only the process that left the state
/// believes it, until it has taken the state. Workers are started without it.
const UPGRADE: &str = "PREFORK_SERVER_UPGRADE";

/// Replaces a descriptor in a marker if there is none.
const NONE: &str = "-";

/// Follows the descriptor of a listener that redirects.
const REDIRECT: &str = "r";

/// The most levels of servers that workers of servers have started. A program with more starts
/// itself without end.
const NESTING_MAX: u8 = 3;

/// The variable's content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Marker {
    pub(crate) master: Pid,
    pub(crate) slot: Slot,
    pub(crate) generation: Generation,
    /// How many slots the server has.
    pub(crate) workers: u16,
    /// 0 for a worker whose master no other worker has started.
    pub(crate) nesting: u8,
    pub(crate) channel: RawFd,
    /// The worker's page of the scoreboard.
    pub(crate) stats: RawFd,
    /// The slot's inbox: the sender and the receiver.
    pub(crate) inbox: [RawFd; 2],
    /// The keys of session tickets and the files as they were read, if the server speaks TLS.
    pub(crate) ticket_keys: Option<RawFd>,
    pub(crate) tls_files: Option<RawFd>,
    pub(crate) listeners: Vec<(RawFd, ListenerUse)>,
}

/// What this process is, by its variables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ProcessRole {
    /// A master after an upgrade. The image before it has left its state in this descriptor.
    Upgraded { state: RawFd },
    /// No worker. As a master it would be at this level of nesting.
    Master { nesting: u8 },
    /// A worker of the master that started it.
    Worker(Marker),
    /// The admin process of the master that started it.
    Admin(AdminMarker),
    /// A process whose master ended while it was started. It must neither serve nor become a
    /// master.
    Orphan,
}

/// What a worker has inherited, with owned descriptors.
#[derive(Debug)]
pub(crate) struct Inheritance {
    pub(crate) marker: Marker,
    pub(crate) channel: Channel,
    pub(crate) stats: OwnedFd,
    pub(crate) outbound: Sender,
    pub(crate) inbox: OwnedFd,
    pub(crate) ticket_keys: Option<OwnedFd>,
    pub(crate) tls_files: Option<OwnedFd>,
    pub(crate) listeners: Vec<(OwnedFd, ListenerUse)>,
}

impl ProcessRole {
    /// Reads the variables, and asks the kernel whether they are true.
    pub(crate) fn of_this_process() -> Self {
        let left = std::env::var(UPGRADE).ok();
        if let Some(state) = left.as_deref().and_then(state_of_this_process) {
            return Self::Upgraded { state };
        }
        let marker = std::env::var(MARKER).ok();
        Self::decide(marker.as_deref(), getppid(), fds::seqpacket_maker)
    }

    fn decide(
        marker: Option<&str>,
        starter: Pid,
        channel_maker: impl Fn(RawFd) -> Option<Pid>,
    ) -> Self {
        let marker = marker.unwrap_or_default();
        let (master, channel, nesting, role) = if let Some(it) = Marker::parse(marker) {
            (it.master, it.channel, it.nesting, Self::Worker(it))
        } else if let Some(it) = AdminMarker::parse(marker) {
            (it.master, it.channel, it.nesting, Self::Admin(it))
        } else {
            return Self::Master { nesting: 0 };
        };
        if channel_maker(channel) != Some(master) {
            return Self::Master {
                nesting: nesting + 1,
            };
        }
        match starter == master {
            true => role,
            false => Self::Orphan,
        }
    }

    /// The variable that gives the next image of this process the role `Upgraded`.
    pub(crate) fn upgraded(state: &OwnedFd) -> (&'static str, String) {
        let (pid, fd) = (Pid::this(), state.as_raw_fd());
        (UPGRADE, format!("1 {pid} {fd}"))
    }

    /// Removes the variable from the environment of a command.
    pub(crate) fn hide_upgrade(command: &mut Command) {
        command.env_remove(UPGRADE);
    }

    /// Whether a master at this level of nesting may start workers.
    pub(crate) fn may_nest(nesting: u8) -> bool {
        nesting <= NESTING_MAX
    }
}

/// The descriptor that the variable names, if this process has left its state there.
fn state_of_this_process(text: &str) -> Option<RawFd> {
    let (pid, fd) = text.strip_prefix("1 ")?.split_once(' ')?;
    let fd = fd.parse().ok().filter(|&fd| fd > 2)?;
    let this = Pid::this();
    let named = pid.parse() == Ok(this.as_raw());
    let left = || state::owner(|head| exec::state_head(fd, head)) == Some(this);
    (named && left()).then_some(fd)
}

impl Marker {
    /// The descriptors that the worker inherits.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = RawFd> {
        [self.channel, self.stats]
            .into_iter()
            .chain(self.inbox)
            .chain(self.ticket_keys)
            .chain(self.tls_files)
            .chain(self.listeners.iter().map(|&(fd, _)| fd))
    }

    pub(crate) fn encode(&self) -> String {
        let mut text = format!(
            "3 {} {} {} {} {} {} {} {} {}",
            self.master,
            self.slot,
            self.generation,
            self.workers,
            self.nesting,
            self.channel,
            self.stats,
            self.inbox[0],
            self.inbox[1],
        );
        for fd in [self.ticket_keys, self.tls_files] {
            match fd {
                Some(fd) => write!(text, " {fd}"),
                None => write!(text, " {NONE}"),
            }
            .expect("a String takes everything");
        }
        for (fd, used_for) in &self.listeners {
            let mark = match used_for {
                ListenerUse::App => "",
                ListenerUse::Redirect => REDIRECT,
            };
            write!(text, " {fd}{mark}").expect("a String takes everything");
        }
        text
    }

    fn parse(text: &str) -> Option<Self> {
        let mut fields = text.strip_prefix("3 ")?.split(' ');
        let marker = Self {
            master: Pid::from_raw(fields.next()?.parse().ok()?),
            slot: Slot(fields.next()?.parse().ok()?),
            generation: Generation(fields.next()?.parse().ok()?),
            workers: fields.next()?.parse().ok()?,
            nesting: fields
                .next()?
                .parse()
                .ok()
                .filter(|&nesting| nesting < u8::MAX)?,
            channel: descriptor(fields.next()?)?,
            stats: descriptor(fields.next()?)?,
            inbox: [descriptor(fields.next()?)?, descriptor(fields.next()?)?],
            ticket_keys: descriptor_or_none(fields.next()?)?,
            tls_files: descriptor_or_none(fields.next()?)?,
            listeners: fields.map(listener).collect::<Option<_>>()?,
        };
        Some(marker)
    }

    /// Takes the descriptors. Call it once in a process.
    pub(crate) fn take(self) -> io::Result<Inheritance> {
        let channel = Channel::new(fds::adopt(self.channel)?);
        let stats = fds::adopt(self.stats)?;
        let [sender, receiver] = self.inbox;
        let (outbound, inbox) = (Sender::new(fds::adopt(sender)?), fds::adopt(receiver)?);
        let ticket_keys = self.ticket_keys.map(fds::adopt).transpose()?;
        let tls_files = self.tls_files.map(fds::adopt).transpose()?;
        let listeners = self
            .listeners
            .iter()
            .map(|&(fd, used_for)| Ok((fds::adopt(fd)?, used_for)))
            .collect::<io::Result<_>>()?;
        Ok(Inheritance {
            marker: self,
            channel,
            stats,
            outbound,
            inbox,
            ticket_keys,
            tls_files,
            listeners,
        })
    }
}

fn descriptor(field: &str) -> Option<RawFd> {
    field.parse().ok().filter(|&fd| fd > 2)
}

fn descriptor_or_none(field: &str) -> Option<Option<RawFd>> {
    match field {
        NONE => Some(None),
        fd => descriptor(fd).map(Some),
    }
}

fn listener(field: &str) -> Option<(RawFd, ListenerUse)> {
    let (fd, used_for) = match field.strip_suffix(REDIRECT) {
        Some(fd) => (fd, ListenerUse::Redirect),
        None => (field, ListenerUse::App),
    };
    Some((descriptor(fd)?, used_for))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marker() -> Marker {
        Marker {
            master: Pid::from_raw(100),
            slot: Slot(3),
            generation: Generation(7),
            workers: 4,
            nesting: 0,
            channel: 9,
            stats: 10,
            inbox: [11, 12],
            ticket_keys: Some(13),
            tls_files: Some(14),
            listeners: vec![(5, ListenerUse::App), (6, ListenerUse::Redirect)],
        }
    }

    #[test]
    fn a_marker_is_parsed_as_it_was_encoded() {
        assert_eq!(Marker::parse(&marker().encode()), Some(marker()));
        let plain = Marker {
            ticket_keys: None,
            tls_files: None,
            ..marker()
        };
        assert_eq!(Marker::parse(&plain.encode()), Some(plain));
    }

    #[test]
    fn other_texts_are_no_marker() {
        for text in [
            "",
            "3",
            "2 100 3 7 4 0 9 10 11 12 - -",
            "3 100 3 7 4 0 9 10",
            "3 100 3 7 4 0 9 10 11 12",
            "3 100 3 7 4 0 9 10 11 12 -",
            "3 100 70000 7 4 0 9 10 11 12 - -",
            "3 100 3 7 4 0 9 10 11 12 - - x",
            "3 100 3 7 4 0 9 10 11 12 - - 5x",
            "3 100 3 7 4 0 9 10 11 12 - - r",
            "3 100 3 7 4 0 9 10 11 12 - 5r",
            "3 100 3 7 4 0 9 10 11 12 - 2",
            "3 100 3 7 4 0 9 10 2 12 - -",
            "3 100 3 7 4 0 9 2 11 12 - -",
            "3 1 1 1 1 1 2 10 11 12 - -",
        ] {
            assert_eq!(Marker::parse(text), None, "{text}");
        }
    }

    #[test]
    fn only_the_process_that_left_a_state_takes_it() {
        let ours = exec::state_file(&state::seal(b"", Pid::this())).expect("a memory file");
        let (_, text) = ProcessRole::upgraded(&ours);
        assert_eq!(state_of_this_process(&text), Some(ours.as_raw_fd()));
        let fd = ours.as_raw_fd();
        for text in [
            format!("1 1 {fd}"),
            format!("2 {} {fd}", Pid::this()),
            format!("1 {}", Pid::this()),
            format!("1 {} 1", Pid::this()),
            format!("1 {} 1000000", Pid::this()),
        ] {
            assert_eq!(state_of_this_process(&text), None, "{text}");
        }
        let other = exec::state_file(&state::seal(b"", Pid::from_raw(1))).expect("a memory file");
        let (_, text) = ProcessRole::upgraded(&other);
        assert_eq!(
            state_of_this_process(&text),
            None,
            "another process has left it"
        );
    }

    #[test]
    fn only_the_master_that_made_the_channel_and_started_us_is_believed() {
        let text = marker().encode();
        let master = Pid::from_raw(100);
        let other = Pid::from_raw(1);
        let made_by_master = |_| Some(master);
        let decide = |starter, maker: &dyn Fn(RawFd) -> Option<Pid>| {
            ProcessRole::decide(Some(&text), starter, maker)
        };
        assert_eq!(
            decide(master, &made_by_master),
            ProcessRole::Worker(marker())
        );
        assert_eq!(decide(other, &made_by_master), ProcessRole::Orphan);
        assert_eq!(decide(other, &|_| None), ProcessRole::Master { nesting: 1 });
        assert_eq!(
            decide(other, &|_| Some(other)),
            ProcessRole::Master { nesting: 1 }
        );
        assert_eq!(
            ProcessRole::decide(None, other, made_by_master),
            ProcessRole::Master { nesting: 0 }
        );
    }
}
