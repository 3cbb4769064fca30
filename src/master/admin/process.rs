//! An admin process that was started and is not reaped, and the facts that wait for it.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::address::Address;
use crate::handle::Command;
use crate::master::admin::{Admin, END_PATIENCE};
use crate::master::messages::FINAL_MESSAGES_MAX;
use crate::protocol::admin::{AdminChannel, Fact, FromAdmin};
use crate::protocol::channel::Received;
use crate::sys::discard::wait_for_end;
use crate::sys::reap;

/// How many facts wait for a process that does not read.
const WAITING_MAX: usize = 4096;

#[derive(Debug)]
pub(super) struct AdminProcess {
    pub(super) pid: Pid,
    /// What it serves, for the log.
    address: Address,
    pub(super) channel: AdminChannel,
    pub(super) waiting: VecDeque<Told>,
    pub(super) stage: Stage,
    pub(super) ping: Ping,
}

/// Whether the process responds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ping {
    Closed,
    /// Since the last time that processes were pinged.
    Open,
}

/// What a process knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// It has to be told everything.
    New,
    /// It is told each change.
    Informed,
    /// It has closed the channel, or was killed. It is told nothing more.
    Silent,
}

/// A fact with its descriptor.
pub(super) type Told = (Fact, Option<Arc<OwnedFd>>);

impl Admin {
    /// A process that has ended and was reaped by another thread, which waits for every process
    /// (wait(2)).
    pub(in crate::master) fn reaped_elsewhere(&self) -> Option<Pid> {
        let is_gone =
            |process: &&AdminProcess| process.stage == Stage::Silent && reap::is_gone(process.pid);
        self.processes().find(is_gone).map(|process| process.pid)
    }
}

impl AdminProcess {
    pub(super) fn new(pid: Pid, address: Address, channel: AdminChannel) -> Self {
        Self {
            pid,
            address,
            channel,
            waiting: VecDeque::new(),
            stage: Stage::New,
            ping: Ping::Closed,
        }
    }

    /// Asks the process to respond. Kills it if it has not responded since the last time.
    pub(super) fn ping(&mut self) {
        match (self.stage, self.ping) {
            (Stage::Silent, _) => {}
            (_, Ping::Closed) => {
                self.ping = Ping::Open;
                self.tell(Fact::Ping, None);
            }
            (_, Ping::Open) => {
                let Self { pid, address, .. } = self;
                tracing::warn!(%pid, %address, "the admin process hangs and is killed");
                self.stage = Stage::Silent;
                self.kill();
            }
        }
    }

    pub(super) fn tell(&mut self, fact: Fact, with: Option<Arc<OwnedFd>>) {
        if fact == Fact::View {
            // It replaces the one before, which has a descriptor.
            self.waiting.retain(|(waiting, _)| *waiting != Fact::View);
        }
        if self.waiting.len() >= WAITING_MAX && fact != Fact::Leave {
            let Self { pid, address, .. } = self;
            tracing::debug!(%pid, %address, "the admin process does not read");
            self.waiting.clear();
            self.stage = Stage::New;
            return;
        }
        self.waiting.push_back((fact, with));
        self.send_waiting();
    }

    pub(super) fn send_waiting(&mut self) {
        while let Some((fact, with)) = self.waiting.front() {
            match self.channel.tell(fact, with.as_deref().map(AsFd::as_fd)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) => {
                    let address = &self.address;
                    tracing::debug!(%address, %error, "a fact for the admin process was lost");
                    self.waiting.pop_front();
                }
                Ok(()) => {
                    self.waiting.pop_front();
                }
            }
        }
    }

    /// The commands that the process sent before it ended, and that were not received.
    pub(super) fn final_commands(&self) -> Vec<(u64, Command)> {
        let mut commands = Vec::new();
        if self.stage == Stage::Silent {
            return commands;
        }
        for _ in 0..FINAL_MESSAGES_MAX {
            match self.channel.recv() {
                Ok(Received::Message(FromAdmin::Asked { number, command })) => {
                    commands.push((number, command));
                }
                Ok(Received::Message(_)) => {}
                Ok(Received::Nothing | Received::End) | Err(_) => break,
            }
        }
        commands
    }

    /// Its process is not reaped yet, so the pid is still its own.
    pub(super) fn kill(&self) {
        let _ = kill(self.pid, Signal::SIGKILL);
    }

    /// After [`kill`](Self::kill). The kernel may not end the process: it waits for a disk, or is
    /// another user's and the master lacks `CAP_KILL`. Then nothing waits for it.
    pub(super) fn reap(&self) {
        wait_for_end(self.pid.as_raw(), END_PATIENCE);
        reap::take(self.pid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::memory;

    /// A process may say that it is alive, and ask for views, without reading any.
    #[test]
    fn one_view_waits_for_a_process_that_does_not_read() {
        let (ours, _theirs) = AdminChannel::pair().expect("a pair");
        let address = "127.0.0.1:9180".parse().expect("an address");
        let mut process = AdminProcess::new(Pid::this(), address, ours);
        let view = memory::sealed(c"view", b"").expect("memory");
        let view = Arc::new(view);
        for _ in 0..1000 {
            process.tell(Fact::View, Some(Arc::clone(&view)));
        }
        process.tell(Fact::Gone(1), None);
        process.tell(Fact::View, Some(view));
        let waiting: Vec<_> = process.waiting.iter().map(|(fact, _)| fact).collect();
        assert_eq!(waiting, [&Fact::Gone(1), &Fact::View]);
    }
}
